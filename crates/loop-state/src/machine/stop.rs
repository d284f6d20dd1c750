//! The rules of a stop: when its deadline begins, which processes it ends, and the end of a run that is stopped before it began. They have their own
//! module because a stop is the only request that works at any time, also while the run ends.

use std::time::Duration;

use super::{Effects, Machine};
use crate::times::SHUTDOWN_REASON;
use crate::{
    AfterLeftovers, Effect, IterationStep, MachineInput, Request, RunUpdate, StopCause,
    StopDeadline, StopReason, StopRequest, StopTiming, Timestamp,
};

/// Which of the two effects requests a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SaveKind {
    /// [`Effect::Save`].
    Progress,
    /// [`Effect::SavePhase`].
    FinishedPhase,
}

/// How a save asks for the git status of the working tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GitStatusWait {
    /// The save doesn't ask.
    Skipped,
    /// The save waits only a short time.
    Brief,
    /// The save waits for the git status.
    Awaited,
}

impl Machine {
    /// Sets the stop budget; the default is 8 s.
    #[must_use]
    pub fn with_stop_budget(mut self, budget: Duration) -> Self {
        self.stop_budget = budget;
        self
    }
}

#[doc(hidden)] // only `loop-runner` asks for these details; they are no part of the API
impl Machine {
    /// Returns the deadline of the current stop.
    #[must_use]
    pub const fn deadline(&self) -> StopDeadline {
        self.deadline
    }

    /// Returns the time for something that must end now.
    #[must_use]
    pub fn budget(&self, now: Timestamp) -> Duration {
        self.deadline.budget(now, self.stop_budget)
    }

    /// Returns whether the run is being stopped.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.deadline.is_stop()
    }

    /// Returns how long the end of all processes may take from now on; `None` if the run is not being stopped.
    #[must_use]
    pub fn ends_within(&self, now: Timestamp) -> Option<Duration> {
        self.deadline.by().map(|by| by.since(now))
    }

    /// Returns whether leftovers may be retained, if the run is configured so. A stop retains none.
    #[must_use]
    pub fn keeps_leftovers(&self) -> bool {
        !self.is_stopping()
    }

    /// Returns whether queued notifications are still sent before the last ones.
    #[must_use]
    pub fn keeps_notify_calls(&self) -> bool {
        !self.is_stopping()
    }

    /// Returns how this save asks for the git status. A stop saves without the git status. The last save of a phase or a run needs it.
    #[must_use]
    pub fn git_status_wait(&self, save: SaveKind) -> GitStatusWait {
        match save {
            _ if self.is_stopping() => GitStatusWait::Skipped,
            SaveKind::FinishedPhase => GitStatusWait::Awaited,
            SaveKind::Progress if self.head.end.is_some() => GitStatusWait::Awaited,
            SaveKind::Progress => GitStatusWait::Brief,
        }
    }

    /// Returns whether to commit the work of the current iteration, if the run commits at all: the iteration is complete.
    ///
    /// A stop ends the commit, but its result must be known: the complete iteration is not committed then.
    #[must_use]
    pub fn commits(&self) -> bool {
        matches!(
            self.head.step,
            IterationStep::EndingLeftovers {
                then: AfterLeftovers::NextIteration | AfterLeftovers::PhaseDone(_)
            }
        )
    }

    /// Returns whether the run is about to pause, is paused or is interrupted. Only then the recorded reason of a pause still applies.
    #[must_use]
    pub fn is_pausing_or_paused(&self) -> bool {
        let rests = matches!(
            self.head.step,
            IterationStep::Paused { .. } | IterationStep::Interrupted { .. }
        );
        (self.head.pausing || rests) && self.head.end.is_none()
    }

    /// Returns whether a steer that is recorded now waits for the next prompt, because no turn can still get it.
    #[must_use]
    pub fn keeps_steers(&self) -> bool {
        let takes_steers = matches!(
            self.head.step,
            IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
        );
        !takes_steers || self.head.is_stopping_step
    }

    /// Returns whether this process has started or resumed the run.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }
}

impl Machine {
    /// Resets the stop state: a stop of another process doesn't apply to this one.
    pub(super) fn begin_process(&mut self) {
        self.deadline = StopDeadline::Unset;
        self.has_begun = true;
        self.is_shutting_down = false;
        self.is_ending = false;
    }

