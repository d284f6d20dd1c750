//! Requests of a person to a live run.

use std::time::Duration;

use insta::assert_snapshot;
use loop_state::{
    Again, Brief, CheckResult, CutCause, Effect, Evidence, Happening, MAX_STEER_BYTES, MAX_STEERS,
    MAX_TEXT, Notice, PauseAfter, Request, Resume, RuleChange, SessionPolicy, SteerState,
    StopCause, StopReason, StopRequest, Streak, Tree, TurnOutcome, When,
};

use crate::rules;
use crate::traces::{Trace, failed, halt, in_vain, stop};

pub(crate) fn steer(text: &str, now: bool) -> Happening {
    let text = text.into();
    Happening::Requested(Request::Steer { text, now })
}

fn moved(id: u32, state: SteerState) -> Happening {
    Happening::SteerMoved { id, state }
}

pub(crate) fn started(effects: &[Effect]) -> &Brief {
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
    trace.then(Happening::SessionKnown("s1".into()));
    trace.then(Happening::Prompted);
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
fn x109b_a_steer_that_was_not_seen_goes_into_the_next_prompt() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(moved(1, SteerState::Delivered));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).steers[0].text, "mind the docs");
    let effects = trace.iteration(failed("no"));
    assert!(started(&effects).steers.is_empty(), "sent only once");
}

#[test]
fn x109c_a_steer_survives_a_crash_and_a_fresh_session_is_told_again() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(steer("mind the docs", false));
    trace.then(moved(1, SteerState::Seen));
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    assert_eq!(started(&effects).steers.len(), 1);
}

#[test]
fn x109c_a_session_that_is_gone_on_with_is_not_told_twice() {
    let mut trace = continuing();
    trace.then(steer("seen", false));
    trace.then(moved(1, SteerState::Seen));
    trace.then(steer("not seen", false));
    trace.then(moved(2, SteerState::Delivered));
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert_eq!(brief.session.as_deref(), Some("s1"));
    assert_eq!(brief.steers.len(), 1);
    assert_eq!(brief.steers[0].text, "not seen");
    // If the session to continue is lost, no agent has read the steer.
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::SessionLost));
    let brief = started(&effects);
    assert_eq!((brief.session.as_deref(), brief.steers.len()), (None, 2));
}

/// An agent that ends before it answers, because it is not logged in or was killed, may have read nothing of its prompt.
#[test]
fn x109c_a_steer_is_told_again_until_the_agent_answers_the_prompt_that_holds_it() {
    let mut trace = continuing();
    trace.then(steer("mind the docs", false));
    trace.crash_and_resume();
    trace.then(Happening::CheckEnded(failed("no")));
    let hopeless = TurnOutcome::Hopeless("not logged in".into());
    trace.then(Happening::TurnEnded(hopeless));
    let briefed = |effects: &[Effect]| started(effects).steers.len();
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    assert_eq!(briefed(&effects), 1);
    trace.then(Happening::TurnEnded(TurnOutcome::Failed("died".into())));
    trace.then(Happening::CheckEnded(failed("no")));
    let effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(briefed(&effects), 1);
    trace.then(Happening::Prompted);
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    assert_eq!(started(&effects).session.as_deref(), Some("s1"));
    assert_eq!(briefed(&effects), 0, "the agent has answered");
}

#[test]
fn a_steer_for_now_interrupts_the_turn_and_no_other_step() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(steer("stop that", true));
    assert_eq!(effects[2..], [Effect::Deliver(1), Effect::InterruptTurn]);
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    let effects = trace.then(steer("mind the tests", true));
    assert_eq!(effects.len(), 2, "recorded and reported: {effects:?}");
}

#[test]
fn steers_are_bounded_and_never_cut() {
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
    assert!(in_vain(&trace.then(steer("one more", false))));
}

#[test]
fn an_interrupted_turn_waits_for_a_word_and_goes_on() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.iteration_timeout = Some(Duration::from_secs(1));
    }));
    trace.then(Happening::Requested(Request::Interrupt));
    trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
    assert_eq!(trace.machine.next_deadline(), None, "there is no timer");
    trace.then(Happening::Requested(Request::Continue));
    trace.then(Happening::Requested(Request::Interrupt));
    trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
    trace.then(steer("another way", false));
    assert_snapshot!(trace.text);
}

