//! Requests of a person to a live run.

use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    CheckResult, Effect, Evidence, MAX_STEER_BYTES, MAX_STEERS, MAX_TEXT, MachineInput, PauseAfter,
    ProcessTreeOutcome, PromptContext, RedoScope, Request, ResumeOptions, RuleChange, RunUpdate,
    SessionPolicy, SteerState, StopCause, StopReason, StopRequest, StopTiming, Streak, TurnOutcome,
    UnfinishedCause,
};

use crate::rules;
use crate::traces::{Trace, failed, is_rejected, stop, stop_attempt};

pub(crate) fn steer(text: &str, now: bool) -> MachineInput {
    let text = text.into();
    MachineInput::Requested(Request::Steer { text, now })
}

fn moved(id: u32, state: SteerState) -> MachineInput {
    MachineInput::SteerAdvanced { id, state }
}

pub(crate) fn started(effects: &[Effect]) -> &PromptContext {
    let brief = effects.iter().find_map(|effect| match effect {
        Effect::StartAttempt(brief) => Some(brief),
        _ => None,
    });
    brief.unwrap_or_else(|| panic!("nothing was started: {effects:?}"))
}

fn continuing() -> Trace {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].session = SessionPolicy::Continue;
    }));
    trace.then(MachineInput::SessionKnown("s1".into()));
    trace.then(MachineInput::PromptReceived);
    trace
}

#[test]
fn x109a_a_steer_is_recorded_then_delivered_then_seen() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(moved(1, SteerState::Delivered));
    trace.then(moved(1, SteerState::Seen));
    trace.then(moved(1, SteerState::Delivered));
    trace.iteration(failed("no"));
    assert!(trace.machine.head().steers.is_empty());
    assert_snapshot!(trace.text);
}

#[test]
fn x109b_unseen_steer_is_in_the_next_prompt() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(moved(1, SteerState::Delivered));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).steers[0].text, "mind the docs");
    let effects = trace.iteration(failed("no"));
    assert!(started(&effects).steers.is_empty(), "sent only once");
}

#[test]
fn x109c_steer_survives_a_crash_and_is_repeated_in_a_fresh_session() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(moved(1, SteerState::Seen));
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    assert_eq!(started(&effects).steers.len(), 1);
}

#[test]
fn x109c_continued_session_gets_no_steer_twice() {
    let mut trace = continuing();
    trace.then(steer("seen", false));
    trace.then(moved(1, SteerState::Seen));
    trace.then(steer("not seen", false));
    trace.then(moved(2, SteerState::Delivered));
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert_eq!(brief.session.as_deref(), Some("s1"));
    assert_eq!(brief.steers.len(), 1);
    assert_eq!(brief.steers[0].text, "not seen");
    // If the session to continue is lost, no agent has read the steer.
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::SessionLost));
    let brief = started(&effects);
    assert_eq!((brief.session.as_deref(), brief.steers.len()), (None, 2));
}

/// An agent that ends before it answers, because it is not logged in or was killed, may have read nothing of its prompt.
#[test]
fn x109c_steer_is_repeated_until_the_agent_answers_its_prompt() {
    let mut trace = continuing();
    trace.then(steer("mind the docs", false));
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(failed("no")));
    let hopeless = TurnOutcome::AgentUnusable("not logged in".into());
    trace.then(MachineInput::TurnEnded(hopeless));
    let briefed = |effects: &[Effect]| started(effects).steers.len();
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    assert_eq!(briefed(&effects), 1);
    trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("died".into())));
    trace.then(MachineInput::CheckEnded(failed("no")));
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(briefed(&effects), 1);
    trace.then(MachineInput::PromptReceived);
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    assert_eq!(started(&effects).session.as_deref(), Some("s1"));
    assert_eq!(briefed(&effects), 0, "the agent has answered");
}

#[test]
fn steer_now_interrupts_only_a_turn() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(steer("stop that", true));
    assert_eq!(effects[2..], [Effect::Deliver(1), Effect::InterruptTurn]);
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    let effects = trace.then(steer("mind the tests", true));
    assert_eq!(effects.len(), 2, "recorded and reported: {effects:?}");
}

