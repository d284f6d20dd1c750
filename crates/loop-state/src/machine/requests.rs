//! Handles the requests of a person to a live run, and what its agent reports during a turn.

use super::{Effects, Machine, after_save};
use crate::text::{MAX_STEER_BYTES, MAX_STEERS, MAX_TEXT, last_text_bytes};
use crate::{
    AfterLeftovers, Effect, IterationStep, MachineInput, PauseAfter, RedoScope, Request,
    ReviewDecision, RunUpdate, Steer, SteerState, StopReason, Timestamp, UnfinishedCause, Warning,
};

impl Machine {
    /// Applies a person's request, or reports why it changed nothing.
    pub(super) fn requested(&mut self, request: Request, at: Timestamp) -> Effects {
        let why = request.rejection();
        let mut effects = match self.is_live() {
            true => self.apply_request(request, at),
            false => Effects::new(),
        };
        let changed_nothing = { effects.iter() }.all(|it| matches!(it, Effect::PauseAt(_)));
        let why = why.filter(|_| changed_nothing).map(refuse);
        effects.extend(why);
        effects
    }

    fn apply_request(&mut self, request: Request, at: Timestamp) -> Effects {
        self.head.last_at = self.head.last_at.max(at);
        let step = self.head.step.clone();
        if let Some(stop) = request.stop() {
            return self.stop_requested(stop, request == Request::Abort, at);
        }
        let is_interruptible = self.interruptible;
        match request {
            // No agent works, so the message is the person's review.
            Request::Steer { text, .. } if matches!(step, IterationStep::Review { .. }) => {
                self.reviewed(ReviewDecision::Revise(text), &step, at)
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
                effects.extend(reason.map(Effect::SavePauseReason));
                effects.extend(pause);
                effects
            }
            Request::Continue => self.continue_requested(&step, at),
            Request::Skip => match step {
                IterationStep::Sleeping { .. } => self.begin_next(at),
                IterationStep::Waiting { .. } => self.wait_over(at),
                _ => Effects::new(),
            },
            Request::Review(decision) => self.reviewed(decision, &step, at),
            Request::Set(change) => self
                .rule_set(self.head.phase, change, &step, at)
                .unwrap_or_else(|e| vec![Effect::RejectRequest(e.to_string().into())]),
            Request::Redo { what } => self.redo_requested(what, &step, at),
            Request::FreshSession => {
                self.head.fresh_session = true;
                vec![Effect::Save, Effect::Emit(RunUpdate::FreshSession)]
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

    pub(super) fn reported(
        &mut self,
        what: MachineInput,
        step: IterationStep,
        at: Timestamp,
    ) -> Effects {
        match what {
            MachineInput::SteerAdvanced { id, state } => self.steer_advanced(id, state),
            MachineInput::Attended(attended) => self.attended(attended, &step, at),
            MachineInput::PhaseRuleChanged { phase, change } => {
                let effects = self.rule_set(phase, change, &step, at);
                effects.unwrap_or_default()
            }
            MachineInput::SessionKnown(id) => self.session_known(id),
            MachineInput::SessionSaved { position } => {
                // The end of the turn follows, and is saved.
                self.head.session_saved(position);
                Effects::new()
            }
            MachineInput::PromptReceived
                if self.head.awaits_reading() && matches!(step, IterationStep::Turn { .. }) =>
            {
                self.head.prompt_received();
                // Only a session that continues needs this after a crash.
                match self.head.phase_rules().continues_attempts() {
                    true => vec![Effect::Save],
                    false => Effects::new(),
                }
            }
            MachineInput::ResultReported(text) if !text.trim().is_empty() => {
                self.head.last_message = Some(last_text_bytes(text));
                Effects::new()
            }
            MachineInput::UsageReported(more) => {
                self.head.usage.add(more);
                self.head.iteration_usage.add(more);
                let mut effects = vec![Effect::Save];
                effects.extend(self.enforce_budget(&step));
                effects
            }
            MachineInput::NoProgress if matches!(step, IterationStep::Turn { .. }) => {
                self.head.made_no_progress = true;
                Effects::new()
            }
            MachineInput::PermissionDenied => {
                self.head.counts.denied += 1;
                Effects::new()
            }
            MachineInput::Thawed(frozen) => {
                self.resumed_after_freeze(frozen, at);
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
                self.head.drop_session();
                self.head.session = id;
                vec![Effect::Save]
            }
        }
    }

    /// Ends the current turn if a budget is used up.
    pub(super) fn enforce_budget(&mut self, step: &IterationStep) -> Effects {
        let works = matches!(
            step,
            IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
        );
        match works && !self.head.is_stopping_step && self.head.spent_budget().is_some() {
            true => self.stop_step(step),
            false => Effects::new(),
        }
    }

    fn steer_added(
        &mut self,
        text: String,
        now: bool,
        step: IterationStep,
        at: Timestamp,
    ) -> Effects {
        let Some(id) = self.record_steer(text, at) else {
            return Effects::new();
        };
        let head = &self.head;
        let mut effects = vec![Effect::Save, Effect::Emit(recorded(id))];
        match step {
            IterationStep::Turn { .. } if !head.is_stopping_step => {
                effects.push(Effect::Deliver(id));
                effects.extend(now.then_some(Effect::InterruptTurn));
            }
            IterationStep::Interrupted { .. } if !head.is_stopping_step => {
                effects.extend(self.continue_turn(at))
            }
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

    fn steer_advanced(&mut self, id: u32, state: SteerState) -> Effects {
        let Some(steer) = self.head.steers.iter_mut().find(|steer| steer.id == id) else {
            return Effects::new();
        };
        if state as u8 <= steer.state as u8 {
            return Effects::new();
        }
        steer.state = state;
        vec![
            Effect::Save,
            Effect::Emit(RunUpdate::SteerAdvanced { id, state }),
        ]
    }

    fn interrupt_requested(&mut self, step: &IterationStep) -> Effects {
        match step {
            IterationStep::Turn { .. } if !self.head.is_stopping_step => {
                vec![Effect::InterruptTurn]
            }
            _ => Effects::new(),
        }
    }

    /// Handles a turn that ended because of a person's interrupt.
    pub(super) fn turn_interrupted(&mut self, at: Timestamp) -> Effects {
        self.head.step = IterationStep::Interrupted { since: at };
        // The interrupted turn already waits, so the pause is fulfilled.
        self.head.pausing = false;
        vec![Effect::Save, Effect::Emit(RunUpdate::Interrupted)]
    }

    fn continue_turn(&mut self, at: Timestamp) -> Effects {
        self.head.step = IterationStep::Turn { since: at };
        self.alive_at = at;
        self.busy = false;
        vec![
            Effect::Save,
            Effect::Emit(RunUpdate::Continued),
            Effect::ContinueTurn,
        ]
    }

    /// Requests a pause. The latest reason applies, even if the run already waits.
    fn pause_requested(
        &mut self,
        has_reason: bool,
        step: &IterationStep,
        at: Timestamp,
    ) -> Effects {
        match step {
            IterationStep::Sleeping { .. } => self.pause(at),
            _ if has_reason && (self.head.awaits_person() || self.head.pausing) => {
                vec![Effect::Save]
            }
            _ if self.head.awaits_person() => Effects::new(),
            _ if self.head.pausing || self.head.stopping.is_some() => Effects::new(),
            _ => {
                self.head.pausing = true;
                vec![Effect::Save, Effect::Emit(RunUpdate::Pausing)]
            }
        }
    }

    pub(super) fn pause(&mut self, at: Timestamp) -> Effects {
        self.head.pausing = false;
        self.head.step = IterationStep::Paused { since: at };
        vec![Effect::Save, Effect::Emit(RunUpdate::Paused)]
    }

    fn continue_requested(&mut self, step: &IterationStep, at: Timestamp) -> Effects {
        match step {
            IterationStep::Interrupted { .. } if !self.head.is_stopping_step => {
                self.continue_turn(at)
            }
            IterationStep::Paused { .. } => after_save(RunUpdate::Continued, self.begin_next(at)),
            IterationStep::Review { .. } => self.reviewed(ReviewDecision::Continue, step, at),
            _ if self.head.pausing => {
                self.head.pausing = false;
                vec![Effect::Save, Effect::Emit(RunUpdate::Continued)]
            }
            _ => Effects::new(),
        }
    }

    fn redo_requested(&mut self, scope: RedoScope, step: &IterationStep, at: Timestamp) -> Effects {
        if self.is_stop_due() {
            return Effects::new();
        }
        // At a boundary the next phase has no iteration yet, and the previous phase has no current iteration.
        let is_boundary = self.head.iteration == 0 && step.is_resting();
        let stop_effects = match step {
            IterationStep::Review { .. } if scope == RedoScope::Phase => {
                return self.reviewed(ReviewDecision::StartOver, step, at);
            }
            _ if is_boundary && scope == RedoScope::Phase => {
                return after_save(RunUpdate::Redoing(scope), self.rerun_phase(true, at));
            }
            _ if is_boundary => return Effects::new(),
            IterationStep::Sleeping { .. }
            | IterationStep::Paused { .. }
            | IterationStep::Review { .. }
            | IterationStep::Waiting { .. }
            | IterationStep::Ready => {
                self.head.fresh_session = true;
                self.head.end_wait(at);
                return after_save(RunUpdate::Redoing(scope), self.begin_redo(scope, at));
            }
            IterationStep::EndingLeftovers {
                then: AfterLeftovers::NextIteration,
            } => {
                let then = AfterLeftovers::Redo(scope);
                self.head.step = IterationStep::EndingLeftovers { then };
                self.head.fresh_session = true;
                return vec![Effect::Save, Effect::Emit(RunUpdate::Redoing(scope))];
            }
            IterationStep::EndingLeftovers { .. } => return Effects::new(),
            _ if self.head.is_stopping_step => Effects::new(),
            step => {
                self.head.redo = Some(scope);
                self.stop_step(step)
            }
        };
        self.head.fresh_session = true;
        self.head.redo = Some(scope);
        self.head.pausing = false;
        let mut effects = vec![Effect::Save, Effect::Emit(RunUpdate::Redoing(scope))];
        effects.extend(stop_effects);
        effects
    }

    /// Carries out a requested redo, after the request ended the current turn.
    pub(super) fn redo_turn(&mut self, scope: RedoScope, at: Timestamp) -> Effects {
        self.mark_unfinished(UnfinishedCause::Redo);
        self.begin_redo(scope, at)
    }

    pub(super) fn begin_redo(&mut self, scope: RedoScope, at: Timestamp) -> Effects {
        match scope {
            RedoScope::Phase => self.renumber_from(1),
            RedoScope::Iteration => {
                let head = &mut self.head;
                if head.step.is_resting() && !matches!(head.step, IterationStep::Waiting { .. }) {
                    head.discard_from(head.iteration);
                }
                // The output of this iteration's check is only for the next iteration.
                head.feedback = head.feedback.take().filter(|_| head.unfinished.is_some());
                head.failure = None;
                head.retries = Default::default();
            }
        }
        self.begin_attempt(at)
    }

    /// Carries out a requested redo, after the request ended a required check or the check. Ends the leftovers first.
    pub(super) fn redo_after_command(&mut self, scope: RedoScope) -> Effects {
        self.end_leftovers(AfterLeftovers::Redo(scope))
    }

    /// Excludes suspended time from the limits of the turn and of the run.
    fn resumed_after_freeze(&mut self, frozen: std::time::Duration, at: Timestamp) {
        self.head.taken_at = (self.head.taken_at + frozen).min(at);
        if let Some(since) = &mut self.command_since {
            *since = (*since + frozen).min(at);
        }
        if let IterationStep::Turn { since } = &mut self.head.step {
            *since = (*since + frozen).min(at);
            self.alive_at = (self.alive_at + frozen).min(at);
        }
    }

    /// Ends the run because the agent can't work until a person fixes something.
    pub(super) fn agent_unusable(&mut self, why: String, at: Timestamp) -> Effects {
        self.mark_unfinished(UnfinishedCause::AgentUnusable);
        self.end(StopReason::Failed(why), at)
    }

    /// Starts the attempt again in a fresh session, because the old one is lost.
    pub(super) fn session_lost(&mut self, at: Timestamp) -> Effects {
        self.head.drop_session();
        after_save(RunUpdate::SessionLost, self.begin_attempt(at))
    }
}

fn refuse(why: &'static str) -> Effect {
    Effect::RejectRequest(why.into())
}

/// Returns the update that a steer was recorded.
pub(super) fn recorded(id: u32) -> RunUpdate {
    let state = SteerState::Recorded;
    RunUpdate::SteerAdvanced { id, state }
}