#[test]
fn a_stop_or_a_crash_while_a_session_waits_cuts_the_attempt() {
    for request in [When::Now, When::AfterIteration] {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
        let effects = trace.then(stop(request));
        assert_eq!(effects.last(), Some(&halt(None)), "{effects:?}");
        trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
        assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
        assert_eq!(trace.machine.head().cut.unwrap().cause, CutCause::Stop);
    }
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
    trace.crash_and_resume();
    let head = trace.machine.head();
    assert_eq!(head.cut.unwrap().cause, CutCause::Crash);
    assert_eq!(head.streaks.crashes, 0, "the open session was idle");
}

#[test]
fn c75a_c75c_c75e_a_pause_waits_for_the_iteration_and_then_for_a_person() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.then(Happening::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.iteration(failed("no"));
    assert_eq!(trace.machine.next_deadline(), None);
    trace.then(Happening::Requested(Request::Continue));
    // The pause is withdrawn before it takes effect.
    trace.then(Happening::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.then(Happening::Requested(Request::Continue));
    trace.iteration(failed("no"));
    // During a sleep the pause takes effect at once.
    trace.then(Happening::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.then(stop(When::Now));
    assert_snapshot!(trace.text);
}

#[test]
fn a_paused_run_is_resumed_where_it_was() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.iteration(failed("no"));
    let effects = trace.crash_and_resume();
    assert_eq!(started(&effects).iteration, 2);
}

#[test]
fn a_session_with_an_id_beyond_all_bounds_is_not_gone_on_with() {
    let mut trace = continuing();
    let known = |id: String| Happening::SessionKnown(id);
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
fn s25a_restart_does_the_iteration_again_in_a_fresh_session() {
    let mut trace = continuing();
    trace.iteration(failed("no"));
    let effects = trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    assert_eq!(effects.last(), Some(&halt(None)));
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    let brief = started(&effects);
    assert_eq!((brief.iteration, brief.session.as_deref()), (2, None));
    assert_eq!(brief.cut.unwrap().cause, CutCause::Restart);
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
fn s25a_a_finished_iteration_is_done_again_as_another_attempt() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.iteration(failed("its own"));
    let effects = trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    let brief = started(&effects);
    assert_eq!((brief.iteration, brief.attempt), (1, 2));
    assert_eq!(brief.feedback, None);
}

#[test]
fn s25b_start_over_begins_at_iteration_one_in_any_step() {
    let over = || Happening::Requested(Request::Again { what: Again::Phase });
    let mut trace = continuing();
    trace.iteration(failed("no"));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    let effects = trace.then(over());
    assert_eq!(effects.last(), Some(&Effect::StopCheck));
    trace.then(Happening::CheckEnded(failed("ended")));
    let effects = trace.then(Happening::Settled(Tree::default()));
    let brief = started(&effects);
    assert_eq!(
        (brief.iteration, brief.session.as_deref(), brief.cut),
        (1, None, None)
    );

    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.iteration(failed("no"));
    let effects = trace.then(over());
    assert_eq!(started(&effects).iteration, 1);

    // A crash while the turn was being ended doesn't lose the redo.
    trace.iteration(failed("no"));
    trace.then(Happening::Requested(Request::Skip));
    trace.then(over());
    let effects = trace.crash_and_resume();
    assert_eq!(started(&effects).iteration, 1);
    let cut = trace.machine.head().counts.cuts;
    assert_eq!((cut, trace.machine.head().streaks.crashes), (1, 0));
}

#[test]
fn a_stop_goes_before_a_restart() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert!(trace.reason().is_stopped());
}

#[test]
fn the_sleep_can_be_skipped() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    assert!(in_vain(&trace.then(Happening::Requested(Request::Skip))));
    trace.iteration(failed("no"));
    let effects = trace.then(Happening::Requested(Request::Skip));
    assert_eq!(started(&effects).iteration, 2);
}

#[test]
fn a_fresh_session_can_be_wished_for_once() {
    let mut trace = continuing();
    trace.then(Happening::Requested(Request::Fresh));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).session, None);
    trace.then(Happening::SessionKnown("s2".into()));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).session.as_deref(), Some("s2"));
}

#[test]
fn x105a_x105b_a_promise_starts_the_check_and_is_not_done_without_it() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].promise = true));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::Settled(Tree::default()));
    trace.then(Happening::TurnEnded(TurnOutcome::Claimed));
    trace.then(Happening::CheckEnded(failed("1 test failed")));
    let effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(
        started(&effects).feedback.as_ref().unwrap().text,
        "1 test failed"
    );
    trace.then(Happening::TurnEnded(TurnOutcome::Claimed));
    trace.then(Happening::CheckEnded(CheckResult::Passed));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Check));
    assert_snapshot!(trace.text);
}