#[test]
fn steers_are_limited_and_never_truncated() {
    let mut trace = Trace::new(rules(|_| {}));
    let large = "é".repeat(100 * 1024);
    for _ in 0..4 {
        trace.machine.step(crate::at(0, steer(&large, false)));
    }
    for _ in 0..MAX_STEERS + 5 {
        trace.machine.step(crate::at(0, steer("x", false)));
    }
    let steers = &trace.machine.head().steers;
    assert_eq!(
        (steers.len(), steers[0].text.len()),
        (MAX_STEERS, large.len())
    );
    assert!(steers.iter().map(|steer| steer.text.len()).sum::<usize>() <= MAX_STEER_BYTES);
    assert!(is_rejected(&trace.then(steer("one more", false))));
}

#[test]
fn interrupted_turn_waits_for_a_message_and_continues() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.iteration_timeout = Some(Duration::from_secs(1));
    }));
    trace.then(MachineInput::Requested(Request::Interrupt));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    assert_eq!(trace.machine.next_deadline(), None, "there is no timer");
    trace.then(MachineInput::Requested(Request::Continue));
    trace.then(MachineInput::Requested(Request::Interrupt));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    trace.then(steer("another way", false));
    assert_snapshot!(trace.text);
}

#[test]
fn stop_or_crash_while_a_session_waits_leaves_the_attempt_unfinished() {
    for request in [StopTiming::Now, StopTiming::AfterIteration] {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
        let effects = trace.then(stop(request));
        assert_eq!(effects.last(), Some(&stop_attempt(None)), "{effects:?}");
        trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
        assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
        assert_eq!(
            trace.machine.head().unfinished.unwrap().cause,
            UnfinishedCause::Stop
        );
    }
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    trace.crash_and_resume();
    let head = trace.machine.head();
    assert_eq!(head.unfinished.unwrap().cause, UnfinishedCause::ProcessDied);
    assert_eq!(head.streaks.crashes, 0, "the open session was idle");
}

#[test]
fn c75a_c75c_c75e_a_pause_waits_for_the_iteration_and_then_for_a_person() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.iteration(failed("no"));
    assert_eq!(trace.machine.next_deadline(), None);
    trace.then(MachineInput::Requested(Request::Continue));
    // The pause is withdrawn before it takes effect.
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.then(MachineInput::Requested(Request::Continue));
    trace.iteration(failed("no"));
    // During a sleep the pause takes effect at once.
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.then(stop(StopTiming::Now));
    assert_snapshot!(trace.text);
}

#[test]
fn a_paused_run_is_resumed_where_it_was() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.iteration(failed("no"));
    let effects = trace.crash_and_resume();
    assert_eq!(started(&effects).iteration, 2);
}

#[test]
fn session_with_overlong_id_is_not_resumed() {
    let mut trace = continuing();
    let known = |id: String| MachineInput::SessionKnown(id);
    let longest = "s".repeat(MAX_TEXT);
    trace.then(known(longest.clone()));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).session, Some(longest.clone()));
    let effects = trace.then(known(longest + "s"));
    assert_eq!(effects, [Effect::Save], "the previous id is cleared");
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).session, None);
}

#[test]
fn s25a_restart_repeats_the_iteration_in_a_fresh_session() {
    let mut trace = continuing();
    trace.iteration(failed("no"));
    let effects = trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    assert_eq!(effects.last(), Some(&stop_attempt(None)));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let brief = started(&effects);
    assert_eq!((brief.iteration, brief.session.as_deref()), (2, None));
    assert_eq!(brief.unfinished.unwrap().cause, UnfinishedCause::Redo);
    assert_eq!(brief.attempt, 2);
    let effects = trace.iteration(failed("no"));
    let brief = started(&effects);
    assert_eq!(
        (brief.iteration, brief.attempt),
        (3, 1),
        "a new iteration has attempt 1"
    );
}

#[test]
fn s25a_redo_of_a_finished_iteration_is_a_new_attempt() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.iteration(failed("its own"));
    let effects = trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    let brief = started(&effects);
    assert_eq!((brief.iteration, brief.attempt), (1, 2));
    assert_eq!(brief.feedback, None);
}

