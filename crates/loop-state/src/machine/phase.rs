//! The transitions between phases, and the reviews.

use super::person::recorded;
use super::{Effects, Machine, once_saved};
use crate::{
    Autonomy, Effect, Evidence, Finished, Head, MAX_ERRORS, Notice, Occasion, Step, StopCause,
    StopReason, StopRequest, Timestamp, Verdict,
};

impl Machine {
    pub(super) fn is_last_phase(&self) -> bool {
        self.head.phase as usize + 1 >= self.head.rules.phases.len()
    }

    /// Returns whether all planned iterations ran and there is no other stop condition.
    pub(super) fn is_plan_made(&self) -> bool {
        let rules = self.head.phase_rules();
        !rules.until
            && !rules.promise
            && rules
                .limits
                .max_iterations
                .is_some_and(|max| self.head.iteration >= max)
    }

    /// Ends the current phase and saves it at the boundary. A plan that failed ends the run instead.
    pub(super) fn phase_over(
        &mut self,
        done: Option<Evidence>,
        news: Option<Notice>,
        at: Timestamp,
    ) -> Effects {
        if let (None, reason @ StopReason::LastFailed(..)) = (done, self.plan_end()) {
            // The last planned iteration failed, so there is no result for the next phase.
            let effects = self.end(reason, at);
            return news
                .into_iter()
                .fold(effects, |effects, news| once_saved(news, effects));
        }
        let is_last = self.is_last_phase();
        let head = &mut self.head;
        head.reopen_phase();
        let name = head.phase_rules().name.clone();
        let usage = head.phase_usage();
        head.finished.push(Finished {
            name: name.clone(),
            at,
            iterations: head.iteration,
            evidence: done,
            result: head.said.take(),
            usage,
            errors: std::mem::take(&mut head.errors),
        });
        let mut effects = if is_last {
            let reason = done.map_or_else(|| self.plan_end(), StopReason::Done);
            self.end(reason, at)
        } else {
            head.phase += 1;
            head.iteration = 0;
            head.attempt = 0;
            head.first_attempt = head.highest_attempt + 1;
            head.feedback = None;
            head.prompted = false;
            head.checked = false;
            head.streaks = Default::default();
            head.waits = Default::default();
            head.step = Step::Sleeping { until: at };
            let next = match head.stopping {
                Some(request) => self.stop_here(request, true, at),
                // The sleep of the next phase begins later, so the checkpoint contains only the boundary.
                None => self.hold_up(true, at).unwrap_or(vec![Effect::Save]),
            };
            let phase = name.clone();
            once_saved(Notice::PhaseEnded { name: phase, usage }, next)
        };
        effects[0] = Effect::SealPhase { phase: name };
        match news {
            Some(news) => once_saved(news, effects),
            None => effects,
        }
    }

    /// Pauses or asks for a review where an iteration is complete, if the rules or a person require it.
    pub(super) fn hold_up(&mut self, phase_over: bool, at: Timestamp) -> Option<Effects> {
        let head = &mut self.head;
        let due = match head.rules.autonomy {
            Autonomy::Checkpoint => phase_over.then_some(Occasion::Phase),
            Autonomy::Batch(size) => (head.unreviewed >= size).then_some(Occasion::Batch),
            Autonomy::Full => None,
        };
        if due.is_some() {
            head.unreviewed = 0;
        }
        match due.filter(|_| head.attended) {
            Some(of) => {
                head.pausing = false;
                head.step = Step::Review { since: at, of };
                Some(vec![Effect::Save, Effect::Announce(Notice::Review(of))])
            }
            None => head.pausing.then(|| self.pause(at)),
        }
    }

    /// Stops the run where an iteration is complete. If a review is due there, the process that resumes the run asks for it.
    pub(super) fn stop_here(
        &mut self,
        request: StopRequest,
        phase_over: bool,
        at: Timestamp,
    ) -> Effects {
        let _asked_later = self.hold_up(phase_over, at);
        self.end(StopReason::Stopped(request.by), at)
    }

    /// Begins the next iteration or phase, unless a limit forbids it.
    pub(super) fn proceed(&mut self, at: Timestamp) -> Effects {
        let is_over = self.head.finished.len() > self.head.phase as usize;
        if self.is_plan_made() && !(self.is_last_phase() && is_over) {
            return self.phase_over(None, None, at);
        }
        match self.limit(at) {
            Some(reason) => self.end(reason, at),
            None => self.begin_iteration(self.head.iteration + 1, at),
        }
    }

    /// Continues a run that was waiting for a review, in another process.
    pub(super) fn review_again(&mut self, of: Occasion, at: Timestamp) -> Effects {
        if !self.head.attended || self.head.rules.autonomy == Autonomy::Full {
            return self.proceed(at);
        }
        match self.limit(at) {
            // A review would have no effect: the plan is shorter now, or a limit was reached.
            Some(_) => self.proceed(at),
            None => vec![Effect::Save, Effect::Announce(Notice::Review(of))],
        }
    }

    pub(super) fn attended(&mut self, attended: bool, step: &Step, at: Timestamp) -> Effects {
        self.head.attended = attended;
        match step {
            Step::Review { .. } if !attended => self.proceed(at),
            _ => Effects::new(),
        }
    }

    pub(super) fn reviewed(&mut self, verdict: Verdict, step: &Step, at: Timestamp) -> Effects {
        if !matches!(step, Step::Review { .. }) {
            return Effects::new();
        }
        let news = Notice::Reviewed(verdict.clone());
        let effects = match verdict {
            Verdict::Continue => self.proceed(at),
            Verdict::Exit => self.end(StopReason::Stopped(StopCause::Person), at),
            Verdict::StartOver => self.phase_again(self.is_at_boundary(), at),
            Verdict::Revise(text) => {
                let Some(id) = self.record_steer(text, at) else {
                    return Effects::new();
                };
                let effects = self.revise(at);
                once_saved(recorded(id), effects)
            }
        };
        once_saved(news, effects)
    }

    /// Continues with a person's feedback: at a boundary the finished phase runs again, otherwise the next iteration gets it.
    pub(super) fn revise(&mut self, at: Timestamp) -> Effects {
        match self.is_at_boundary() {
            true => self.phase_again(true, at),
            false => self.proceed(at),
        }
    }

    /// Returns whether the current phase has not begun, so that a review is about the phase before it.
    fn is_at_boundary(&self) -> bool {
        self.head.iteration == 0
    }

    /// Runs a phase again from its first iteration; at a boundary this is the previous phase.
    pub(super) fn phase_again(&mut self, is_boundary: bool, at: Timestamp) -> Effects {
        let head = &mut self.head;
        if is_boundary {
            head.phase = head.phase.saturating_sub(1);
            head.finished.truncate(head.phase as usize);
        }
        self.go_back_to(1);
        self.begin_attempt(at)
    }
}

impl Head {
    /// Reopens the current phase if it was finished: its result and its failures belong to it again.
    pub(super) fn reopen_phase(&mut self) {
        let own = (self.phase as usize).min(self.finished.len());
        let Some(own) = self.finished.drain(own..).next() else {
            return;
        };
        self.errors.splice(..0, own.errors);
        let surplus = self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.drain(..surplus);
        self.said = self.said.take().or(own.result);
    }
}
