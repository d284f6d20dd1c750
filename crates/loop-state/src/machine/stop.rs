//! The rules of a stop: when its deadline begins, what it ends, and how a run ends that was told to stop before it began. They are apart because a
//! stop is the one request that counts at any time, also while the run ends.

use std::time::Duration;

use super::{Effects, Machine};
use crate::times::SHUTDOWN_REASON;
use crate::{
    Effect, Happening, Notice, Request, Step, StopDeadline, StopReason, StopRequest, Then,
    Timestamp, When,
};

/// How git is asked about the working tree before a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Glance {
    /// Not at all.
    Skipped,
    /// The save does not wait long for an answer.
    Brief,
    /// The save waits for an answer.
    Awaited,
}

impl Machine {
    /// Sets the budget of a whole stop, in place of [`STOP_BUDGET`](crate::times::STOP_BUDGET).
    #[must_use]
    pub fn with_stop_budget(mut self, budget: Duration) -> Self {
        self.stop_budget = budget;
        self
    }

    /// Returns the deadline of the stop that is under way.
    #[must_use]
    pub const fn deadline(&self) -> StopDeadline {
        self.deadline
    }

    /// Returns how long something that has to end now may take.
    #[must_use]
    pub fn budget(&self, now: Timestamp) -> Duration {
        self.deadline.budget(now, self.stop_budget)
    }

    /// Returns whether the run is being stopped.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.deadline.is_stop()
    }

    /// Returns within what time everything has to be gone that is being ended; `None` when the run is not being stopped.
    #[must_use]
    pub fn ends_within(&self, now: Timestamp) -> Option<Duration> {
        self.deadline.by().map(|by| by.since(now))
    }

    /// Returns whether processes that an attempt left running may stay, where the run keeps such processes. A stop leaves none.
    #[must_use]
    pub fn keeps_leftovers(&self) -> bool {
        !self.is_stopping()
    }

    /// Returns whether calls of the notify command that wait are still made before the last one.
    #[must_use]
    pub fn keeps_calls(&self) -> bool {
        !self.is_stopping()
    }

    /// Returns whether git is asked about the working tree before a save, which [seals a phase](Effect::SealPhase) or does not. A stop saves first. The
    /// last state of a phase or a run needs the answer.
    #[must_use]
    pub fn glance(&self, seals: bool) -> Glance {
        match self.is_stopping() {
            true => Glance::Skipped,
            false if seals || self.head.end.is_some() => Glance::Awaited,
            false => Glance::Brief,
        }
    }

    /// Returns whether the work of the present iteration is to be committed, where the run commits at all: it is complete, and no stop waits for that.
    #[must_use]
    pub fn commits(&self) -> bool {
        let is_complete = matches!(
            self.head.step,
            Step::Settling {
                then: Then::Next | Then::Done(_)
            }
        );
        is_complete && !self.is_stopping()
    }

    /// Returns whether the run is to pause, or waits for a person: a reason for that still holds.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let rests = matches!(
            self.head.step,
            Step::Paused { .. } | Step::Interrupted { .. }
        );
        (self.head.pausing || rests) && self.head.end.is_none()
    }

    /// Returns whether a steer that is recorded now waits for the next prompt: no turn is there that may still take it.
    #[must_use]
    pub fn keeps_steers(&self) -> bool {
        let hears = matches!(self.head.step, Step::Turn { .. } | Step::Interrupted { .. });
        !hears || self.head.halting
    }

    /// Returns whether this process has begun the run, or has taken it up.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// A stop of another process is none of this one.
    pub(super) fn begin_process(&mut self) {
        self.deadline = StopDeadline::Open;
        self.has_begun = true;
        self.is_shut = false;
        self.is_ending = false;
    }

    /// A shutdown stops the run by a request, which says why. It wakes what waits for work, so nothing else may happen before that request.
    pub(super) fn shut_down(&mut self) -> Effects {
        let is_new = !std::mem::replace(&mut self.is_shut, true);
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

    /// The process was told to stop before its first event.
    pub(super) fn stopped_early(&mut self, request: StopRequest, at: Timestamp) -> Effects {
        match &mut self.head.end {
            None => self.head.stopping = Some(request),
            Some(end) if end.reason.is_stopped() => end.reason = StopReason::Stopped(request.by),
            Some(_) => {}
        }
        self.is_ending = true;
        vec![self.begin_stop(false, at), Effect::Save, Effect::Finish]
    }

    /// Does what is requested, now or when the iteration is complete.
    pub(super) fn stop_requested(
        &mut self,
        request: StopRequest,
        is_abort: bool,
        at: Timestamp,
    ) -> Effects {
        let step = self.head.step.clone();
        // An interrupted turn waits for a person, so its iteration is never complete.
        let is_now = request.when == When::Now || matches!(step, Step::Interrupted { .. });
        let mut effects = Effects::new();
        if is_now {
            effects.push(self.begin_stop(is_abort, at));
        }
        if self.must_stop_now() || (self.head.stopping.is_some() && !is_now) {
            return effects;
        }
        self.head.stopping = Some(request);
        effects.extend(match is_now {
            _ if step.is_rest() => self.end(StopReason::Stopped(request.by), at),
            false => vec![Effect::Save, Effect::Announce(Notice::StoppingLater)],
            true => self.stop_now(request, &step),
        });
        effects
    }

    fn stop_now(&mut self, request: StopRequest, step: &Step) -> Effects {
        self.head.stopping = Some(StopRequest {
            when: When::Now,
            ..request
        });
        // What is being halted already for another reason now ends for this one.
        let already = self.head.halting;
        let halt = self.halt(step);
        let failure = self.head.failure.take();
        self.head.failure = failure.filter(|_| !matches!(step, Step::Turn { .. }));
        let mut effects = vec![Effect::Save, Effect::Announce(Notice::Stopping)];
        effects.extend(halt.into_iter().filter(|_| !already));
        effects
    }

    /// A request that comes while the run ends only moves the deadline.
    pub(super) fn stop_while_ending(&mut self, what: &Happening, at: Timestamp) -> Option<Effects> {
        let is_over = self.is_ending || self.head.end.is_some();
        what.stop().filter(|_| is_over)?;
        let is_abort = matches!(what, Happening::Requested(Request::Abort));
        Some(vec![self.begin_stop(is_abort, at)])
    }

    pub(super) fn must_stop_now(&self) -> bool {
        self.head
            .stopping
            .is_some_and(|request| request.when == When::Now)
    }
}