#[test]
fn s25b_start_over_begins_at_iteration_one_from_any_step() {
    let over = || {
        MachineInput::Requested(Request::Redo {
            what: RedoScope::Phase,
        })
    };
    let mut trace = continuing();
    trace.iteration(failed("no"));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    let effects = trace.then(over());
    assert_eq!(effects.last(), Some(&Effect::StopCheck));
    trace.then(MachineInput::CheckEnded(failed("ended")));
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    let brief = started(&effects);
    assert_eq!(
        (brief.iteration, brief.session.as_deref(), brief.unfinished),
        (1, None, None)
    );

    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.iteration(failed("no"));
    let effects = trace.then(over());
    assert_eq!(started(&effects).iteration, 1);

    // A crash while the turn was being ended doesn't lose the redo.
    trace.iteration(failed("no"));
    trace.then(MachineInput::Requested(Request::Skip));
    trace.then(over());
    let effects = trace.crash_and_resume();
    assert_eq!(started(&effects).iteration, 1);
    let cut = trace.machine.head().counts.unfinished_attempts;
    assert_eq!((cut, trace.machine.head().streaks.crashes), (1, 0));
}

#[test]
fn stop_precedes_a_restart() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert!(trace.reason().is_stopped());
}

#[test]
fn the_sleep_can_be_skipped() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    assert!(is_rejected(
        &trace.then(MachineInput::Requested(Request::Skip))
    ));
    trace.iteration(failed("no"));
    let effects = trace.then(MachineInput::Requested(Request::Skip));
    assert_eq!(started(&effects).iteration, 2);
}

#[test]
fn fresh_session_request_applies_once() {
    let mut trace = continuing();
    trace.then(MachineInput::Requested(Request::FreshSession));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).session, None);
    trace.then(MachineInput::SessionKnown("s2".into()));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).session.as_deref(), Some("s2"));
}

#[test]
fn x105a_x105b_promise_starts_the_check_and_does_not_finish_without_it() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].has_promise = true));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    trace.then(MachineInput::TurnEnded(TurnOutcome::PromiseMade));
    trace.then(MachineInput::CheckEnded(failed("1 test failed")));
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(
        started(&effects).feedback.as_ref().unwrap().text,
        "1 test failed"
    );
    trace.then(MachineInput::TurnEnded(TurnOutcome::PromiseMade));
    trace.then(MachineInput::CheckEnded(CheckResult::Passed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    assert_snapshot!(trace.text);
}

#[test]
fn x105c_promise_without_check_finishes_and_is_marked_as_claim() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].has_promise = true;
        rules.phases[0].has_check = false;
        rules.phases[0].required_checks = 1;
    }));
    trace.then(MachineInput::TurnEnded(TurnOutcome::PromiseMade));
    trace.then(MachineInput::RequiredCheckEnded(failed("red")));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(
        trace.machine.head().iteration,
        2,
        "a failed required check overrides the promise"
    );
    trace.then(MachineInput::TurnEnded(TurnOutcome::PromiseMade));
    trace.then(MachineInput::RequiredCheckEnded(CheckResult::Passed));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Promise));
}

#[test]
fn unusable_agent_ends_the_run_and_is_retried_on_resume() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.then(MachineInput::TurnEnded(TurnOutcome::AgentUnusable(
        "log in".into(),
    )));
    assert_eq!(trace.reason(), StopReason::Failed("log in".into()));
    trace.then(MachineInput::Resumed(ResumeOptions::default()));
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (2, 2)
    );
}

#[test]
fn x105d_x105f_turns_without_progress_are_reported_and_three_are_stuck() {
    let idle = |trace: &mut Trace| {
        trace.then(MachineInput::NoProgress);
        trace.iteration(failed("no"))
    };
    let mut trace = Trace::new(rules(|_| {}));
    idle(&mut trace);
    idle(&mut trace);
    trace.iteration(failed("no"));
    assert_eq!(trace.machine.head().streaks.no_progress, 0);
    for in_a_row in 1..=3 {
        trace.then(MachineInput::NoProgress);
        let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
        assert_eq!(effects[1], Effect::Emit(RunUpdate::NoProgress { in_a_row }));
        trace.then(MachineInput::CheckEnded(failed("no")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    }
    assert_eq!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::NoProgress,
            count: 3
        }
    );

    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.max_iterations = Some(3)
    }));
    for _ in 0..3 {
        idle(&mut trace);
    }
    assert_eq!(trace.reason(), StopReason::IterationLimit(3));
}

