//! Inputs at unusual moments: before the run begins, while a turn is being ended, or for the second time.

use std::time::Duration;

use loop_state::times::STOP_BUDGET;
use loop_state::{
    Again, Autonomy, CheckResult, CutCause, Effect, Happening, MAX_ERRORS, Machine, Notice,
    PauseAfter, Request, Resume, Step, StopCause, StopDeadline, StopReason, StopRequest, Timer,
    Timestamp, Tree, TurnOutcome, Verdict, When,
};

use crate::limits::{limited, metered};
use crate::person::{started, steer};
use crate::traces::{Trace, failed, halt, in_vain, stop};
use crate::{at, rules};

/// Returns a run with a turn limit of five seconds and an idle timeout of two seconds.
fn timed() -> Trace {
    Trace::new(rules(|rules| {
        rules.phases[0].limits.iteration_timeout = Some(Duration::from_secs(5));
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
    }))
}

fn request(by: StopCause) -> StopRequest {
    let when = When::Now;
    StopRequest { by, when }
}

#[test]
fn nothing_comes_before_the_start() {
    for early in [
        Happening::Resumed(Resume::default()),
        Happening::Requested(Request::Fresh),
        Happening::Denied,
        stop(When::Now),
        Happening::TurnEnded(TurnOutcome::Completed),
    ] {
        let mut machine = Machine::new(rules(|_| {})).unwrap();
        let before = machine.head().clone();
        assert_eq!(machine.step(at(7, early.clone())), [], "{early:?}");
        assert_eq!(*machine.head(), before, "{early:?}");
    }
}

#[test]
fn what_is_being_ended_is_not_hurried_by_a_timer() {
    let mut trace = timed();
    trace.then(stop(When::Now));
    let before = trace.machine.head().clone();
    for timer in [Timer::Iteration, Timer::Idle, Timer::Run] {
        assert_eq!(trace.then(Happening::TimeUp(timer)), [], "{timer:?}");
    }
    let after = trace.machine.head();
    assert_eq!(
        (&after.failure, &after.step),
        (&before.failure, &before.step)
    );
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    assert_eq!(trace.machine.head().counts.failed, 0);
}

/// The maximum duration of the run is only checked where there is work to end, not between a turn and the end of its process tree.
#[test]
fn no_timer_runs_while_a_tree_is_awaited() {
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.max_duration = Some(Duration::from_secs(60));
    }));
    assert_eq!(trace.machine.next_deadline(), Some(Timestamp(60_100)));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::CheckEnded(failed("no")));
    assert!(matches!(trace.machine.head().step, Step::Settling { .. }));
    assert_eq!(trace.machine.next_deadline(), None);
    trace.now = 60_100;
    trace.then(Happening::Settled(Tree::default()));
    let limit = Duration::from_secs(60);
    assert_eq!(trace.reason(), StopReason::TimeLimit(limit));
}

#[test]
fn a_second_wish_to_stop_changes_something_only_where_it_is_the_stronger_one() {
    let wishes = [When::AfterIteration, When::Now];
    for (first, second) in wishes
        .into_iter()
        .flat_map(|one| wishes.map(|two| (one, two)))
    {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(stop(first));
        let before = trace.machine.head().stopping;
        let effects = trace.then(Happening::StopRequested(StopRequest {
            by: StopCause::Terminated,
            when: second,
        }));
        let after = trace.machine.head().stopping;
        match (first, second) {
            (When::AfterIteration, When::Now) => {
                assert_eq!(effects.last(), Some(&halt(None)));
                assert_eq!(after, Some(request(StopCause::Terminated)));
            }
            _ => {
                assert_eq!(after, before, "{first:?} {second:?}");
                // The deadline of the first request doesn't change.
                let by = StopDeadline::Stop {
                    by: Timestamp(200) + STOP_BUDGET,
                };
                let again = (first, second) == (When::Now, When::Now);
                let again = again.then_some(Effect::StopBy(by));
                assert_eq!(effects, Vec::from_iter(again), "{first:?} {second:?}");
            }
        }
    }
}