#[test]
fn x105c_a_promise_without_a_check_is_done_on_the_agents_word_and_says_so() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].promise = true;
        rules.phases[0].until = false;
        rules.phases[0].gates = 1;
    }));
    trace.then(Happening::TurnEnded(TurnOutcome::Claimed));
    trace.then(Happening::GateEnded(failed("red")));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(
        trace.machine.head().iteration,
        2,
        "a failed required check overrides the promise"
    );
    trace.then(Happening::TurnEnded(TurnOutcome::Claimed));
    trace.then(Happening::GateEnded(CheckResult::Passed));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.reason(), StopReason::Done(Evidence::Claim));
}

#[test]
fn an_agent_that_cannot_work_ends_the_run_and_is_tried_again_at_a_resume() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("no"));
    trace.then(Happening::TurnEnded(TurnOutcome::Hopeless("log in".into())));
    assert_eq!(trace.reason(), StopReason::Failed("log in".into()));
    trace.then(Happening::Resumed(Resume::default()));
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (2, 2)
    );
}

#[test]
fn x105d_x105f_turns_without_work_are_told_and_three_in_a_row_are_stuck() {
    let idle = |trace: &mut Trace| {
        trace.then(Happening::NothingDone);
        trace.iteration(failed("no"))
    };
    let mut trace = Trace::new(rules(|_| {}));
    idle(&mut trace);
    idle(&mut trace);
    trace.iteration(failed("no"));
    assert_eq!(trace.machine.head().streaks.idle, 0);
    for in_a_row in 1..=3 {
        trace.then(Happening::NothingDone);
        let effects = trace.then(Happening::TurnEnded(TurnOutcome::Completed));
        assert_eq!(
            effects[1],
            Effect::Announce(Notice::NothingDone { in_a_row })
        );
        trace.then(Happening::CheckEnded(failed("no")));
        trace.then(Happening::Settled(Tree::default()));
    }
    assert_eq!(trace.reason(), StopReason::Stuck(Streak::Idle, 3));

    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.max_iterations = Some(3)
    }));
    for _ in 0..3 {
        idle(&mut trace);
    }
    assert_eq!(trace.reason(), StopReason::IterationLimit(3));
}

#[test]
fn a_prompt_that_no_agent_answered_is_sent_again() {
    let mut trace = continuing();
    trace.then(steer("mind the docs", false));
    let effects = trace.iteration(failed("no"));
    assert_eq!(started(&effects).steers.len(), 1);
    // The attempt ends before the agent answers in the second iteration.
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert_eq!(brief.session.as_deref(), Some("s1"));
    assert!(
        !brief.prompted,
        "the session has the prompt of the first iteration only"
    );
    assert_eq!(brief.steers.len(), 1);
    trace.then(Happening::Prompted);
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert!(brief.prompted && brief.steers.is_empty(), "{brief:?}");
}

#[test]
fn what_was_said_to_an_agent_that_did_not_start_is_said_to_the_next() {
    let not_started = || Happening::TurnEnded(TurnOutcome::NotStarted("gone".into()));
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(failed("it is red"));
    trace.then(steer("mind the docs", false));
    trace.then(not_started());
    trace.then(Happening::CheckEnded(failed("it is red")));
    let effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).steers.len(), 1);

    // In the first attempt of a process it ends the run, and the steer waits for the next process.
    trace.crash_and_resume();
    trace.then(Happening::CheckEnded(failed("it is red")));
    trace.then(not_started());
    assert!(matches!(trace.reason(), StopReason::Failed(_)));
    let effects = trace.then(Happening::Resumed(Resume::default()));
    let brief = effects
        .iter()
        .any(|effect| matches!(effect, Effect::StartAttempt(_)));
    let effects = match brief {
        true => effects,
        false => trace.then(Happening::CheckEnded(failed("it is red"))),
    };
    assert_eq!(started(&effects).steers.len(), 1);
}

#[test]
fn a_fresh_session_is_told_what_the_old_one_had_seen() {
    let mut trace = continuing();
    trace.then(steer("mind the docs", false));
    trace.then(moved(1, SteerState::Seen));
    trace.then(Happening::Requested(Request::Fresh));
    trace.crash_and_resume();
    let effects = trace.then(Happening::CheckEnded(failed("no")));
    let brief = started(&effects);
    assert_eq!((brief.session.as_deref(), brief.steers.len()), (None, 1));
}

