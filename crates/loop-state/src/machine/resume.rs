//! The transition of a saved run into a new process.

use super::person::recorded;
use super::{Effects, Machine, once_saved};
use crate::head::MAX_NUMBER;
use crate::{Again, CutCause, Effect, Head, Resume, Step, StopReason, Streak, Then, Timestamp};

impl Machine {
    pub(super) fn resumed(&mut self, resume: Resume, at: Timestamp) -> Effects {
        self.begin_process();
        let allowed = self
            .head
            .may_resume(resume.from, resume.reached, resume.rules.as_ref());
        let head = &mut self.head;
        match &head.end {
            Some(end) if allowed.is_err() && end.reason.is_final() => {
                return self.announce_end();
            }
            // The person who resumes a run that gave up knows why it did.
            Some(end) if !end.reason.is_stopped() => {
                head.streaks = Default::default();
                head.waits = Default::default();
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
        // A resume can bring another check.
        head.checked = false;
        head.end = None;
        head.halting = false;
        head.pausing = false;
        if let Some(from) = resume.predecessor {
            head.hand_over(from);
        }
        let settling = match &head.step {
            Step::Settling {
                then: Then::Again(again),
            } => Some(*again),
            _ => None,
        };
        let again = head.again.take().or(settling);
        let asked_to_stop = head.stopping.take().is_some();
        if let Some(rules) = resume.rules
            && rules.validate().is_ok()
        {
            let last = rules.phases.len() as u32 - 1;
            if head.phase > last {
                head.phase = last;
                head.reopen_phase();
            }
            head.rules = rules;
        }
        let waited = matches!(head.step, Step::Interrupted { .. });
        if waited || matches!(head.step, Step::Turn { .. }) {
            let cause = match again {
                Some(_) => CutCause::Restart,
                None if asked_to_stop => CutCause::Stop,
                None => CutCause::Crash,
            };
            // An interrupted turn that waited for a message is not a crash, and neither is a turn that a redo was ending.
            let crashed = cause == CutCause::Crash && !waited;
            head.streaks.crashes += u32::from(crashed);
            self.cut(cause);
        }
        if let Some(used) = resume.used_attempts {
            let used = used.min(MAX_NUMBER / 2);
            self.head.highest_attempt = self.head.highest_attempt.max(used);
            self.head.first_attempt = self.head.highest_attempt + 1;
        }
        let from = resume.from.filter(|_| allowed.is_ok());
        if let Some(from) = from.or((again == Some(Again::Phase)).then_some(1)) {
            let reached = resume.reached.unwrap_or(0).min(MAX_NUMBER / 2);
            self.begin_from(from, self.head.resumes_at().0.max(reached));
        }
        let said = resume.feedback;
        let said = said.and_then(|text| self.record_steer(text, at));
        let effects = self.taken_up(again, said.is_some(), at);
        match said {
            Some(id) => once_saved(recorded(id), effects),
            None => effects,
        }
    }

    /// Continues the run at its current step, unless a limit forbids it.
    fn taken_up(&mut self, again: Option<Again>, is_revised: bool, at: Timestamp) -> Effects {
        let head = &self.head;
        if head.rules.limits.max_failures > 0
            && head.streaks.crashes >= head.rules.limits.max_failures
        {
            let reason = StopReason::Stuck(Streak::Crashes, head.streaks.crashes);
            return self.end(reason, at);
        }
        if let Some(reason) = self.time_limit(at) {
            return self.end(reason, at);
        }
        match head.step {
            Step::Sleeping { .. } | Step::Paused { .. } => self.proceed(at),
            Step::Review { .. } if is_revised => self.revise(at),
            Step::Review { of, .. } => self.review_again(of, at),
            Step::Waiting { .. } => self.wait_on(at),
            Step::Gate { .. } | Step::Check | Step::Settling { .. } if again.is_some() => {
                self.begin_again(Again::Iteration, at)
            }
            Step::Gate { .. } | Step::Check | Step::Settling { .. } => {
                let mut effects = vec![Effect::Save];
                effects.extend(self.judge());
                effects
            }
            _ if head.cut.is_some()
                && head.phase_rules().until
                && !head.phase_rules().promise
                && again.is_none() =>
            {
                let mut effects = vec![Effect::Save];
                effects.extend(self.recheck_from(0));
                effects
            }
            _ => {
                self.head.iteration = self.head.iteration.max(1);
                self.begin_attempt(at)
            }
        }
    }

    /// Numbers the iterations again from `from` on and discards the records of the replaced ones.
    pub(super) fn go_back_to(&mut self, from: u32) {
        self.begin_from(from, self.head.resumes_at().0);
    }

    /// Goes back to iteration `from`, at most to iteration `most`.
    fn begin_from(&mut self, from: u32, most: u32) {
        let head = &mut self.head;
        head.reopen_phase();
        head.iteration = from.clamp(1, most);
        head.first_attempt = head.highest_attempt + 1;
        head.attempt = 0;
        head.cut = None;
        // The session contains iterations that are discarded.
        head.session = None;
        head.prompted = false;
        head.feedback = None;
        head.claimed = false;
        head.failure = None;
        head.waits = Default::default();
        head.iteration_usage = Default::default();
        head.discard_from(head.iteration);
        head.step = Step::Ready;
    }

    /// Runs the required checks from `gate` on, then the check, to find out whether an unfinished iteration is already complete.
    pub(super) fn recheck_from(&mut self, gate: u32) -> Effects {
        self.head.step = Step::Recheck { gate };
        let command = if gate < self.head.phase_rules().gates {
            Effect::RunGate(gate)
        } else {
            Effect::RunCheck
        };
        vec![command]
    }
}

impl Head {
    /// Discards the result and the failures of the iterations of this phase that will be redone: `from` and later ones.
    pub(super) fn discard_from(&mut self, from: u32) {
        self.said = None;
        self.errors.retain(|error| error.iteration < from);
        self.last.take_if(|last| last.iteration >= from);
    }
}
