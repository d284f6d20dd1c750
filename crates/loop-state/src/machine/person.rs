//! The requests of a person to a live run, and the reports of its agent between the ends of turns.

use super::{Effects, Machine, once_saved};
use crate::text::{MAX_STEER_BYTES, MAX_STEERS, MAX_TEXT, tail};
use crate::{
    Again, CutCause, Effect, Happening, Notice, PauseAfter, Request, SessionPolicy, Steer,
    SteerState, Step, StopReason, Then, Timestamp, Verdict, Warning,
};

impl Machine {
    /// Applies a person's request, or reports why it changed nothing.
    pub(super) fn requested(&mut self, request: Request, at: Timestamp) -> Effects {
        let why = request.why_in_vain();
        let mut effects = match self.is_live() {
            true => self.obey(request, at),
            false => Effects::new(),
        };
        let is_in_vain = { effects.iter() }.all(|it| matches!(it, Effect::PauseAt(_)));
        let why = why.filter(|_| is_in_vain).map(refuse);
        effects.extend(why);
        effects
    }

    fn obey(&mut self, request: Request, at: Timestamp) -> Effects {
        self.head.last_at = self.head.last_at.max(at);
        let step = self.head.step.clone();
        if let Some(stop) = request.stop() {
            return self.stop_requested(stop, request == Request::Abort, at);
        }
        let is_interruptible = self.interruptible;
        match request {
            // No agent works, so the message is the person's review.
            Request::Steer { text, .. } if matches!(step, Step::Review { .. }) => {
                self.reviewed(Verdict::Revise(text), &step, at)
            }
            Request::Steer { text, now } => {
                self.steer_added(text, now && is_interruptible, step, at)
            }
            Request::Interrupt if !is_interruptible => vec![refuse(
                "this agent can't be interrupted during its turn; stop the run or restart the iteration",
            )],
            Request::Interrupt => self.interrupt_requested(&step),
            Request::Pause {
                after: PauseAfter::Tool,
                ..
            } if !is_interruptible => vec![refuse(
                "this agent can't be interrupted during its turn; pause the run after the iteration",
            )],
            Request::Pause { reason, after } => {
                let pause = self.pause_requested(reason.is_some(), &step, at);
                let reason = reason.filter(|_| !pause.is_empty());
                let mut effects = vec![Effect::PauseAt(after)];
                effects.extend(reason.map(Effect::PauseReason));
                effects.extend(pause);
                effects
            }
            Request::Continue => self.continue_requested(&step, at),
            Request::Skip => match step {
                Step::Sleeping { .. } => self.proceed(at),
                Step::Waiting { .. } => self.wait_over(at),
                _ => Effects::new(),
            },
            Request::Review(verdict) => self.reviewed(verdict, &step, at),
            Request::Set(change) => self
                .rule_set(self.head.phase, change, &step, at)
                .unwrap_or_else(|e| vec![Effect::Refuse(e.to_string().into())]),
            Request::Again { what } => self.again_requested(what, &step, at),
            Request::Fresh => {
                self.head.fresh = true;
                vec![Effect::Save, Effect::Announce(Notice::Fresh)]
            }
            Request::Stop { .. }
            | Request::Abort
            | Request::Answer { .. }
            | Request::Prompt { .. } => Effects::new(),
        }
    }

    /// Returns a warning with the number of steers that no agent has read, unless the run was only stopped.
    pub(super) fn warn_of_unseen_steers(&self) -> Option<Warning> {
        let is_stopped = { self.head.stop_reason() }.is_some_and(|reason| reason.is_stopped());
        let count = self.head.unseen_steers().count();
        (count > 0 && !is_stopped).then_some(Warning::SteersUnseen { count })
    }

    pub(super) fn person_or_agent(
        &mut self,
        what: Happening,
        step: Step,
        at: Timestamp,
    ) -> Effects {
        match what {
            Happening::SteerMoved { id, state } => self.steer_moved(id, state),
            Happening::Attended(attended) => self.attended(attended, &step, at),
            Happening::PhaseRuleSet { phase, change } => {
                let effects = self.rule_set(phase, change, &step, at);
                effects.unwrap_or_default()
            }
            Happening::SessionKnown(id) => self.session_known(id),
            Happening::Prompted
                if (!self.head.prompted || !self.head.briefed.is_empty())
                    && matches!(step, Step::Turn { .. }) =>
            {
                self.head.prompted = true;
                self.head.briefed.clear();
                // Only a session that continues needs this after a crash.
                match self.head.phase_rules().session {
                    SessionPolicy::Continue => vec![Effect::Save],
                    SessionPolicy::Fresh => Effects::new(),
                }
            }
            Happening::Said(text) if !text.trim().is_empty() => {
                self.head.said = Some(tail(text));
                Effects::new()
            }
            Happening::Used(more) => {
                self.head.usage.add(more);
                self.head.iteration_usage.add(more);
                let mut effects = vec![Effect::Save];
                effects.extend(self.hold_budget(&step));
                effects
            }
            Happening::NothingDone if matches!(step, Step::Turn { .. }) => {
                self.head.idled = true;
                Effects::new()
            }
            Happening::Denied => {
                self.head.counts.denied += 1;
                Effects::new()
            }
            Happening::Thawed(frozen) => {
                self.thawed(frozen, at);
                Effects::new()
            }
            _ => Effects::new(),
        }
    }

