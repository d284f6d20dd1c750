//! Agents whose sessions continue after a crash without a repeated effect: the session belongs to the iteration.

use loop_state::{
    Effect, ForkedSession, Head, IterationStep, Lineage, MachineInput, RedoScope, Request,
    ResumeOptions, RunUpdate, SessionPolicy, StopTiming, TurnOutcome,
};

use crate::person::{started, steer};
use crate::rules;
use crate::traces::{Trace, failed, stop};

fn durable(session: SessionPolicy) -> Trace {
    Trace::new(rules(|rules| {
        rules.phases[0].durable_session = true;
        rules.phases[0].session = session;
    }))
}

/// Returns the session to continue, and the id for a new one.
fn sessions(effects: &[Effect]) -> (Option<&str>, Option<&str>) {
    let brief = started(effects);
    (brief.session.as_deref(), brief.new_session.as_deref())
}

#[test]
fn a6_session_of_an_iteration_continues_after_a_crash() {
    let mut trace = durable(SessionPolicy::Fresh);
    // The id is in the save before the start.
    assert_eq!(trace.machine.head().session.as_deref(), Some("1-1"));
    trace.then(MachineInput::SessionKnown("1-1".into()));
    trace.then(MachineInput::PromptReceived);
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(sessions(&effects), (Some("1-1"), None));
    assert!(started(&effects).has_prompt);
    // The next iteration gets a new one.
    let effects = trace.iteration(failed("red"));
    assert_eq!(sessions(&effects), (None, Some("2-1")));
    assert_eq!(trace.machine.head().session.as_deref(), Some("2-1"));
}

/// Resumes the run after a crash; its session is on disk up to this position.
fn resume_at(trace: &mut Trace, position: u64) {
    let resumed = ResumeOptions {
        session_position: Some(position),
        ..ResumeOptions::default()
    };
    *trace = Trace::resumed(trace.machine.head().clone(), resumed);
}

#[test]
fn a6_session_without_a_message_is_not_used_again() {
    let mut trace = durable(SessionPolicy::Continue);
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(sessions(&effects), (None, Some("1-2")));
    assert!(!started(&effects).has_prompt);
}

#[test]
fn session_that_an_agent_could_not_create_is_not_continued() {
    for outcome in [TurnOutcome::NotStarted, TurnOutcome::SessionInUse] {
        let mut trace = durable(SessionPolicy::Continue);
        trace.then(MachineInput::TurnEnded(outcome("it exists".into())));
        assert_eq!(trace.machine.head().session, None);
        let resumed = ResumeOptions::default();
        let trace = Trace::resumed(trace.machine.head().clone(), resumed);
        assert_eq!(trace.machine.head().session.as_deref(), Some("1-2"));

        // A session that continues is still the session of the run.
        let mut trace = durable(SessionPolicy::Continue);
        trace.then(MachineInput::PromptReceived);
        trace.crash_and_resume();
        trace.then(MachineInput::CheckEnded(failed("red")));
        trace.then(MachineInput::TurnEnded(outcome("no memory".into())));
        assert_eq!(trace.machine.head().session.as_deref(), Some("1-1"));
    }
}

#[test]
fn a6_session_that_worked_and_was_interrupted_is_not_dropped() {
    for is_durable in [true, false] {
        for outcome in [TurnOutcome::NotStarted, TurnOutcome::SessionInUse] {
            let mut trace = Trace::new(rules(|rules| {
                rules.phases[0].durable_session = is_durable;
                rules.phases[0].session = SessionPolicy::Continue;
            }));
            trace.then(MachineInput::SessionKnown("1-1".into()));
            trace.then(MachineInput::PromptReceived);
            trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
            trace.then(MachineInput::Requested(Request::Continue));
            trace.then(MachineInput::TurnEnded(outcome("no memory".into())));
            assert_eq!(trace.machine.head().session.as_deref(), Some("1-1"));
            let resumed = ResumeOptions::default();
            let trace = Trace::resumed(trace.machine.head().clone(), resumed);
            let head = trace.machine.head();
            assert_eq!(head.session.as_deref(), Some("1-1"));
            assert!(head.continues_session && head.has_prompt);
        }
    }
}

#[test]
fn a6_steer_of_an_earlier_attempt_is_not_sent_again_if_the_agent_cannot_start() {
    let mut trace = durable(SessionPolicy::Fresh);
    trace.then(steer("mind the docs", false));
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(failed("red")));
    // The prompt of this attempt has the steer, and its session is on disk.
    resume_at(&mut trace, 1);
    trace.then(steer("and the tests", false));
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    let ids = |effects: &[Effect]| -> Vec<u32> {
        let steers = started(effects).steers.iter();
        steers.map(|steer| steer.id).collect()
    };
    assert_eq!(ids(&effects), [2]);
    trace.then(MachineInput::TurnEnded(TurnOutcome::NotStarted(
        "no memory".into(),
    )));
    resume_at(&mut trace, 1);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(ids(&effects), [2]);
}