#[test]
fn a_stop_takes_the_place_of_the_time_that_ran_out_before_it() {
    let mut trace = timed();
    trace.then(Happening::TimeUp(Timer::Iteration));
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    let head = trace.machine.head();
    assert_eq!(head.counts.failed, 0, "the turn will be redone");
    assert_eq!(head.cut.unwrap().cause, CutCause::Stop);
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
}

#[test]
fn a_stop_at_a_gate_takes_nothing_back_of_a_turn_that_failed() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].gates = 1));
    trace.then(Happening::TurnEnded(TurnOutcome::Failed("exit 1".into())));
    trace.then(stop(When::Now));
    assert_eq!(trace.machine.head().failure.as_deref(), Some("exit 1"));
}

#[test]
fn an_agent_that_cannot_work_is_no_failure_of_a_run_that_is_stopped() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::Now));
    let hopeless = TurnOutcome::Hopeless("not logged in".into());
    trace.then(Happening::TurnEnded(hopeless));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
}

/// An agent can use up to its limit: the last allowed token ends the turn.
#[test]
fn what_is_used_to_the_last_token_is_used_up() {
    let mut trace = metered(|rules| rules.limits.max_tokens = Some(10));
    let effects = trace.then(crate::limits::used(0, 10));
    assert_eq!(effects, [Effect::Save, halt(Some("10 of 10 tokens used"))]);
}

#[test]
fn failed_turns_are_counted_and_none_of_them_is_idle() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    for n in 1..4 {
        trace.then(Happening::NothingDone);
        let effects = trace.then(Happening::TurnEnded(TurnOutcome::Failed("no".into())));
        assert_eq!(
            effects,
            [Effect::Save, Effect::RunCheck],
            "no report of turns without progress"
        );
        let counts = trace.machine.head().counts;
        assert_eq!((counts.failed, counts.attempts), (n, n));
        trace.then(Happening::CheckEnded(failed("red")));
        trace.then(Happening::Settled(Tree::default()));
    }
}

#[test]
fn an_agent_that_is_being_ended_is_told_and_asked_nothing() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::Now));
    assert!(in_vain(
        &trace.then(Happening::Requested(Request::Interrupt))
    ));
    let effects = trace.then(steer("mind the docs", true));
    assert_eq!(
        effects.len(),
        2,
        "recorded for the next attempt: {effects:?}"
    );

    // The same applies while its session waits.
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
    trace.then(stop(When::Now));
    let effects = trace.then(steer("mind the docs", true));
    assert_eq!(
        effects.len(),
        2,
        "recorded for the next attempt: {effects:?}"
    );
    assert!(in_vain(
        &trace.then(Happening::Requested(Request::Continue))
    ));
}

#[test]
fn a_wish_to_pause_is_noted_once_and_a_wish_to_stop_is_the_stronger_one() {
    let mut trace = Trace::new(rules(|_| {}));
    let pause = Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    };
    let pause = || Happening::Requested(pause.clone());
    assert!(!in_vain(&trace.then(pause())));
    assert!(in_vain(&trace.then(pause())));
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::AfterIteration));
    assert!(in_vain(&trace.then(pause())));
    assert!(!trace.machine.head().pausing);
}

#[test]
fn what_was_denied_is_counted() {
    let mut trace = Trace::new(rules(|_| {}));
    for n in 1..4 {
        assert_eq!(trace.then(Happening::Denied), []);
        assert_eq!(trace.machine.head().counts.denied, n);
    }
}

#[test]
fn what_is_to_be_done_again_is_done_before_a_stop_behind_it() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].gates = 1));
    trace.then(stop(When::AfterIteration));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    trace.then(Happening::GateEnded(CheckResult::Stopped));
    let effects = trace.then(Happening::Settled(Tree::default()));
    assert_eq!(started(&effects).iteration, 1);
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::GateEnded(failed("red")));
    trace.then(Happening::Settled(Tree::default()));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
}