    /// Records the session id. An id that is too long is not stored, since a part of an id is useless.
    fn session_known(&mut self, id: String) -> Effects {
        let id = Some(id).filter(|id| id.len() <= MAX_TEXT);
        match self.head.session == id {
            true => Effects::new(),
            false => {
                self.head.session = id;
                vec![Effect::Save]
            }
        }
    }

    /// Ends the current turn if a budget is used up.
    pub(super) fn hold_budget(&mut self, step: &Step) -> Effects {
        let works = matches!(step, Step::Turn { .. } | Step::Interrupted { .. });
        match works && !self.head.halting && self.head.spent().is_some() {
            true => self.halt(step),
            false => Effects::new(),
        }
    }

    fn steer_added(&mut self, text: String, now: bool, step: Step, at: Timestamp) -> Effects {
        let Some(id) = self.record_steer(text, at) else {
            return Effects::new();
        };
        let head = &self.head;
        let mut effects = vec![Effect::Save, Effect::Announce(recorded(id))];
        match step {
            Step::Turn { .. } if !head.halting => {
                effects.push(Effect::Deliver(id));
                effects.extend(now.then_some(Effect::InterruptTurn));
            }
            Step::Interrupted { .. } if !head.halting => effects.extend(self.go_on(at)),
            _ => {}
        }
        effects
    }

    /// Records a steer; returns `None` if too many steers wait.
    pub(super) fn record_steer(&mut self, text: String, at: Timestamp) -> Option<u32> {
        let head = &mut self.head;
        let waiting: usize = head.steers.iter().map(|steer| steer.text.len()).sum();
        if head.steers.len() >= MAX_STEERS || waiting + text.len() > MAX_STEER_BYTES {
            return None;
        }
        head.counts.steers += 1;
        let (id, state) = (head.counts.steers, SteerState::Recorded);
        head.steers.push(Steer {
            id,
            at,
            text,
            state,
        });
        Some(id)
    }

    fn steer_moved(&mut self, id: u32, state: SteerState) -> Effects {
        let Some(steer) = self.head.steers.iter_mut().find(|steer| steer.id == id) else {
            return Effects::new();
        };
        if state as u8 <= steer.state as u8 {
            return Effects::new();
        }
        steer.state = state;
        vec![Effect::Save, Effect::Announce(Notice::Steer { id, state })]
    }

    fn interrupt_requested(&mut self, step: &Step) -> Effects {
        match step {
            Step::Turn { .. } if !self.head.halting => vec![Effect::InterruptTurn],
            _ => Effects::new(),
        }
    }

    /// Handles a turn that ended because of a person's interrupt.
    pub(super) fn turn_interrupted(&mut self, at: Timestamp) -> Effects {
        self.head.step = Step::Interrupted { since: at };
        // The interrupted turn already waits, so the pause is fulfilled.
        self.head.pausing = false;
        vec![Effect::Save, Effect::Announce(Notice::Interrupted)]
    }

    fn go_on(&mut self, at: Timestamp) -> Effects {
        self.head.step = Step::Turn { since: at };
        self.alive_at = at;
        self.busy = false;
        vec![
            Effect::Save,
            Effect::Announce(Notice::Continued),
            Effect::GoOn,
        ]
    }

    /// Requests a pause. The latest reason applies, even if the run already waits.
    fn pause_requested(&mut self, has_reason: bool, step: &Step, at: Timestamp) -> Effects {
        match step {
            Step::Sleeping { .. } => self.pause(at),
            _ if has_reason && (self.head.is_waiting() || self.head.pausing) => vec![Effect::Save],
            _ if self.head.is_waiting() => Effects::new(),
            _ if self.head.pausing || self.head.stopping.is_some() => Effects::new(),
            _ => {
                self.head.pausing = true;
                vec![Effect::Save, Effect::Announce(Notice::Pausing)]
            }
        }
    }

