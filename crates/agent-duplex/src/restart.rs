//! The automatic restarts of an agent: a pure state machine that gets the time as a parameter.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::stop::FOREVER;
use crate::{EndReason, Error, ExitStatus, LostSession, RestartPolicy, TurnEnd};

#[derive(Debug, Default)]
pub(crate) struct RestartState {
    policy: Option<RestartPolicy>,
    /// The number of failed starts in a row.
    failed: u32,
    not_before: Option<Instant>,
    /// Whether nothing starts until there is another input.
    waits_for_input: bool,
    /// The result of the latest start.
    outcome: StartOutcome,
    /// The text of the last failure.
    last: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StartOutcome {
    /// No turn was completed.
    NoTurn,
    /// A turn was completed, or the missing turn does not count as a failure.
    #[default]
    Turn,
    /// Another try is useless; this does not count as a failed start.
    NotRetryable,
}

/// The next start for inputs that wait while no agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStart {
    Now,
    At(Instant),
    Never,
}

impl RestartState {
    pub(crate) fn new(policy: Option<RestartPolicy>) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Returns the next start for waiting inputs, or for a caller that requested it.
    pub(crate) fn next(&self, now: Instant, is_requested: bool) -> NextStart {
        match self.not_before {
            _ if self.refusal().is_some() => NextStart::Never,
            _ if !is_requested && (self.policy.is_none() || self.waits_for_input) => {
                NextStart::Never
            }
            Some(at) if at > now => NextStart::At(at),
            _ => NextStart::Now,
        }
    }

    /// Returns the reason why inputs are refused, if they are.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let most = self.policy?.max_starts.max(1);
        (self.failed >= most).then(|| Error::crash_loop(self.failed, self.last()))
    }

    fn last(&self) -> &str {
        match self.last.as_str() {
            "" => "it ended before a turn began",
            last => last,
        }
    }

    pub(crate) fn lost_session(&self) -> LostSession {
        self.policy
            .map_or_else(LostSession::default, |policy| policy.lost_session)
    }

    /// Records a new input.
    pub(crate) fn input_arrived(&mut self) {
        self.waits_for_input = false;
    }

    /// Records that a caller closes the agent: its end is no failure, and no agent starts for the waiting inputs.
    pub(crate) fn wait_for_input(&mut self) {
        self.waits_for_input = true;
        self.outcome = StartOutcome::Turn;
    }

    /// Forgets all failures, because a caller requests an agent.
    pub(crate) fn reset(&mut self) {
        self.failed = 0;
        self.not_before = None;
    }

    /// Records the start of an agent.
    pub(crate) fn started(&mut self) {
        self.waits_for_input = false;
        self.last.clear();
        self.outcome = StartOutcome::NoTurn;
    }

    /// Records how the agent ended, or why it could not be started.
    pub(crate) fn failed(&mut self, how: impl fmt::Display) {
        self.last = how.to_string();
    }

    /// Records the exit status of the agent's process, which is only used if no other reason is known.
    pub(crate) fn exited(&mut self, status: ExitStatus) {
        if self.last.is_empty() {
            self.failed(status);
        }
    }

    /// Records the end of a turn.
    pub(crate) fn turn(&mut self, end: &TurnEnd) {
        use EndReason::{
            BudgetExhausted, Completed, ContextOverflow, Interrupted, MaxTokens, MaxTurns,
            NotLoggedIn, Refused, SessionNotFound,
        };
        self.failed(end);
        match end.reason {
            Completed | Interrupted | MaxTokens | MaxTurns | BudgetExhausted | Refused
            | ContextOverflow => {
                self.outcome = StartOutcome::Turn;
                self.reset();
            }
            NotLoggedIn => self.outcome = StartOutcome::NotRetryable,
            SessionNotFound if self.lost_session() == LostSession::Fail => {
                self.outcome = StartOutcome::NotRetryable;
            }
            _ => {}
        }
    }

    /// Records that the agent is gone or could not be started. Returns whether inputs are refused from now on.
    pub(crate) fn ended(&mut self, now: Instant) -> bool {
        let outcome = std::mem::take(&mut self.outcome);
        self.waits_for_input |= outcome == StartOutcome::NotRetryable;
        let (StartOutcome::NoTurn, Some(policy)) = (outcome, self.policy) else {
            return false;
        };
        self.failed = self.failed.saturating_add(1);
        self.not_before = now.checked_add(pause(policy, self.failed - 1));
        self.refusal().is_some()
    }
}

fn pause(policy: RestartPolicy, doubled: u32) -> Duration {
    let factor = 2_u32.saturating_pow(doubled);
    policy
        .first_wait
        .saturating_mul(factor)
        .min(policy.max_wait)
        .min(FOREVER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(most: u32) -> RestartPolicy {
        RestartPolicy {
            max_starts: most,
            ..RestartPolicy::default()
        }
    }

    #[test]
    fn p44b_p44c_pauses_double_until_inputs_are_refused() {
        let mut now = Instant::now();
        let mut starts = RestartState::new(Some(policy(9)));
        let mut pauses = Vec::new();
        for nth in 1..=9 {
            assert_eq!(starts.next(now, false), NextStart::Now);
            starts.started();
            assert_eq!(starts.ended(now), nth == 9);
            if let NextStart::At(at) = starts.next(now, true) {
                pauses.push((at - now).as_secs());
                now = at;
            }
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(starts.next(now, true), NextStart::Never);
        let refusal = starts.refusal().expect("the machine gave up");
        assert!(refusal.is_crash_loop() && refusal.to_string().contains("9 times in a row"));
        starts.reset();
        assert_eq!(starts.next(now, false), NextStart::Now);
    }

    proptest! {
        #[test]
        fn p44c_starts_in_a_row_stay_within_the_policy(
            most in 1u32..6,
            reasons in proptest::collection::vec(0usize..6, 0..60),
        ) {
            use EndReason::{Completed, Died, NotLoggedIn, RateLimited, SessionNotFound};
            let of = [None, Some(Completed), Some(Died), Some(NotLoggedIn), Some(RateLimited), Some(SessionNotFound)];
            let mut now = Instant::now();
            let mut starts = RestartState::new(Some(policy(most)));
            let mut row = 0;
            for reason in reasons {
                starts.input_arrived();
                match starts.next(now, false) {
                    NextStart::Now => {}
                    NextStart::At(at) => now = at,
                    NextStart::Never => {
                        prop_assert_eq!(row, most);
                        return Ok(());
                    }
                }
                starts.started();
                let reason = of[reason];
                reason.into_iter().for_each(|reason| starts.turn(&reason.into()));
                starts.ended(now);
                match reason {
                    Some(Completed) => row = 0,
                    Some(NotLoggedIn | SessionNotFound) => {
                        prop_assert_eq!(starts.next(now, false), NextStart::Never);
                    }
                    _ => row += 1,
                }
                prop_assert!(row <= most);
            }
        }
    }
}
