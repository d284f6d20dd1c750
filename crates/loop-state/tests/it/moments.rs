//! Inputs at unusual moments: before the run begins, while a turn is being ended, or for the second time.

use std::time::Duration;

use loop_state::times::STOP_BUDGET;
use loop_state::{
    Autonomy, CheckResult, Effect, IterationStep, MAX_ERRORS, Machine, MachineInput, PauseAfter,
    ProcessTreeOutcome, RedoScope, Request, ResumeOptions, ReviewDecision, RunUpdate, StopCause,
    StopDeadline, StopReason, StopRequest, StopTiming, Timer, Timestamp, TurnOutcome,
    UnfinishedCause,
};

use crate::limits::{limited, metered};
use crate::person::{started, steer};
use crate::traces::{Trace, failed, is_rejected, stop, stop_attempt};
use crate::{at, rules};

/// Returns a run with a turn limit of five seconds and an idle timeout of two seconds.
fn timed() -> Trace {
    Trace::new(rules(|rules| {
        rules.phases[0].limits.iteration_timeout = Some(Duration::from_secs(5));
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
    }))
}

fn request(by: StopCause) -> StopRequest {
    let when = StopTiming::Now;
    StopRequest { by, when }
}

#[test]
fn no_effect_precedes_the_start() {
    for early in [
        MachineInput::Resumed(ResumeOptions::default()),
        MachineInput::Requested(Request::FreshSession),
        MachineInput::PermissionDenied,
        stop(StopTiming::Now),
        MachineInput::TurnEnded(TurnOutcome::Completed),
    ] {
        let mut machine = Machine::new(rules(|_| {})).unwrap();
        let before = machine.head().clone();
        assert_eq!(machine.step(at(7, early.clone())), [], "{early:?}");
        assert_eq!(*machine.head(), before, "{early:?}");
    }
}

#[test]
fn stopping_turn_ignores_timers() {
    let mut trace = timed();
    trace.then(stop(StopTiming::Now));
    let before = trace.machine.head().clone();
    for timer in [Timer::Iteration, Timer::Idle, Timer::MaxDuration] {
        assert_eq!(
            trace.then(MachineInput::TimerExpired(timer)),
            [],
            "{timer:?}"
        );
    }
    let after = trace.machine.head();
    assert_eq!(
        (&after.failure, &after.step),
        (&before.failure, &before.step)
    );
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    assert_eq!(trace.machine.head().counts.failed, 0);
}

/// The maximum duration of the run is only checked where there is work to end, not between a turn and the end of its process tree.
#[test]
fn no_timer_runs_while_a_tree_is_awaited() {
    let mut trace = Trace::new(rules(|rules| {
        rules.limits.max_duration = Some(Duration::from_secs(60));
    }));
    assert_eq!(
        trace.machine.next_deadline(),
        Some(Timestamp::from_millis(60_100))
    );
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::CheckEnded(failed("no")));
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::EndingLeftovers { .. }
    ));
    assert_eq!(trace.machine.next_deadline(), None);
    trace.now = 60_100;
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    let limit = Duration::from_secs(60);
    assert_eq!(trace.reason(), StopReason::TimeLimit(limit));
}

#[test]
fn second_stop_request_matters_only_if_it_is_stronger() {
    let wishes = [StopTiming::AfterIteration, StopTiming::Now];
    for (first, second) in wishes
        .into_iter()
        .flat_map(|one| wishes.map(|two| (one, two)))
    {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(stop(first));
        let before = trace.machine.head().stopping;
        let effects = trace.then(MachineInput::StopRequested(StopRequest {
            by: StopCause::Terminated,
            when: second,
        }));
        let after = trace.machine.head().stopping;
        match (first, second) {
            (StopTiming::AfterIteration, StopTiming::Now) => {
                assert_eq!(effects.last(), Some(&stop_attempt(None)));
                assert_eq!(after, Some(request(StopCause::Terminated)));
            }
            _ => {
                assert_eq!(after, before, "{first:?} {second:?}");
                // The deadline of the first request doesn't change.
                let by = StopDeadline::Stop {
                    by: Timestamp::from_millis(200) + STOP_BUDGET,
                };
                let again = (first, second) == (StopTiming::Now, StopTiming::Now);
                let again = again.then_some(Effect::StopBy(by));
                assert_eq!(effects, Vec::from_iter(again), "{first:?} {second:?}");
            }
        }
    }
}