#[test]
fn unanswered_prompt_is_sent_again() {
    let mut trace = continuing();
    trace.then(steer("mind the docs", false));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).steers.len(), 1);
    // The attempt ends before the agent answers in the second iteration.
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert_eq!(brief.session.as_deref(), Some("s1"));
    assert!(
        !brief.has_prompt,
        "the session has the prompt of the first iteration only"
    );
    assert_eq!(brief.steers.len(), 1);
    trace.then(MachineInput::PromptReceived);
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert!(brief.has_prompt && brief.steers.is_empty(), "{brief:?}");
}

#[test]
fn steer_to_unstarted_agent_goes_to_next() {
    let not_started = || MachineInput::TurnEnded(TurnOutcome::NotStarted("gone".into()));
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("it is red"));
    trace.then(steer("mind the docs", false));
    trace.then(not_started());
    trace.then(MachineInput::CheckEnded(failed("it is red")));
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(started(&effects).steers.len(), 1);

    // If the first attempt of a process can't start, the run ends, and the steer waits for the next process.
    trace.crash_and_resume();
    trace.then(MachineInput::CheckEnded(failed("it is red")));
    trace.then(not_started());
    assert!(matches!(trace.reason(), StopReason::Failed(_)));
    let effects = trace.then(MachineInput::Resumed(ResumeOptions::default()));
    let brief = effects
        .iter()
        .any(|effect| matches!(effect, Effect::StartAttempt(_)));
    let effects = match brief {
        true => effects,
        false => trace.then(MachineInput::CheckEnded(failed("it is red"))),
    };
    assert_eq!(started(&effects).steers.len(), 1);
}

#[test]
fn steer_waits_for_the_next_prompt_if_no_turn_can_get_it() {
    let mut trace = Trace::new(rules(|_| {}));
    assert!(!trace.machine.keeps_steers(), "the turn works");
    let redo = Request::Redo {
        what: RedoScope::Iteration,
    };
    trace.then(MachineInput::Requested(redo));
    assert!(trace.machine.keeps_steers(), "the turn ends");

    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    assert!(!trace.machine.keeps_steers(), "the session is open");

    trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    assert!(trace.machine.keeps_steers(), "the check runs");
}

#[test]
fn fresh_session_gets_the_steers_of_the_old_one() {
    let mut trace = continuing();
    trace.then(steer("mind the docs", false));
    trace.then(moved(1, SteerState::Seen));
    trace.then(MachineInput::Requested(Request::FreshSession));
    trace.crash_and_resume();
    let effects = trace.then(MachineInput::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert_eq!((brief.session.as_deref(), brief.steers.len()), (None, 1));
}

#[test]
fn redo_request_survives_tree_cleanup_and_a_crash() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::CheckEnded(failed("no")));
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    let mut crashed = trace.machine.head().clone();
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 2)
    );

    crashed.end = None;
    trace.machine = loop_state::Machine::from(crashed);
    let effects = trace.then(MachineInput::Resumed(ResumeOptions::default()));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 2)
    );

    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    let effects = trace.crash_and_resume();
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 2)
    );
}

#[test]
fn session_loss_in_a_fresh_session_is_a_failed_turn() {
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..3 {
        trace.then(MachineInput::SessionKnown("new".into()));
        trace.then(MachineInput::TurnEnded(TurnOutcome::SessionLost));
        trace.then(MachineInput::CheckEnded(failed("no")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    }
    assert!(matches!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::Failures,
            count: 3
        }
    ));
}

/// Returns the reason why a request was rejected, if it was.
fn refusal(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::RejectRequest(why) => Some(&**why),
        _ => None,
    })
}