#[test]
fn a6_message_that_the_session_has_is_not_sent_again() {
    let mut trace = durable(SessionPolicy::Continue);
    trace.then(steer("mind the docs", false));
    trace.then(MachineInput::PromptReceived);
    trace.then(MachineInput::SessionSaved { position: 5 });
    let effects = trace.iteration(failed("red"));
    let brief = started(&effects);
    assert_eq!((brief.steers.len(), brief.has_prompt), (1, false));
    assert_eq!(brief.feedback.as_ref().unwrap().text, "red");

    let mut killed = durable(SessionPolicy::Continue);
    killed.machine = trace.machine.clone();
    resume_at(&mut killed, 6);
    killed.then(steer("and the tests", false));
    assert!(killed.machine.head().has_feedback);
    let effects = killed.then(MachineInput::CheckEnded(failed("still red")));
    let brief = started(&effects);
    assert!(brief.has_prompt, "{brief:?}");
    let steers: Vec<_> = brief.steers.iter().map(|steer| &*steer.text).collect();
    assert_eq!(steers, ["and the tests"]);
    // The check has run again, and this output is new.
    assert_eq!(brief.feedback.as_ref().unwrap().text, "still red");

    // The session ends where it ended before the attempt.
    resume_at(&mut trace, 5);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    let brief = started(&effects);
    assert_eq!(sessions(&effects), (Some("1-1"), None));
    assert_eq!((brief.steers.len(), brief.has_prompt), (1, false));
}

#[test]
fn a6_steer_that_the_session_has_without_a_confirmation_is_not_repeated() {
    let mut trace = durable(SessionPolicy::Fresh);
    trace.then(MachineInput::PromptReceived);
    trace.then(steer("mind the docs", false));
    trace.then(steer("and the tests", false));
    let resumed = ResumeOptions {
        session_position: Some(4),
        session_steers: vec![1],
        ..ResumeOptions::default()
    };
    let mut trace = Trace::resumed(trace.machine.head().clone(), resumed);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    let steers = &started(&effects).steers;
    let ids: Vec<_> = steers.iter().map(|steer| steer.id).collect();
    assert_eq!(ids, [2]);
    // A fresh session has neither.
    trace.then(MachineInput::TurnEnded(TurnOutcome::SessionLost));
    assert_eq!(trace.machine.head().prompt_steers, [1, 2]);
}

#[test]
fn output_that_the_session_has_is_not_sent_again() {
    let mut trace = durable(SessionPolicy::Continue);
    trace.iteration(failed("red"));
    trace.then(MachineInput::SessionSaved { position: 7 });
    let transient = TurnOutcome::Transient("529".into());
    trace.then(MachineInput::TurnEnded(transient.clone()));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(started(&effects).feedback, None);
    // A fresh session doesn't have it.
    trace.then(MachineInput::Requested(Request::FreshSession));
    trace.then(MachineInput::TurnEnded(transient));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(sessions(&effects), (None, Some("2-3")));
    assert_eq!(started(&effects).feedback.as_ref().unwrap().text, "red");
}

#[test]
fn a6_answer_shows_that_the_session_has_the_output_of_a_repeated_check() {
    let mut trace = durable(SessionPolicy::Continue);
    trace.iteration(failed("red"));
    trace.then(MachineInput::PromptReceived);
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("still red")));
    let brief = started(&effects);
    assert!(brief.has_prompt && brief.steers.is_empty());
    assert_eq!(brief.feedback.as_ref().unwrap().text, "still red");
    trace.then(MachineInput::PromptReceived);
    trace.then(MachineInput::TurnEnded(TurnOutcome::Transient(
        "529".into(),
    )));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(started(&effects).feedback, None);
}

#[test]
fn a6_message_is_found_in_a_session_that_became_shorter() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].durable_session = true;
        rules.phases[0].session = SessionPolicy::Continue;
        rules.limits.max_failures = 0;
    }));
    trace.then(MachineInput::SessionSaved { position: 9 });
    trace.iteration(failed("red"));
    // A restored copy of the session is shorter.
    resume_at(&mut trace, 4);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert!(!started(&effects).has_prompt);
    // It can't be read, which says nothing about its position.
    resume_at(&mut trace, 0);
    trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(trace.machine.head().session_position, Some(4));
    resume_at(&mut trace, 5);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert!(started(&effects).has_prompt);
}