#[test]
fn stop_replaces_an_earlier_timeout() {
    let mut trace = timed();
    trace.then(MachineInput::TimerExpired(Timer::Iteration));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    let head = trace.machine.head();
    assert_eq!(head.counts.failed, 0, "the turn will be redone");
    assert_eq!(head.unfinished.unwrap().cause, UnfinishedCause::Stop);
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
}

#[test]
fn stop_at_a_required_check_keeps_the_failed_turn() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].required_checks = 1));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Failed(
        "exit 1".into(),
    )));
    trace.then(stop(StopTiming::Now));
    assert_eq!(trace.machine.head().failure.as_deref(), Some("exit 1"));
}

#[test]
fn an_agent_that_cannot_work_is_no_failure_of_a_run_that_is_stopped() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    let hopeless = TurnOutcome::AgentUnusable("not logged in".into());
    trace.then(MachineInput::TurnEnded(hopeless));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
}

/// An agent can use up to its limit: the last allowed token ends the turn.
#[test]
fn budget_is_spent_at_its_limit() {
    let mut trace = metered(|rules| rules.limits.max_tokens = Some(10));
    let effects = trace.then(crate::limits::used(0, 10));
    assert_eq!(
        effects,
        [Effect::Save, stop_attempt(Some("10 of 10 tokens used"))]
    );
}

#[test]
fn failed_turns_are_counted_and_never_as_no_progress() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    for n in 1..4 {
        trace.then(MachineInput::NoProgress);
        let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("no".into())));
        assert_eq!(
            effects,
            [Effect::Save, Effect::RunCheck],
            "no report of turns without progress"
        );
        let counts = trace.machine.head().counts;
        assert_eq!((counts.failed, counts.attempts), (n, n));
        trace.then(MachineInput::CheckEnded(failed("red")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    }
}

#[test]
fn ending_agent_gets_no_messages_and_no_answers() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    assert!(is_rejected(
        &trace.then(MachineInput::Requested(Request::Interrupt))
    ));
    let effects = trace.then(steer("mind the docs", true));
    assert_eq!(
        effects.len(),
        2,
        "recorded for the next attempt: {effects:?}"
    );

    // The same applies while its session waits.
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    trace.then(stop(StopTiming::Now));
    let effects = trace.then(steer("mind the docs", true));
    assert_eq!(
        effects.len(),
        2,
        "recorded for the next attempt: {effects:?}"
    );
    assert!(is_rejected(
        &trace.then(MachineInput::Requested(Request::Continue))
    ));
}

#[test]
fn pause_request_is_recorded_once_and_a_stop_overrides_it() {
    let mut trace = Trace::new(rules(|_| {}));
    let pause = Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    };
    let pause = || MachineInput::Requested(pause.clone());
    assert!(!is_rejected(&trace.then(pause())));
    assert!(is_rejected(&trace.then(pause())));
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::AfterIteration));
    assert!(is_rejected(&trace.then(pause())));
    assert!(!trace.machine.head().pausing);
}

#[test]
fn denials_are_counted() {
    let mut trace = Trace::new(rules(|_| {}));
    for n in 1..4 {
        assert_eq!(trace.then(MachineInput::PermissionDenied), []);
        assert_eq!(trace.machine.head().counts.denied, n);
    }
}

#[test]
fn redo_runs_before_a_later_stop() {
    let mut trace = Trace::new(rules(|rules| rules.phases[0].required_checks = 1));
    trace.then(stop(StopTiming::AfterIteration));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    trace.then(MachineInput::RequiredCheckEnded(CheckResult::Stopped));
    let effects = trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(started(&effects).iteration, 1);
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::RequiredCheckEnded(failed("red")));
    trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
}