#[test]
fn the_newest_errors_are_kept() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    let more = MAX_ERRORS as u32 + 3;
    for _ in 0..more {
        trace.then(Happening::TurnEnded(TurnOutcome::Failed("no".into())));
        trace.then(Happening::CheckEnded(failed("red")));
        trace.then(Happening::Settled(Tree::default()));
    }
    let iterations: Vec<u32> = { trace.machine.head().errors.iter() }
        .map(|error| error.iteration)
        .collect();
    assert_eq!(iterations, Vec::from_iter(4..=more));
}

#[test]
fn what_is_decided_already_is_not_done_again() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    trace.then(Happening::CheckEnded(CheckResult::Passed));
    let before = trace.machine.head().clone();
    for again in [Again::Iteration, Again::Phase] {
        let effects = trace.then(Happening::Requested(Request::Again { what: again }));
        assert!(in_vain(&effects), "{effects:?}");
    }
    let after = trace.machine.head();
    assert_eq!((after.again, after.fresh), (before.again, before.fresh));
    assert_eq!(after.step, before.step);
}

#[test]
fn a_wish_for_the_iteration_at_a_review_is_not_one_for_the_phase() {
    for (again, iteration, told) in [
        (Again::Iteration, 2, Notice::Again(Again::Iteration)),
        (Again::Phase, 1, Notice::Reviewed(Verdict::StartOver)),
    ] {
        let mut trace = Trace::new(rules(|rules| rules.autonomy = Autonomy::Batch(2)));
        trace.then(Happening::Attended(true));
        trace.iteration(failed("red"));
        trace.iteration(failed("red"));
        assert!(matches!(trace.machine.head().step, Step::Review { .. }));
        let effects = trace.then(Happening::Requested(Request::Again { what: again }));
        assert_eq!(started(&effects).iteration, iteration);
        assert_eq!(effects[1], Effect::Announce(told));
    }
}

#[test]
fn what_is_being_ended_is_told_so_once() {
    let mut trace = timed();
    let effects = trace.then(Happening::TimeUp(Timer::Idle));
    assert_eq!(effects, [halt(Some("no output for 2s"))]);
    let effects = trace.then(Happening::Requested(Request::Again {
        what: Again::Iteration,
    }));
    let told = Notice::Again(Again::Iteration);
    assert_eq!(effects, [Effect::Save, Effect::Announce(told)]);
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(started(&effects).iteration, 1);
}

#[test]
fn a_question_stays_open_for_whoever_comes_to_answer_it() {
    let mut trace = Trace::new(rules(|rules| rules.autonomy = Autonomy::Batch(1)));
    trace.then(Happening::Attended(true));
    trace.iteration(failed("red"));
    assert_eq!(trace.then(Happening::Attended(true)), []);
    assert!(matches!(trace.machine.head().step, Step::Review { .. }));
    let effects = trace.then(Happening::Attended(false));
    assert_eq!(started(&effects).iteration, 2);
}

#[test]
fn idleness_is_noted_of_a_turn_that_runs() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
    trace.then(Happening::NothingDone);
    trace.then(Happening::Requested(Request::Continue));
    let effects = trace.then(Happening::TurnEnded(TurnOutcome::Completed));
    assert_eq!(effects, [Effect::Save, Effect::RunCheck]);
}

/// A limit that has just ended is no reason for an immediate retry.
#[test]
fn a_reset_that_is_now_says_nothing() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.now = 60_000;
    trace.then(limited(Some(60_100 - 10_000)));
    let Step::Waiting { since, until, .. } = trace.machine.head().step else {
        panic!("{:?}", trace.machine.head().step);
    };
    let wait = until.since(since);
    assert!(wait >= Duration::from_secs(30), "{wait:?}");
}
