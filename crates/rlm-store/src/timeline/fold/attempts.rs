//! The attempts of a run, and the phases that they belong to.

use loop_state::{CutCause, Event, Happening, Step, Timestamp, Usage};

use super::{Before, Fold};
use crate::Fate;
use crate::timeline::{Attempt, Phase, What};

impl Fold {
    /// Notes what became of the turn.
    pub(super) fn turn(&mut self, before: &Before, what: &Happening, at: Timestamp) {
        let head = self.machine.head();
        let was_at_work = matches!(before.step, Step::Turn { .. } | Step::Interrupted { .. });
        let Some(attempt) = self.attempts.last_mut().filter(|_| was_at_work) else {
            return;
        };
        let resumed = matches!(what, Happening::Resumed(_));
        let ended = if resumed { before.last_at } else { at };
        if head.counts.cuts > before.cuts {
            // Where somebody went back at the same time, the head says no more of it.
            let cause = head.cut.map(|cut| cut.cause).or(match before.stopping {
                _ if before.wants_again || !resumed => Some(CutCause::Restart),
                Some(_) => Some(CutCause::Stop),
                None => Some(CutCause::Crash),
            });
            attempt.fate = Fate::Cut(cause);
            attempt.turn_ended = Some(ended);
            attempt.ended = Some(ended);
        } else if matches!(what, Happening::TurnEnded(_))
            && !matches!(head.step, Step::Interrupted { .. })
        {
            attempt.turn_ended = Some(at);
            attempt.idle = head.idled;
            attempt.fate = match &head.end {
                Some(_) => Fate::Cut(Some(CutCause::Agent)),
                None => Fate::Judging,
            };
            if head.end.is_some() {
                attempt.ended = Some(at);
            }
        }
    }

    pub(super) fn used(&mut self, before: &Before) {
        let head = self.machine.head();
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.denied += head.counts.denied - before.denied.min(head.counts.denied);
            if head.usage != before.usage {
                let more = |now: u64, before: u64| now.saturating_sub(before);
                let (now, was) = (head.usage, before.usage);
                let phase = self.phases.last_mut().map(|phase| &mut phase.usage);
                for usage in [Some(&mut attempt.usage), phase].into_iter().flatten() {
                    usage.input_tokens += more(now.input_tokens, was.input_tokens);
                    usage.output_tokens += more(now.output_tokens, was.output_tokens);
                    usage.cost_microusd += more(now.cost_microusd, was.cost_microusd);
                }
            }
        }
    }

    pub(super) fn started(&mut self, continues: bool, event: &Event) {
        let head = self.machine.head();
        if let Some(last) = self.attempts.last_mut()
            && matches!(last.fate, Fate::Open | Fate::Judging)
        {
            // It was neither cut nor completed: its session was lost, or it was judged no further.
            let again = matches!(event.what, Happening::Settled(_));
            last.fate = Fate::Cut(again.then_some(CutCause::Restart));
            last.ended = Some(event.at);
        }
        let knows_all_attempts = !matches!(&event.what, Happening::Resumed(resume) if resume.used_attempts.is_some() && resume.from.is_none());
        let present = (head.phase, head.iteration);
        let first_attempt = head.first_attempt;
        let mut discarded = 0;
        while let Some(index) = self.counting.last() {
            let other = &mut self.attempts[*index];
            let place = (other.phase, other.iteration);
            let is_complete = matches!(other.fate, Fate::Complete | Fate::Failed(_));
            let is_old = knows_all_attempts && other.attempt < first_attempt;
            if place < present || (place == present && !is_complete && !is_old) {
                break;
            }
            other.discarded = true;
            discarded += 1;
            self.counting.pop();
        }
        if discarded > 0 {
            let (phase, from) = present;
            let what = What::Discarded {
                phase,
                from,
                attempts: discarded,
            };
            self.moment(event.at, what);
        }
        self.attempt(event.at, continues);
    }

    /// Begins an attempt, and its phase if it is the first one there.
    pub(super) fn attempt(&mut self, at: Timestamp, continues: bool) {
        let head = self.machine.head();
        let is_there = |phase: &Phase| phase.index == head.phase && phase.ended.is_none();
        if !self.phases.last().is_some_and(is_there) {
            let again = self.phases.iter_mut().filter(|it| it.index >= head.phase);
            again.for_each(|phase| phase.discarded = true);
            self.phases.push(Phase {
                index: head.phase,
                name: head.phase_rules().name.clone(),
                began: at,
                ended: None,
                iterations: 0,
                evidence: None,
                result: None,
                usage: Usage::default(),
                discarded: false,
            });
        }
        self.counting.push(self.attempts.len());
        self.attempts.push(Attempt {
            phase: head.phase,
            iteration: head.iteration,
            attempt: head.attempt,
            process: head.counts.processes,
            began: at,
            turn_ended: None,
            ended: None,
            fate: Fate::Open,
            discarded: false,
            continues,
            usage: Usage::default(),
            denied: 0,
            idle: false,
            leftovers: 0,
            survivors: 0,
            commands: Vec::new(),
            commit: None,
        });
    }

    pub(super) fn phase_over(&mut self) {
        let finished = self.machine.head().finished.last();
        if let (Some(phase), Some(finished)) = (self.phases.last_mut(), finished) {
            phase.ended = Some(finished.at);
            phase.iterations = finished.iterations;
            phase.evidence = finished.evidence;
            phase.result.clone_from(&finished.result);
        }
    }
}