#[test]
fn newest_errors_are_retained() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    let more = MAX_ERRORS as u32 + 3;
    for _ in 0..more {
        trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("no".into())));
        trace.then(MachineInput::CheckEnded(failed("red")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    }
    let iterations: Vec<u32> = { trace.machine.head().errors.iter() }
        .map(|error| error.iteration)
        .collect();
    assert_eq!(iterations, Vec::from_iter(4..=more));
}

#[test]
fn redo_after_a_passed_check_is_rejected() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    trace.then(MachineInput::CheckEnded(CheckResult::Passed));
    let before = trace.machine.head().clone();
    for again in [RedoScope::Iteration, RedoScope::Phase] {
        let effects = trace.then(MachineInput::Requested(Request::Redo { what: again }));
        assert!(is_rejected(&effects), "{effects:?}");
    }
    let after = trace.machine.head();
    assert_eq!(
        (after.redo, after.fresh_session),
        (before.redo, before.fresh_session)
    );
    assert_eq!(after.step, before.step);
}

#[test]
fn redo_of_an_iteration_during_a_review_does_not_redo_the_phase() {
    for (again, iteration, told) in [
        (
            RedoScope::Iteration,
            2,
            RunUpdate::Redoing(RedoScope::Iteration),
        ),
        (
            RedoScope::Phase,
            1,
            RunUpdate::Reviewed(ReviewDecision::StartOver),
        ),
    ] {
        let mut trace = Trace::new(rules(|rules| rules.autonomy = Autonomy::Batch(2)));
        trace.then(MachineInput::Attended(true));
        trace.iteration(failed("red"));
        trace.iteration(failed("red"));
        assert!(matches!(
            trace.machine.head().step,
            IterationStep::Review { .. }
        ));
        let effects = trace.then(MachineInput::Requested(Request::Redo { what: again }));
        assert_eq!(started(&effects).iteration, iteration);
        assert_eq!(effects[1], Effect::Emit(told));
    }
}

#[test]
fn turn_that_is_being_ended_is_not_ended_again_by_a_redo() {
    let mut trace = timed();
    let effects = trace.then(MachineInput::TimerExpired(Timer::Idle));
    assert_eq!(effects, [stop_attempt(Some("no output for 2s"))]);
    let effects = trace.then(MachineInput::Requested(Request::Redo {
        what: RedoScope::Iteration,
    }));
    let told = RunUpdate::Redoing(RedoScope::Iteration);
    assert_eq!(effects, [Effect::Save, Effect::Emit(told)]);
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(started(&effects).iteration, 1);
}

#[test]
fn open_review_stays_open_while_a_person_attends() {
    let mut trace = Trace::new(rules(|rules| rules.autonomy = Autonomy::Batch(1)));
    trace.then(MachineInput::Attended(true));
    trace.iteration(failed("red"));
    assert_eq!(trace.then(MachineInput::Attended(true)), []);
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Review { .. }
    ));
    let effects = trace.then(MachineInput::Attended(false));
    assert_eq!(started(&effects).iteration, 2);
}

#[test]
fn no_progress_is_recorded_only_for_a_running_turn() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    trace.then(MachineInput::NoProgress);
    trace.then(MachineInput::Requested(Request::Continue));
    let effects = trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    assert_eq!(effects, [Effect::Save, Effect::RunCheck]);
}

/// A limit that has just ended is no reason for an immediate retry.
#[test]
fn just_ended_limit_causes_no_immediate_retry() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.now = 60_000;
    trace.then(limited(Some(60_100 - 10_000)));
    let IterationStep::Waiting { since, until, .. } = trace.machine.head().step else {
        panic!("{:?}", trace.machine.head().step);
    };
    let wait = until.since(since);
    assert!(wait >= Duration::from_secs(5), "{wait:?}");
}
