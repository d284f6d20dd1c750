//! The outcome of a turn, derived from the agent's report: some ends need a person, some a retry later, and the others count as failures.

use crate::{Head, Timestamp, TurnOutcome, limit};

/// How a turn ended, by the agent's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentTurnEnd {
    /// The agent finished the turn.
    Completed,
    /// The agent ended the turn after an interrupt.
    Interrupted,
    /// The agent's process exited without reporting the end of its turn.
    Died,
    /// The agent reported a failure without a more specific kind.
    Failed,
    /// The agent's service rejected the login.
    NotLoggedIn,
    /// The session to continue does not exist.
    SessionNotFound,
    /// The agent's service refused because of a rate limit.
    RateLimited,
    /// The agent's service failed, or something else that another try may find repaired.
    ServiceFailed,
    /// The driver can't read what the agent sent.
    ProtocolError,
}

/// The agent's report about the end of its turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TurnReport {
    /// How the turn ended.
    pub(crate) how: AgentTurnEnd,
    /// The text of the agent or its service; a refusal may contain the end of a limit.
    pub(crate) detail: String,
    /// The failure, as text for a person.
    pub(crate) why: String,
    /// Whether the agent made the promise.
    pub(crate) promised: bool,
    /// When the last reported rate limit ends, if known.
    pub(crate) limited_until: Option<Timestamp>,
}

/// Returns the outcome of a turn that no request ended.
///
/// The run waits for a failing service as for the end of a rate limit, so that it continues overnight. If the service never answered in this run, the
/// settings are probably wrong and a person should find out soon, so the run doesn't wait.
pub(crate) fn turn_outcome(report: TurnReport, at: Timestamp, head: &Head) -> TurnOutcome {
    let TurnReport { how, why, .. } = report;
    match how {
        AgentTurnEnd::Completed if report.promised => TurnOutcome::PromiseMade,
        AgentTurnEnd::Completed => TurnOutcome::Completed,
        AgentTurnEnd::NotLoggedIn => TurnOutcome::AgentUnusable(why),
        AgentTurnEnd::SessionNotFound => TurnOutcome::SessionLost,
        AgentTurnEnd::RateLimited => {
            let named = || limit::retry_delay(&report.detail).map(|time| at + time);
            let reset = report.limited_until.or_else(named);
            TurnOutcome::ServiceUnavailable { reset, why }
        }
        AgentTurnEnd::ServiceFailed if waits_for_service(head) => {
            TurnOutcome::ServiceUnavailable { reset: None, why }
        }
        AgentTurnEnd::ServiceFailed | AgentTurnEnd::ProtocolError => TurnOutcome::Transient(why),
        AgentTurnEnd::Interrupted | AgentTurnEnd::Died | AgentTurnEnd::Failed => {
            TurnOutcome::Failed(why)
        }
    }
}