#[test]
fn uninterruptible_agent_is_not_interrupted_and_steers_wait() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::AgentInterruptible(false));
    let at_tool = Request::Pause {
        reason: Some("lunch".into()),
        after: PauseAfter::Tool,
    };
    for request in [Request::Interrupt, at_tool.clone()] {
        let effects = trace.then(MachineInput::Requested(request));
        let why = refusal(&effects).unwrap();
        assert!(why.starts_with("this agent can't be interrupted"), "{why}");
        assert_eq!(effects.len(), 1);
    }
    assert!(!trace.machine.head().pausing);
    let effects = trace.then(steer("mind the docs", true));
    assert!(effects.contains(&Effect::Deliver(1)));
    assert!(!effects.contains(&Effect::InterruptTurn));

    trace.then(MachineInput::AgentInterruptible(true));
    assert!(
        trace
            .then(MachineInput::Requested(at_tool))
            .contains(&Effect::PauseAt(PauseAfter::Tool))
    );
    let effects = trace.then(MachineInput::Requested(Request::Interrupt));
    assert_eq!(effects, [Effect::InterruptTurn]);
}

#[test]
fn last_pause_request_sets_reason_and_boundary() {
    let mut trace = Trace::new(rules(|_| {}));
    let pause = |reason: Option<&str>, after| {
        let reason = reason.map(str::to_owned);
        MachineInput::Requested(Request::Pause { reason, after })
    };
    trace.then(pause(None, PauseAfter::Tool));
    let effects = trace.then(pause(Some("lunch"), PauseAfter::Iteration));
    let reason = Effect::SavePauseReason("lunch".into());
    let boundary = Effect::PauseAt(PauseAfter::Iteration);
    // The reason comes before the save that makes it durable.
    assert_eq!(effects, [boundary.clone(), reason, Effect::Save]);
    let effects = trace.then(pause(None, PauseAfter::Iteration));
    assert_eq!(effects[0], boundary);
    assert_eq!(refusal(&effects), Some("the run already pauses or stops"));
}

#[test]
fn abort_and_stop_are_stops_by_a_person() {
    let by = StopCause::Person;
    for (request, when) in [
        (Request::Abort, StopTiming::Now),
        (
            Request::Stop {
                when: StopTiming::Now,
            },
            StopTiming::Now,
        ),
        (
            Request::Stop {
                when: StopTiming::AfterIteration,
            },
            StopTiming::AfterIteration,
        ),
    ] {
        let mut trace = Trace::new(rules(|_| {}));
        let asked = MachineInput::Requested(request);
        assert_eq!(asked.stop(), Some(StopRequest { by, when }));
        trace.then(asked.clone());
        assert_eq!(trace.machine.head().stopping, asked.stop());
        // A repeated request changes nothing and is no error.
        let deadline = trace.machine.deadline();
        assert_eq!(deadline.is_stop(), when == StopTiming::Now);
        let same = deadline.is_stop().then_some(Effect::StopBy(deadline));
        assert_eq!(trace.then(asked), Vec::from_iter(same));
        assert_eq!(trace.machine.deadline(), deadline);
    }
}

#[test]
fn invalid_rule_is_refused_with_its_reason() {
    let mut trace = Trace::new(rules(|_| {}));
    let change = RuleChange::MaxIterations(Some(0));
    let reason = trace.machine.head().rules.with(0, &change).unwrap_err();
    let effects = trace.then(MachineInput::Requested(Request::Set(change)));
    assert_eq!(refusal(&effects), Some(&*reason.to_string()));
}

#[test]
fn redo_during_leftover_cleanup_is_saved_and_run() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].session = SessionPolicy::Continue;
    }));
    trace.then(MachineInput::SessionKnown("s".into()));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::CheckEnded(failed("no")));
    let what = RedoScope::Iteration;
    let effects = trace.then(MachineInput::Requested(Request::Redo { what }));
    assert_eq!(
        effects,
        [Effect::Save, Effect::Emit(RunUpdate::Redoing(what))]
    );
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(started(&effects).session, None);
    assert_eq!(trace.machine.head().iteration, 1);
}
