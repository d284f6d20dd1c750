//! The transitions between phases, and the reviews.

use super::requests::recorded;
use super::{Effects, Machine, after_save};
use crate::{
    Autonomy, Effect, Evidence, FinishedPhase, Head, IterationStep, MAX_ERRORS, ReviewDecision,
    ReviewPoint, RunUpdate, StopCause, StopReason, StopRequest, Timestamp,
};

impl Machine {
    pub(super) fn is_last_phase(&self) -> bool {
        self.head.phase as usize + 1 >= self.head.rules.phases.len()
    }

    /// Returns whether all planned iterations ran and there is no other stop condition.
    pub(super) fn is_plan_complete(&self) -> bool {
        let rules = self.head.phase_rules();
        !rules.has_check
            && !rules.has_promise
            && rules
                .limits
                .max_iterations
                .is_some_and(|max| self.head.iteration >= max)
    }

    /// Ends the current phase and saves it at the boundary. If the last planned iteration failed, ends the run instead.
    pub(super) fn phase_over(
        &mut self,
        done: Option<Evidence>,
        update: Option<RunUpdate>,
        at: Timestamp,
    ) -> Effects {
        if let (None, reason @ StopReason::LastIterationFailed { .. }) = (done, self.planned_end())
        {
            // The last planned iteration failed, so there is no result for the next phase.
            let effects = self.end(reason, at);
            return update
                .into_iter()
                .fold(effects, |effects, update| after_save(update, effects));
        }
        let is_last = self.is_last_phase();
        let head = &mut self.head;
        head.reopen_phase();
        let name = head.phase_rules().name.clone();
        let usage = head.phase_usage();
        head.finished_phases.push(FinishedPhase {
            name: name.clone(),
            at,
            iterations: head.iteration,
            evidence: done,
            result: head.last_message.take(),
            usage,
            errors: std::mem::take(&mut head.errors),
        });
        let mut effects = if is_last {
            let reason = done.map_or_else(|| self.planned_end(), StopReason::Done);
            self.end(reason, at)
        } else {
            head.phase += 1;
            head.iteration = 0;
            head.attempt = 0;
            head.first_attempt = head.highest_attempt + 1;
            head.feedback = None;
            head.has_prompt = false;
            head.check_has_run = false;
            head.streaks = Default::default();
            head.retries = Default::default();
            head.step = IterationStep::Sleeping { until: at };
            let next = match head.stopping {
                Some(request) => self.stop_here(request, true, at),
                // The sleep of the next phase begins later, so the checkpoint contains only the boundary.
                None => self.pause_or_review(true, at).unwrap_or(vec![Effect::Save]),
            };
            let phase = name.clone();
            after_save(RunUpdate::PhaseEnded { name: phase, usage }, next)
        };
        effects[0] = Effect::SavePhase { phase: name };
        match update {
            Some(update) => after_save(update, effects),
            None => effects,
        }
    }

    /// Pauses or asks for a review when an iteration is complete, if the rules or a person require it.
    pub(super) fn pause_or_review(&mut self, at_phase_end: bool, at: Timestamp) -> Option<Effects> {
        let head = &mut self.head;
        let due = match head.rules.autonomy {
            Autonomy::Checkpoint => at_phase_end.then_some(ReviewPoint::Phase),
            Autonomy::Batch(size) => {
                (head.iterations_since_review >= size).then_some(ReviewPoint::Batch)
            }
            Autonomy::Full => None,
        };
        if due.is_some() {
            head.iterations_since_review = 0;
        }
        match due.filter(|_| head.attended) {
            Some(point) => {
                head.pausing = false;
                head.step = IterationStep::Review { since: at, point };
                Some(vec![Effect::Save, Effect::Emit(RunUpdate::Review(point))])
            }
            None => head.pausing.then(|| self.pause(at)),
        }
    }

    /// Stops the run when an iteration is complete. If a review is due then, the process that resumes the run asks for it.
    pub(super) fn stop_here(
        &mut self,
        request: StopRequest,
        at_phase_end: bool,
        at: Timestamp,
    ) -> Effects {
        let _not_now = self.pause_or_review(at_phase_end, at);
        self.end(StopReason::Stopped(request.by), at)
    }

    /// Begins the next iteration or phase, unless a limit forbids it.
    pub(super) fn begin_next(&mut self, at: Timestamp) -> Effects {
        if self.is_plan_complete() {
            return self.phase_over(None, None, at);
        }
        match self.limit(at) {
            Some(reason) => self.end(reason, at),
            None => self.begin_iteration(self.head.iteration + 1, at),
        }
    }

    /// Continues a run that was waiting for a review, in another process.
    pub(super) fn resume_review(&mut self, point: ReviewPoint, at: Timestamp) -> Effects {
        if !self.head.attended || self.head.rules.autonomy == Autonomy::Full {
            return self.begin_next(at);
        }
        match self.limit(at) {
            // A review would have no effect: the plan is shorter now, or a limit was reached.
            Some(_) => self.begin_next(at),
            None => vec![Effect::Save, Effect::Emit(RunUpdate::Review(point))],
        }
    }

    pub(super) fn attended(
        &mut self,
        attended: bool,
        step: &IterationStep,
        at: Timestamp,
    ) -> Effects {
        self.head.attended = attended;
        match step {
            IterationStep::Review { .. } if !attended => self.begin_next(at),
            _ => Effects::new(),
        }
    }

    pub(super) fn reviewed(
        &mut self,
        decision: ReviewDecision,
        step: &IterationStep,
        at: Timestamp,
    ) -> Effects {
        if !matches!(step, IterationStep::Review { .. }) {
            return Effects::new();
        }
        let update = RunUpdate::Reviewed(decision.clone());
        let effects = match decision {
            ReviewDecision::Continue => self.begin_next(at),
            ReviewDecision::Exit => self.end(StopReason::Stopped(StopCause::Person), at),
            ReviewDecision::StartOver => self.rerun_phase(self.is_between_phases(), at),
            ReviewDecision::Revise(text) => {
                let Some(id) = self.record_steer(text, at) else {
                    return Effects::new();
                };
                let effects = self.revise(at);
                after_save(recorded(id), effects)
            }
        };
        after_save(update, effects)
    }

    /// Continues with a person's feedback: at a boundary the finished phase runs again with it, otherwise the next iteration gets it.
    pub(super) fn revise(&mut self, at: Timestamp) -> Effects {
        match self.is_between_phases() {
            true => self.rerun_phase(true, at),
            false => self.begin_next(at),
        }
    }

    /// Returns whether the current phase has not begun. A review is then about the phase before it.
    fn is_between_phases(&self) -> bool {
        self.head.iteration == 0
    }

    /// Runs a phase again from its first iteration; at a boundary this is the previous phase.
    pub(super) fn rerun_phase(&mut self, is_boundary: bool, at: Timestamp) -> Effects {
        let head = &mut self.head;
        if is_boundary {
            head.phase = head.phase.saturating_sub(1);
            head.finished_phases.truncate(head.phase as usize);
        }
        self.renumber_from(1);
        self.begin_attempt(at)
    }
}

impl Head {
    /// Reopens the current phase if it was finished: its result and its failures belong to it again.
    pub(super) fn reopen_phase(&mut self) {
        let own = (self.phase as usize).min(self.finished_phases.len());
        let Some(own) = self.finished_phases.drain(own..).next() else {
            return;
        };
        self.errors.splice(..0, own.errors);
        let surplus = self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.drain(..surplus);
        self.last_message = self.last_message.take().or(own.result);
    }
}