/// Returns whether the run waits for a failing service: the service has answered before, and the run may wait at all.
fn waits_for_service(head: &Head) -> bool {
    let works = head.usage.tokens() > 0 || head.counts.iterations > head.counts.failed;
    works && !head.rules.limits.wait_on_limit.is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PhaseRules, Rules, RunLimits, UsageTotal};
    use proptest::prelude::*;
    use std::time::Duration;

    const KINDS: [AgentTurnEnd; 9] = [
        AgentTurnEnd::Completed,
        AgentTurnEnd::Interrupted,
        AgentTurnEnd::Died,
        AgentTurnEnd::Failed,
        AgentTurnEnd::NotLoggedIn,
        AgentTurnEnd::SessionNotFound,
        AgentTurnEnd::RateLimited,
        AgentTurnEnd::ServiceFailed,
        AgentTurnEnd::ProtocolError,
    ];
    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn head(tokens: u64, iterations: u32, failed: u32, wait: u64) -> Head {
        let phase = PhaseRules {
            has_check: true,
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: vec![phase],
            limits: RunLimits {
                wait_on_limit: Duration::from_secs(wait),
                ..RunLimits::default()
            },
            ..Rules::default()
        };
        let mut head = Head::new(rules).expect("the rules are valid");
        head.usage.add(UsageTotal {
            input_tokens: tokens,
            ..UsageTotal::default()
        });
        (head.counts.iterations, head.counts.failed) = (iterations, failed);
        head
    }

    fn report(how: AgentTurnEnd) -> TurnReport {
        TurnReport {
            how,
            detail: String::new(),
            why: "why".into(),
            promised: false,
            limited_until: None,
        }
    }

    #[test]
    fn each_end_of_a_turn_has_its_outcome() {
        let why = || "why".to_owned();
        let head = head(0, 0, 0, 60);
        for (how, outcome) in KINDS.into_iter().zip([
            TurnOutcome::Completed,
            TurnOutcome::Failed(why()),
            TurnOutcome::Failed(why()),
            TurnOutcome::Failed(why()),
            TurnOutcome::AgentUnusable(why()),
            TurnOutcome::SessionLost,
            TurnOutcome::ServiceUnavailable {
                reset: None,
                why: why(),
            },
            TurnOutcome::Transient(why()),
            TurnOutcome::Transient(why()),
        ]) {
            assert_eq!(turn_outcome(report(how), AT, &head), outcome, "{how:?}");
        }
    }

    #[test]
    fn x107a_rate_limit_end_comes_from_agent_or_service() {
        let head = head(0, 0, 0, 60);
        for (limited_until, detail, expected) in [
            (
                Some(Timestamp::from_millis(9)),
                "retry in 2s",
                Some(Timestamp::from_millis(9)),
            ),
            (None, "retry in 2s", Some(Timestamp::from_millis(3_000))),
            (None, "later", None),
        ] {
            let report = TurnReport {
                detail: detail.into(),
                limited_until,
                ..report(AgentTurnEnd::RateLimited)
            };
            let TurnOutcome::ServiceUnavailable { reset, .. } = turn_outcome(report, AT, &head)
            else {
                panic!("the run doesn't wait for the limit");
            };
            assert_eq!(reset, expected, "{detail}");
        }
    }

    #[test]
    fn outage_is_awaited_if_the_service_answered_before_and_waits_are_allowed() {
        for (tokens, iterations, failed, wait, waits) in [
            (0, 0, 0, 60, false),
            (1, 0, 0, 60, true),
            (0, 2, 1, 60, true),
            (0, 2, 2, 60, false),
            (1, 2, 1, 0, false),
        ] {
            let head = head(tokens, iterations, failed, wait);
            let outcome = turn_outcome(report(AgentTurnEnd::ServiceFailed), AT, &head);
            let is_limit = matches!(outcome, TurnOutcome::ServiceUnavailable { reset: None, .. });
            assert_eq!(is_limit, waits, "{tokens} {iterations} {failed} {wait}");
        }
    }

    proptest! {
        #[test]
        fn only_completed_turns_are_good_and_only_promises_claim_completion(
            kind in 0..KINDS.len(),
            detail in "\\PC{0,40}",
            promised: bool,
            until in prop::option::of(0..1_000_000_u64),
            tokens in 0..2_u64,
            counts in (0..3_u32, 0..3_u32),
            wait in 0..2_u64,
        ) {
            let how = KINDS[kind];
            let limited_until = until.map(Timestamp::from_millis);
            let report = TurnReport { how, detail, why: "why".into(), promised, limited_until };
            let outcome = turn_outcome(report, AT, &head(tokens, counts.0, counts.1, wait));
            let is_good = matches!(outcome, TurnOutcome::Completed | TurnOutcome::PromiseMade);
            prop_assert_eq!(is_good, how == AgentTurnEnd::Completed);
            prop_assert_eq!(outcome == TurnOutcome::PromiseMade, is_good && promised);
            let waits = matches!(outcome, TurnOutcome::ServiceUnavailable { .. });
            prop_assert!(!waits || matches!(how, AgentTurnEnd::RateLimited | AgentTurnEnd::ServiceFailed));
            let needs_person = matches!(outcome, TurnOutcome::AgentUnusable(_));
            prop_assert_eq!(needs_person, how == AgentTurnEnd::NotLoggedIn);
            // Only a stop, a person or a start can cause these outcomes, never a report.
            let is_caused = matches!(
                outcome,
                TurnOutcome::Stopped | TurnOutcome::Interrupted | TurnOutcome::SessionInUse(_) | TurnOutcome::NotStarted(_)
            );
            prop_assert!(!is_caused);
        }
    }
}
