//! Another agent continues the work of a run.

use loop_state::{
    Effect, Head, Machine, MachineInput, PromptContext, Request, ResumeOptions, Rules,
    SessionPolicy, SteerState, StopTiming, TimedInput, Timestamp, TurnOutcome,
};
use proptest::prelude::*;
use serde_json::json;

use crate::properties::any_history;
use crate::rules;
use crate::traces::{Trace, failed, stop};

fn one_session() -> Rules {
    rules(|rules| rules.phases[0].session = SessionPolicy::Continue)
}

fn after(agent: &str) -> MachineInput {
    MachineInput::Resumed(ResumeOptions {
        previous_agent: Some(agent.into()),
        ..ResumeOptions::default()
    })
}

fn brief(effects: &[Effect]) -> &PromptContext {
    match effects.last() {
        Some(Effect::StartAttempt(brief)) => brief,
        _ => panic!("{effects:?}"),
    }
}

/// Returns a run that was stopped in a turn of its only session, in which the agent had read a steer.
fn stopped() -> Trace {
    let mut trace = Trace::new(one_session());
    trace.then(MachineInput::SessionKnown("mine".into()));
    trace.then(MachineInput::PromptReceived);
    let (text, now) = ("mind the docs".into(), false);
    trace.then(MachineInput::Requested(Request::Steer { text, now }));
    let state = SteerState::Seen;
    trace.then(MachineInput::SteerAdvanced { id: 1, state });
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    trace
}

/// Without another agent, the same session would continue, and the steer would not be sent again.
#[test]
fn other_agent_gets_all_steers_and_never_the_old_session() {
    for other in [false, true] {
        let mut trace = stopped();
        trace.then(match other {
            true => after("claude"),
            false => MachineInput::Resumed(ResumeOptions::default()),
        });
        let effects = trace.then(MachineInput::CheckEnded(failed("no")));
        let brief = brief(&effects);
        assert_eq!(brief.session.is_none(), other);
        assert_eq!(brief.has_prompt, !other);
        assert_eq!(brief.steers.len(), usize::from(other));
        assert_eq!(brief.previous_agent.as_deref(), other.then_some("claude"));
    }
}

#[test]
fn previous_agent_is_named_until_a_turn_with_that_notice_ends() {
    let mut trace = stopped();
    trace.then(after("claude"));
    trace.then(MachineInput::CheckEnded(failed("no")));
    trace.then(MachineInput::SessionKnown("yours".into()));
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    let cut = brief(&effects);
    let (session, predecessor) = (cut.session.as_deref(), cut.previous_agent.as_deref());
    assert_eq!((session, predecessor), (Some("yours"), Some("claude")));
    let effects = trace.iteration(failed("no"));
    assert_eq!(brief(&effects).previous_agent, None);
    let told = trace.machine.head().handover.as_ref().unwrap();
    assert_eq!(
        (told.from.as_str(), told.attempt, told.reported),
        ("claude", 1, true)
    );
}

#[test]
fn agent_without_work_is_not_named() {
    let mut trace = stopped();
    trace.then(after("claude"));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::CheckEnded(failed("no")));
    trace.then(after("codex"));
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    assert_eq!(brief(&effects).previous_agent.as_deref(), Some("claude"));
}

/// Each iteration numbers its attempts from 1, so the number of an attempt doesn't show whether another attempt came later.
#[test]
fn prompt_names_the_last_agent_that_worked() {
    let mut trace = Trace::new(one_session());
    for agent in ["claude", "codex"] {
        trace.then(stop(StopTiming::AfterIteration));
        trace.iteration(failed("no"));
        let effects = trace.then(after(agent));
        let brief = brief(&effects);
        assert_eq!(
            (brief.attempt, brief.previous_agent.as_deref()),
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
    let handover = json!({"from": "claude", "attempt": 1, "reported": false});
    assert_eq!(saved["handover"], handover);
    let head: Head = serde_json::from_value(saved).unwrap();
    assert_eq!(&head, trace.machine.head());
}

proptest! {
    /// After any history and in any step, the next attempt doesn't continue the session of the previous agent.
    #[test]
    fn no_history_passes_a_session_to_another_agent((rules, events) in any_history()) {
        let mut machine = Machine::new(rules).unwrap();
        let mut last = Timestamp::from_millis(0);
        for event in events {
            last = event.at;
            machine.step(event);
        }
        let begun = machine.head().counts.attempts > 0;
        let effects = machine.step(TimedInput { at: last, what: after("before") });
        let head = machine.head();
        prop_assume!(effects.iter().any(|e| !matches!(e, Effect::Emit(_))) && head.end.is_none());
        if let Some(id) = &head.session {
            // The next attempt has chosen an id of its own.
            prop_assert_eq!(id, &format!("{}-{}", head.iteration, head.attempt));
        }
        prop_assert_eq!(head.handover.is_some(), begun);
        if let Some(Effect::StartAttempt(brief)) = effects.last() {
            prop_assert_eq!((&brief.session, brief.has_prompt), (&None, false));
            prop_assert_eq!(brief.previous_agent.is_some(), begun);
        }
    }
}
