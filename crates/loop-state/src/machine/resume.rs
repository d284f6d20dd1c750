//! The transition of a saved run into a new process.

use super::requests::recorded;
use super::{Effects, Machine, after_save};
use crate::head::MAX_NUMBER;
use crate::{
    AfterLeftovers, Effect, Head, IterationStep, RedoScope, ResumeOptions, StopReason, StopRequest,
    StopTiming, Streak, Timestamp, UnfinishedCause,
};

impl Machine {
    pub(super) fn resumed(&mut self, resume: ResumeOptions, at: Timestamp) -> Effects {
        self.begin_process();
        let allowed = self.head.may_resume(&resume);
        let head = &mut self.head;
        match &head.end {
            Some(end) if allowed.is_err() && end.reason.is_final() => {
                return self.announce_end();
            }
            // After an end that is not a stop, streaks and retries start again: the person who resumes the run has seen why it ended.
            Some(end) if !end.reason.is_stopped() => {
                head.streaks = Default::default();
                head.retries = Default::default();
            }
            _ => {}
        }
        head.count_active(head.last_at);
        head.taken_at = at;
        // An earlier clock that was ahead must not affect the times of this process.
        head.last_at = at;
        head.counts.processes += 1;
        head.taken_attempts = head.counts.attempts;
        head.attended = resume.attended;
        // The settings may have changed the check since then.
        head.check_has_run = false;
        head.end = None;
        head.is_stopping_step = false;
        head.pausing &= resume.taken_over;
        if let Some(position) = resume.session_position {
            head.session_saved(position);
            head.steers_seen(&resume.session_steers);
        }
        if let Some(from) = resume.previous_agent {
            head.hand_over(from);
        }
        let redo_in_leftovers = match &head.step {
            IterationStep::EndingLeftovers {
                then: AfterLeftovers::Redo(redo),
            } => Some(*redo),
            _ => None,
        };
        let redo = head.redo.take().or(redo_in_leftovers);
        let stopping = head.stopping.take();
        let was_stopping = stopping.is_some();
        let when = StopTiming::AfterIteration;
        let cut_short = { head.stop_cut_short.take() }.map(|by| StopRequest { by, when });
        let postponed = stopping.filter(|stop| stop.when == when).or(cut_short);
        head.stopping = postponed.filter(|_| resume.taken_over);
        if let Some(rules) = resume.rules.filter(|rules| rules.validate().is_ok()) {
            head.phase = head.phase.min(rules.phases.len() as u32 - 1);
            head.reopen_phase();
            head.rules = rules;
        }
        let was_interrupted = matches!(head.step, IterationStep::Interrupted { .. });
        if was_interrupted || matches!(head.step, IterationStep::Turn { .. }) {
            let cause = match redo {
                Some(_) => UnfinishedCause::Redo,
                None if was_stopping => UnfinishedCause::Stop,
                None => UnfinishedCause::ProcessDied,
            };
            // An interrupted turn that waited for a message is not a crash, and neither is a turn that a redo was ending.
            let crashed = cause == UnfinishedCause::ProcessDied && !was_interrupted;
            head.streaks.crashes += u32::from(crashed);
            self.mark_unfinished(cause);
        }
        if let Some(used) = resume.highest_used_attempt {
            let used = used.min(MAX_NUMBER / 2);
            self.head.highest_attempt = self.head.highest_attempt.max(used);
            self.head.first_attempt = self.head.highest_attempt + 1;
        }
        let from = resume.from_iteration.filter(|_| allowed.is_ok());
        if let Some(from) = from.or((redo == Some(RedoScope::Phase)).then_some(1)) {
            let reached = resume.last_begun_iteration.unwrap_or(0).min(MAX_NUMBER / 2);
            self.begin_from(from, self.head.resume_point().iteration.max(reached));
        }
        let steer = resume.feedback;
        let steer = steer.and_then(|text| self.record_steer(text, at));
        let effects = match self.head.step {
            IterationStep::Paused { .. } if resume.taken_over => self.pause(at),
            _ => self.continue_from_saved(redo, steer.is_some(), at),
        };
        match steer {
            Some(id) => after_save(recorded(id), effects),
            None => effects,
        }
    }

    /// Continues the run at its current step, unless a limit forbids it.
    fn continue_from_saved(
        &mut self,
        redo: Option<RedoScope>,
        is_revised: bool,
        at: Timestamp,
    ) -> Effects {
        let head = &self.head;
        if head.rules.limits.max_failures > 0
            && head.streaks.crashes >= head.rules.limits.max_failures
        {
            let reason = StopReason::Stuck {
                streak: Streak::Crashes,
                count: head.streaks.crashes,
            };
            return self.end(reason, at);
        }
        if let Some(reason) = self.time_limit(at) {
            return self.end(reason, at);
        }
        match head.step {
            IterationStep::Sleeping { .. } | IterationStep::Paused { .. } => self.begin_next(at),
            IterationStep::Review { .. } if is_revised => self.revise(at),
            IterationStep::Review { point, .. } => self.resume_review(point, at),
            IterationStep::Waiting { .. } => self.resume_wait(at),
            IterationStep::RequiredCheck { .. }
            | IterationStep::Check
            | IterationStep::EndingLeftovers { .. }
                if redo.is_some() =>
            {
                self.begin_redo(RedoScope::Iteration, at)
            }
            IterationStep::RequiredCheck { .. }
            | IterationStep::Check
            | IterationStep::EndingLeftovers { .. } => {
                let mut effects = vec![Effect::Save];
                effects.extend(self.start_checks());
                effects
            }
            _ if head.unfinished.is_some()
                && head.phase_rules().has_check
                && !head.phase_rules().has_promise
                && redo.is_none() =>
            {
                let mut effects = vec![Effect::Save];
                effects.extend(self.recheck(0));
                effects
            }
            _ => {
                self.head.iteration = self.head.iteration.max(1);
                self.begin_attempt(at)
            }
        }
    }

    /// Numbers the iterations again from `from` on and discards the records of the replaced ones.
    pub(super) fn renumber_from(&mut self, from: u32) {
        self.begin_from(from, self.head.resume_point().iteration);
    }

    /// Goes back to iteration `from`, at most to iteration `most`.
    fn begin_from(&mut self, from: u32, most: u32) {
        let head = &mut self.head;
        head.reopen_phase();
        head.iteration = from.clamp(1, most);
        head.first_attempt = head.highest_attempt + 1;
        head.attempt = 0;
        head.unfinished = None;
        // The session contains iterations that are discarded.
        head.drop_session();
        head.has_prompt = false;
        head.feedback = None;
        head.promised = false;
        head.failure = None;
        head.retries = Default::default();
        head.iteration_usage = Default::default();
        head.discard_from(head.iteration);
        head.step = IterationStep::Ready;
    }

    /// Runs the required checks from `index` on, then the check, to find out whether an unfinished iteration is already complete.
    pub(super) fn recheck(&mut self, index: u32) -> Effects {
        self.head.step = IterationStep::Recheck { index };
        let command = if index < self.head.phase_rules().required_checks {
            Effect::RunRequiredCheck(index)
        } else {
            Effect::RunCheck
        };
        vec![command]
    }
}

impl Head {
    /// Discards the result and the failures of the iterations of this phase that will be redone: `from` and later ones.
    pub(super) fn discard_from(&mut self, from: u32) {
        self.last_message = None;
        self.errors.retain(|error| error.iteration < from);
        self.last_iteration.take_if(|last| last.iteration >= from);
    }
}