#[test]
fn a6_steer_of_an_earlier_iteration_is_not_sent_again_after_a_stop_before_the_answer() {
    let mut trace = durable(SessionPolicy::Continue);
    trace.then(steer("mind the docs", false));
    trace.then(MachineInput::SteerAdvanced {
        id: 1,
        state: loop_state::SteerState::Seen,
    });
    trace.then(MachineInput::PromptReceived);
    trace.then(MachineInput::SessionSaved { position: 3 });
    let transient = TurnOutcome::Transient("529".into());
    trace.then(MachineInput::TurnEnded(transient));
    trace.then(MachineInput::Requested(Request::Skip));
    // The iteration fails, and no turn of it is over.
    let not_started = TurnOutcome::NotStarted("no memory".into());
    trace.then(MachineInput::TurnEnded(not_started));
    trace.then(MachineInput::CheckEnded(failed("red")));
    let effects = trace.then(MachineInput::LeftoversEnded(Default::default()));
    assert!(started(&effects).steers.is_empty());
    resume_at(&mut trace, 3);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(sessions(&effects), (Some("1-1"), None));
    assert!(started(&effects).steers.is_empty());
}

#[test]
fn unreadable_session_is_lost_and_a_fresh_one_begins() {
    let mut trace = durable(SessionPolicy::Fresh);
    resume_at(&mut trace, 0);
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    // Its agent finds out that it is lost.
    assert_eq!(sessions(&effects), (Some("1-1"), None));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::SessionLost));
    assert!(effects.contains(&Effect::Emit(RunUpdate::SessionLost)));
    assert_eq!(sessions(&effects), (None, Some("1-3")));
}

#[test]
fn no_attempt_asks_again_for_a_lost_session() {
    let mut trace = durable(SessionPolicy::Continue);
    trace.then(MachineInput::TurnEnded(TurnOutcome::SessionLost));
    trace.then(MachineInput::CheckEnded(failed("red")));
    let effects = trace.then(MachineInput::LeftoversEnded(Default::default()));
    assert_eq!(sessions(&effects), (None, Some("2-1")));
}

#[test]
fn further_attempts_of_an_iteration_continue_its_session() {
    let transient = || MachineInput::TurnEnded(TurnOutcome::Transient("529".into()));
    let mut trace = durable(SessionPolicy::Fresh);
    trace.then(MachineInput::PromptReceived);
    trace.then(transient());
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Waiting { .. }
    ));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(sessions(&effects), (Some("1-1"), None));

    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let mut trace = Trace::resumed(trace.machine.head().clone(), ResumeOptions::default());
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(sessions(&effects), (Some("1-1"), None));
}

#[test]
fn prompt_of_a_turn_without_an_answer_is_not_repeated() {
    let mut trace = durable(SessionPolicy::Fresh);
    trace.then(MachineInput::SessionSaved { position: 1 });
    trace.then(MachineInput::TurnEnded(TurnOutcome::Transient(
        "529".into(),
    )));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(sessions(&effects), (Some("1-1"), None));
    assert!(started(&effects).has_prompt);
}

#[test]
fn requested_and_lost_sessions_begin_again_under_another_id() {
    let mut trace = durable(SessionPolicy::Fresh);
    trace.then(MachineInput::PromptReceived);
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(sessions(&effects), (None, Some("1-2")));
    trace.then(MachineInput::PromptReceived);
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert_eq!(sessions(&effects), (Some("1-2"), None));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::SessionLost));
    assert_eq!(sessions(&effects), (None, Some("1-4")));
}

#[test]
fn steer_that_the_session_has_is_not_repeated_after_a_crash() {
    let mut trace = durable(SessionPolicy::Fresh);
    trace.then(MachineInput::PromptReceived);
    trace.then(steer("mind the docs", false));
    trace.then(MachineInput::SteerAdvanced {
        id: 1,
        state: loop_state::SteerState::Seen,
    });
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("red")));
    assert!(started(&effects).steers.is_empty());
}

fn forked(head: &Head, session: ForkedSession) -> Trace {
    let parent = Lineage {
        run: "first".into(),
        iteration: 1,
        seq: 7,
    };
    Trace::resumed(head.clone().fork(parent, session), ResumeOptions::default())
}

#[test]
fn a23_fork_continues_the_copied_session_and_no_other() {
    let mut trace = durable(SessionPolicy::Continue);
    trace.then(MachineInput::PromptReceived);
    trace.then(MachineInput::SessionSaved { position: 9 });
    trace.iteration(failed("red"));
    // The next turn of the other run has begun, in the same session.
    trace.then(MachineInput::PromptReceived);
    let head = trace.machine.head();
    assert_eq!(head.session_position, Some(9), "of the finished turn");
    let copied = ForkedSession::Copied { position: Some(1) };
    let fork = forked(head, copied);
    let fork = fork.machine.head();
    assert_eq!(fork.session.as_deref(), Some("1-1"));
    assert_eq!(fork.session_position, Some(1));
    assert!(fork.continues_session && !fork.has_prompt);

    let fork = forked(head, ForkedSession::None);
    let fork = fork.machine.head();
    assert_eq!(fork.session.as_deref(), Some("2-2"), "a new session");
    assert!(!fork.continues_session && fork.session_position.is_none());
}
