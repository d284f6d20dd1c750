//! What a completed turn comes to.

use agent_duplex::{Completion, EndReason, TurnEnd};
use loop_state::{AttemptEffect, AttemptInput, Happening, TurnEndKind, TurnOutcome};

use crate::control::Wishes;
use crate::runner::Runner;
use crate::runner::halt::{describe, timestamp};

impl Runner {
    pub(super) async fn completed(
        &mut self,
        completion: Completion,
        wishes: &mut Wishes,
    ) -> Vec<Happening> {
        let end = completion.end;
        let input = AttemptInput::TurnEnded {
            how: match end.reason {
                EndReason::Completed => TurnEndKind::Completed,
                EndReason::Interrupted => TurnEndKind::Interrupted,
                EndReason::Died => TurnEndKind::Died,
                _ => TurnEndKind::Failed,
            },
            outcome: self.outcome_of(&end),
            pending: completion.pending > 0,
            exited: end.exit.is_some(),
        };
        let moment = self.moment();
        let Some(attempt) = &mut self.agent_io.attempt else {
            return Vec::new();
        };
        let mut happenings = Vec::new();
        for effect in attempt.machine.step(moment, input) {
            if let AttemptEffect::TurnOver { suspicious, .. } = effect {
                happenings.extend(self.turn_over(suspicious, &end, wishes).await);
            }
            happenings.extend(self.carry_out(effect));
        }
        self.note_busy();
        self.refresh_view();
        happenings
    }

    async fn turn_over(
        &mut self,
        suspicious: bool,
        end: &TurnEnd,
        wishes: &mut Wishes,
    ) -> Vec<Happening> {
        let idled = suspicious && self.did_nothing(wishes).await;
        let idled = idled.then_some(Happening::NothingDone);
        idled.into_iter().chain(self.said(end)).collect()
    }

    /// Returns whether a completed turn without a call of a tool left no trace.
    async fn did_nothing(&mut self, wishes: &mut Wishes) -> bool {
        let before = self.agent_io.attempt.as_ref().and_then(|it| it.footprint);
        self.footprint(wishes).await == before && !wishes.is_end_wanted()
    }

    /// Returns what a turn comes to if nobody had requested anything.
    fn outcome_of(&mut self, end: &TurnEnd) -> TurnOutcome {
        let now = self.clock.now();
        let promise = self.phase().promise.as_ref();
        let attempt = self.agent_io.attempt.as_ref();
        let claimed = attempt.is_some_and(|attempt| {
            promise.is_some_and(|promise| attempt.machine.has_claimed(promise))
        });
        let limited_until = attempt.and_then(|attempt| attempt.heard.limited_until);
        match end.reason {
            EndReason::Completed if claimed => TurnOutcome::Claimed,
            EndReason::Completed => TurnOutcome::Completed,
            EndReason::NotLoggedIn => TurnOutcome::Hopeless(describe(end)),
            EndReason::SessionNotFound => TurnOutcome::SessionLost,
            EndReason::RateLimited => TurnOutcome::RateLimited {
                reset: { limited_until.and_then(timestamp) }
                    .or_else(|| loop_state::limit::named(&end.detail).map(|time| now + time)),
                why: describe(end),
            },
            EndReason::ServiceFailed => self.outage(end),
            EndReason::ProtocolError => TurnOutcome::Transient(describe(end)),
            _ => TurnOutcome::Failed(describe(end)),
        }
    }

    /// Returns what becomes of a turn whose service failed. A service that has answered this run before is waited for as for the end of a limit, so
    /// that a run continues overnight. A service that never answered may be a mistake in the settings, which a person wants to know soon.
    fn outage(&self, end: &TurnEnd) -> TurnOutcome {
        let (head, why) = (self.machine.head(), describe(end));
        let works = head.usage.tokens() > 0 || head.counts.iterations > head.counts.failed;
        match works && !head.rules.wait_on_limit.is_zero() {
            true => TurnOutcome::RateLimited { reset: None, why },
            false => TurnOutcome::Transient(why),
        }
    }

    /// Returns what a completed turn came to, where there is a phase that will be told.
    fn said(&mut self, end: &TurnEnd) -> Option<Happening> {
        let head = self.machine.head();
        let is_last = head.phase as usize + 1 >= head.rules.phases.len();
        let said = self.agent_io.attempt.as_mut()?.machine.take_result();
        let is_told = !is_last && end.reason == EndReason::Completed;
        said.filter(|_| is_told).map(Happening::Said)
    }
}