    /// Requires a wait for the request to stop that states the reason of the shutdown. The shutdown also ends the current wait, so nothing else may
    /// happen before that request.
    pub(super) fn shut_down(&mut self) -> Effects {
        let is_new = !std::mem::replace(&mut self.is_shutting_down, true);
        let is_over = self.has_begun && self.head.end.is_some();
        let waits = is_new && !is_over && !self.is_stopping();
        { waits.then_some(Effect::AwaitStop(SHUTDOWN_REASON)) }
            .into_iter()
            .collect()
    }

    /// Starts the deadline, or moves it earlier.
    pub(super) fn begin_stop(&mut self, is_abort: bool, at: Timestamp) -> Effect {
        match is_abort {
            true => self.deadline.abort(at),
            false => self.deadline.stop(at, self.stop_budget),
        }
        Effect::StopBy(self.deadline)
    }

    /// Records a stop that came before the first input of this process.
    pub(super) fn stopped_early(&mut self, request: StopRequest, at: Timestamp) -> Effects {
        match &mut self.head.end {
            None => self.replace_stop(request),
            Some(end) if end.reason.is_stopped() => end.reason = StopReason::Stopped(request.by),
            Some(_) => {}
        }
        self.is_ending = true;
        vec![self.begin_stop(false, at), Effect::Save, Effect::EndRun]
    }

    /// Stops the run, now or when the iteration is complete.
    pub(super) fn stop_requested(
        &mut self,
        request: StopRequest,
        is_abort: bool,
        at: Timestamp,
    ) -> Effects {
        let step = self.head.step.clone();
        // An interrupted turn waits for a person, so its iteration is never complete.
        let is_now =
            request.when == StopTiming::Now || matches!(step, IterationStep::Interrupted { .. });
        let mut effects = Effects::new();
        if is_now {
            effects.push(self.begin_stop(is_abort, at));
        }
        if self.is_stop_due() || (self.head.stopping.is_some() && !is_now) {
            return effects;
        }
        self.replace_stop(request);
        effects.extend(match is_now {
            _ if step.is_resting() => self.end(StopReason::Stopped(request.by), at),
            false => vec![
                Effect::Save,
                Effect::Emit(RunUpdate::StoppingAfterIteration),
            ],
            true => self.stop_now(request, &step),
        });
        effects
    }

    /// Sets the current request. A signal that replaces a stop after the iteration cuts it short.
    fn replace_stop(&mut self, request: StopRequest) {
        let earlier = self.head.stopping.replace(request);
        let is_postponed = |it: &StopRequest| it.when == StopTiming::AfterIteration;
        if let Some(earlier) = earlier.filter(is_postponed)
            && request.by != StopCause::Person
        {
            self.head.stop_cut_short = Some(earlier.by);
        }
    }

    fn stop_now(&mut self, request: StopRequest, step: &IterationStep) -> Effects {
        self.head.stopping = Some(StopRequest {
            when: StopTiming::Now,
            ..request
        });
        // If the current work is already being ended for another reason, it now ends for the stop.
        let already = self.head.is_stopping_step;
        let stop_effects = self.stop_step(step);
        let failure = self.head.failure.take();
        self.head.failure = failure.filter(|_| !matches!(step, IterationStep::Turn { .. }));
        let mut effects = vec![Effect::Save, Effect::Emit(RunUpdate::Stopping)];
        effects.extend(stop_effects.into_iter().filter(|_| !already));
        effects
    }

    /// Moves the deadline earlier for a request to stop that comes while the run ends.
    pub(super) fn stop_while_ending(
        &mut self,
        what: &MachineInput,
        at: Timestamp,
    ) -> Option<Effects> {
        let is_over = self.is_ending || self.head.end.is_some();
        what.stop().filter(|_| is_over)?;
        let is_abort = matches!(what, MachineInput::Requested(Request::Abort));
        Some(vec![self.begin_stop(is_abort, at)])
    }

    pub(super) fn is_stop_due(&self) -> bool {
        self.head
            .stopping
            .is_some_and(|request| request.when == StopTiming::Now)
    }
}