    pub(super) fn pause(&mut self, at: Timestamp) -> Effects {
        self.head.pausing = false;
        self.head.step = Step::Paused { since: at };
        vec![Effect::Save, Effect::Announce(Notice::Paused)]
    }

    fn continue_requested(&mut self, step: &Step, at: Timestamp) -> Effects {
        match step {
            Step::Interrupted { .. } if !self.head.halting => self.go_on(at),
            Step::Paused { .. } => once_saved(Notice::Continued, self.proceed(at)),
            Step::Review { .. } => self.reviewed(Verdict::Continue, step, at),
            _ if self.head.pausing => {
                self.head.pausing = false;
                vec![Effect::Save, Effect::Announce(Notice::Continued)]
            }
            _ => Effects::new(),
        }
    }

    fn again_requested(&mut self, again: Again, step: &Step, at: Timestamp) -> Effects {
        if self.must_stop_now() {
            return Effects::new();
        }
        // At a boundary the next phase has no iteration yet, and the previous phase has no current iteration.
        let is_boundary = self.head.iteration == 0 && step.is_rest();
        let halt = match step {
            Step::Review { .. } if again == Again::Phase => {
                return self.reviewed(Verdict::StartOver, step, at);
            }
            _ if is_boundary && again == Again::Phase => {
                return once_saved(Notice::Again(again), self.phase_again(true, at));
            }
            _ if is_boundary => return Effects::new(),
            Step::Sleeping { .. }
            | Step::Paused { .. }
            | Step::Review { .. }
            | Step::Waiting { .. }
            | Step::Ready => {
                self.head.fresh = true;
                self.head.leave_wait(at);
                return once_saved(Notice::Again(again), self.begin_again(again, at));
            }
            Step::Settling { then: Then::Next } => {
                let then = Then::Again(again);
                self.head.step = Step::Settling { then };
                self.head.fresh = true;
                return vec![Effect::Save, Effect::Announce(Notice::Again(again))];
            }
            Step::Settling { .. } => return Effects::new(),
            _ if self.head.halting => Effects::new(),
            step => {
                self.head.again = Some(again);
                self.halt(step)
            }
        };
        self.head.fresh = true;
        self.head.again = Some(again);
        self.head.pausing = false;
        let mut effects = vec![Effect::Save, Effect::Announce(Notice::Again(again))];
        effects.extend(halt);
        effects
    }

    /// Redoes a turn that ended because a person requested it.
    pub(super) fn turn_again(&mut self, again: Again, at: Timestamp) -> Effects {
        self.cut(CutCause::Restart);
        self.begin_again(again, at)
    }

    pub(super) fn begin_again(&mut self, again: Again, at: Timestamp) -> Effects {
        match again {
            Again::Phase => self.go_back_to(1),
            Again::Iteration => {
                let head = &mut self.head;
                if head.step.is_rest() && !matches!(head.step, Step::Waiting { .. }) {
                    head.discard_from(head.iteration);
                }
                // The output of the iteration's own check is for the iteration after it.
                head.feedback = head.feedback.take().filter(|_| head.cut.is_some());
                head.failure = None;
                head.waits = Default::default();
            }
        }
        self.begin_attempt(at)
    }

    /// Ends the leftovers and then redoes, after a redo ended a required check or the check.
    pub(super) fn command_again(&mut self, again: Again) -> Effects {
        self.settle(Then::Again(again))
    }

    /// Excludes suspended time from the limits of the turn and of the run.
    fn thawed(&mut self, frozen: std::time::Duration, at: Timestamp) {
        self.head.taken_at = (self.head.taken_at + frozen).min(at);
        if let Some(since) = &mut self.command_since {
            *since = (*since + frozen).min(at);
        }
        if let Step::Turn { since } = &mut self.head.step {
            *since = (*since + frozen).min(at);
            self.alive_at = (self.alive_at + frozen).min(at);
        }
    }

    /// Ends the run because the agent can't work until a person fixes something.
    pub(super) fn turn_hopeless(&mut self, why: String, at: Timestamp) -> Effects {
        self.cut(CutCause::Agent);
        self.end(StopReason::Failed(why), at)
    }

    /// Starts the attempt again in a fresh session, because the old one is lost.
    pub(super) fn session_lost(&mut self, at: Timestamp) -> Effects {
        self.head.session = None;
        once_saved(Notice::SessionLost, self.begin_attempt(at))
    }
}

fn refuse(why: &'static str) -> Effect {
    Effect::Refuse(why.into())
}

/// Returns the update that a steer was recorded.
pub(super) fn recorded(id: u32) -> Notice {
    let state = SteerState::Recorded;
    Notice::Steer { id, state }
}
