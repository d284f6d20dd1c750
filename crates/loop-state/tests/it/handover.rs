//! Another agent continues the work of a run.

use loop_state::{
    Brief, Effect, Event, Handover, Happening, Head, Machine, Request, Resume, Rules,
    SessionPolicy, SteerState, Timestamp, TurnOutcome, When,
};
use proptest::prelude::*;
use serde_json::json;

use crate::properties::any_history;
use crate::rules;
use crate::traces::{Trace, failed, stop};

fn one_session() -> Rules {
    rules(|rules| rules.phases[0].session = SessionPolicy::Continue)
}

fn after(agent: &str) -> Happening {
    Happening::Resumed(Resume {
        predecessor: Some(agent.into()),
        ..Resume::default()
    })
}

fn brief(effects: &[Effect]) -> &Brief {
    match effects.last() {
        Some(Effect::StartAttempt(brief)) => brief,
        _ => panic!("{effects:?}"),
    }
}

/// Returns a run that was stopped in a turn of its only session, in which the agent had read a steer.
fn stopped() -> Trace {
    let mut trace = Trace::new(one_session());
    trace.then(Happening::SessionKnown("mine".into()));
    trace.then(Happening::Prompted);
    let (text, now) = ("mind the docs".into(), false);
    trace.then(Happening::Requested(Request::Steer { text, now }));
    let state = SteerState::Seen;
    trace.then(Happening::SteerMoved { id: 1, state });
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    trace
}

/// Without another agent, the same session would continue, and the steer would not be sent again.
#[test]
fn an_agent_never_gets_the_session_of_another_one_and_is_told_all_that_was_said() {
    for other in [false, true] {
        let mut trace = stopped();
        trace.then(match other {
            true => after("claude"),
            false => Happening::Resumed(Resume::default()),
        });
        let effects = trace.then(Happening::CheckEnded(failed("no")));
        let brief = brief(&effects);
        assert_eq!(brief.session.is_none(), other);
        assert_eq!(brief.prompted, !other);
        assert_eq!(brief.steers.len(), usize::from(other));
        assert_eq!(brief.predecessor.as_deref(), other.then_some("claude"));
    }
}

#[test]
fn the_agent_before_is_named_until_a_turn_is_over_that_was_told() {
    let mut trace = stopped();
    trace.then(after("claude"));
    trace.then(Happening::CheckEnded(failed("no")));
    trace.then(Happening::SessionKnown("yours".into()));
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    let cut = brief(&effects);
    let (session, predecessor) = (cut.session.as_deref(), cut.predecessor.as_deref());
    assert_eq!((session, predecessor), (Some("yours"), Some("claude")));
    let effects = trace.iteration(failed("no"));
    assert_eq!(brief(&effects).predecessor, None);
    let told = Handover {
        from: "claude".into(),
        attempt: 1,
        told: true,
    };
    assert_eq!(trace.machine.head().handover, Some(told));
}

#[test]
fn an_agent_that_did_nothing_is_not_named() {
    let mut trace = stopped();
    trace.then(after("claude"));
    trace.then(stop(When::Now));
    trace.then(Happening::CheckEnded(failed("no")));
    trace.then(after("codex"));
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    assert_eq!(brief(&effects).predecessor.as_deref(), Some("claude"));
}

/// Each iteration numbers its attempts from 1, so these numbers don't show whether there was an attempt since.
#[test]
fn the_agent_that_is_named_is_the_last_one_that_worked() {
    let mut trace = Trace::new(one_session());
    for agent in ["claude", "codex"] {
        trace.then(stop(When::AfterIteration));
        trace.iteration(failed("no"));
        let effects = trace.then(after(agent));
        let brief = brief(&effects);
        assert_eq!(
            (brief.attempt, brief.predecessor.as_deref()),
            (1, Some(agent))
        );
    }
}

#[test]
fn a_handover_is_saved() {
    let mut trace = stopped();
    let before = serde_json::to_value(trace.machine.head()).unwrap();
    assert_eq!(before.get("handover"), None);
    trace.then(after("claude"));
    let saved = serde_json::to_value(trace.machine.head()).unwrap();
    let handover = json!({"from": "claude", "attempt": 1, "told": false});
    assert_eq!(saved["handover"], handover);
    let head: Head = serde_json::from_value(saved).unwrap();
    assert_eq!(&head, trace.machine.head());
}

proptest! {
    /// After any history and in any step, the next attempt doesn't continue the session of the previous agent.
    #[test]
    fn no_history_hands_a_session_over((rules, events) in any_history()) {
        let mut machine = Machine::new(rules).unwrap();
        let mut last = Timestamp(0);
        for event in events {
            last = event.at;
            machine.step(event);
        }
        let begun = machine.head().counts.attempts > 0;
        let effects = machine.step(Event { at: last, what: after("before") });
        let head = machine.head();
        prop_assume!(effects.iter().any(|e| !matches!(e, Effect::Announce(_))) && head.end.is_none());
        prop_assert_eq!(&head.session, &None);
        prop_assert_eq!(head.handover.is_some(), begun);
        if let Some(Effect::StartAttempt(brief)) = effects.last() {
            prop_assert_eq!((&brief.session, brief.prompted), (&None, false));
            prop_assert_eq!(brief.predecessor.is_some(), begun);
        }
    }
}