#[test]
fn a_wish_to_begin_again_is_kept_while_the_tree_is_ended_and_over_a_crash() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::CheckEnded(failed("no")));
    trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    let mut crashed = trace.machine.head().clone();
    let effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 2)
    );

    crashed.end = None;
    trace.machine = loop_state::Machine::from(crashed);
    let effects = trace.then(Happening::Resumed(Resume::default()));
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 2)
    );

    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    let effects = trace.crash_and_resume();
    assert_eq!(
        (started(&effects).iteration, started(&effects).attempt),
        (1, 2)
    );
}

#[test]
fn a_session_is_lost_only_if_there_was_one_to_go_on_with() {
    let mut trace = Trace::new(rules(|_| {}));
    for _ in 0..3 {
        trace.then(Happening::SessionKnown("new".into()));
        trace.then(Happening::TurnEnded(TurnOutcome::SessionLost));
        trace.then(Happening::CheckEnded(failed("no")));
        trace.then(Happening::Settled(Tree::default()));
    }
    assert!(matches!(
        trace.reason(),
        StopReason::Stuck(Streak::Failures, 3)
    ));
}

/// Returns the reason why a request was rejected, if it was.
fn refusal(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::Refuse(why) => Some(&**why),
        _ => None,
    })
}

#[test]
fn an_agent_that_cannot_be_interrupted_is_not_and_what_is_said_waits() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::Interruptible(false));
    let at_tool = Request::Pause {
        reason: Some("lunch".into()),
        after: PauseAfter::Tool,
    };
    for request in [Request::Interrupt, at_tool.clone()] {
        let effects = trace.then(Happening::Requested(request));
        let why = refusal(&effects).unwrap();
        assert!(why.starts_with("this agent can't be interrupted"), "{why}");
        assert_eq!(effects.len(), 1);
    }
    assert!(!trace.machine.head().pausing);
    let effects = trace.then(steer("mind the docs", true));
    assert!(effects.contains(&Effect::Deliver(1)));
    assert!(!effects.contains(&Effect::InterruptTurn));

    trace.then(Happening::Interruptible(true));
    assert!(
        trace
            .then(Happening::Requested(at_tool))
            .contains(&Effect::PauseAt(PauseAfter::Tool))
    );
    let effects = trace.then(Happening::Requested(Request::Interrupt));
    assert_eq!(effects, [Effect::InterruptTurn]);
}

#[test]
fn the_newest_reason_and_boundary_of_a_pause_count() {
    let mut trace = Trace::new(rules(|_| {}));
    let pause = |reason: Option<&str>, after| {
        let reason = reason.map(str::to_owned);
        Happening::Requested(Request::Pause { reason, after })
    };
    trace.then(pause(None, PauseAfter::Tool));
    let effects = trace.then(pause(Some("lunch"), PauseAfter::Iteration));
    let reason = Effect::PauseReason("lunch".into());
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
        (Request::Abort, When::Now),
        (Request::Stop { after: When::Now }, When::Now),
        (
            Request::Stop {
                after: When::AfterIteration,
            },
            When::AfterIteration,
        ),
    ] {
        let mut trace = Trace::new(rules(|_| {}));
        let asked = Happening::Requested(request);
        assert_eq!(asked.stop(), Some(StopRequest { by, when }));
        trace.then(asked.clone());
        assert_eq!(trace.machine.head().stopping, asked.stop());
        // A repeated request changes nothing and is no error.
        let deadline = trace.machine.deadline();
        assert_eq!(deadline.is_stop(), when == When::Now);
        let same = deadline.is_stop().then_some(Effect::StopBy(deadline));
        assert_eq!(trace.then(asked), Vec::from_iter(same));
        assert_eq!(trace.machine.deadline(), deadline);
    }
}

#[test]
fn a_rule_that_makes_no_run_is_refused_with_its_reason() {
    let mut trace = Trace::new(rules(|_| {}));
    let change = RuleChange::MaxIterations(Some(0));
    let reason = trace.machine.head().rules.with(0, &change).unwrap_err();
    let effects = trace.then(Happening::Requested(Request::Set(change)));
    assert_eq!(refusal(&effects), Some(&*reason.to_string()));
}

#[test]
fn what_is_wanted_again_while_leftovers_are_ended_is_saved_told_and_done_afresh() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].session = SessionPolicy::Continue;
    }));
    trace.then(Happening::SessionKnown("s".into()));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::CheckEnded(failed("no")));
    let what = Again::Iteration;
    let effects = trace.then(Happening::Requested(Request::Again { what }));
    assert_eq!(
        effects,
        [Effect::Save, Effect::Announce(Notice::Again(what))]
    );
    let effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).session, None);
    assert_eq!(trace.machine.head().iteration, 1);
}
