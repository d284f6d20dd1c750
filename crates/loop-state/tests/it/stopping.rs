//! The deadline of a stop: when it begins, and which inputs still have an effect while the run ends.

use std::time::Duration;

use loop_state::times::{ABORT, SHUTDOWN_REASON, STOP_BUDGET};
use loop_state::{
    CheckResult, Effect, Glance, Happening, Notice, Request, Resume, StopCause, StopDeadline,
    StopReason, StopRequest, Timer, Timestamp, TurnOutcome, When,
};

use crate::rules;
use crate::traces::{Trace, halt, stop};

fn abort() -> Happening {
    Happening::Requested(Request::Abort)
}

/// Returns a run whose turn was interrupted and that waits for a person.
fn interrupted() -> Trace {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
    trace
}

#[test]
fn a_stop_after_the_iteration_ends_an_interrupted_turn_within_the_budget() {
    for is_repeated in [false, true] {
        let mut trace = Trace::new(rules(|_| {}));
        if is_repeated {
            trace.then(stop(When::AfterIteration));
            assert_eq!(trace.machine.deadline(), StopDeadline::Open);
        }
        trace.then(Happening::TurnEnded(TurnOutcome::Interrupted));
        let effects = trace.then(stop(When::AfterIteration));
        let by = Timestamp(trace.now) + STOP_BUDGET;
        assert_eq!(effects[0], Effect::StopBy(StopDeadline::Stop { by }));
        assert!(effects.contains(&Effect::Announce(Notice::Stopping)));
        assert_eq!(effects.last(), Some(&halt(None)));
    }
}

#[test]
fn a_stop_after_the_iteration_has_no_deadline_while_the_iteration_goes_on() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(stop(When::AfterIteration));
    let later = Effect::Announce(Notice::StoppingLater);
    assert_eq!(effects, [Effect::Save, later]);
    assert!(!trace.machine.is_stopping());
}

#[test]
fn a_request_that_waits_begins_the_deadline_that_it_has_later() {
    let mut trace = Trace::new(rules(|_| {}));
    let foreseen = |abort| Happening::StopForeseen { abort };
    assert!(foreseen(true).is_transient() && Happening::Ending.is_transient());
    let head = trace.machine.head().clone();
    let by = Timestamp(trace.now + 100) + STOP_BUDGET;
    let deadline = Effect::StopBy(StopDeadline::Stop { by });
    assert_eq!(trace.then(foreseen(false)), std::slice::from_ref(&deadline));
    assert_eq!(trace.machine.head(), &head, "the request itself follows");
    assert_eq!(trace.then(stop(When::Now))[0], deadline);
    let by = Timestamp(trace.now + 100) + ABORT;
    let deadline = Effect::StopBy(StopDeadline::Abort { by });
    assert_eq!(trace.then(foreseen(true)), std::slice::from_ref(&deadline));
    assert_eq!(trace.then(abort()), [deadline]);
}

#[test]
fn only_requests_to_stop_count_while_a_process_ends() {
    let over = |trace: &mut Trace| {
        trace.iteration(CheckResult::Passed);
    };
    let saved_in_vain = |_: &mut Trace| {};
    let ways: [&dyn Fn(&mut Trace); 2] = [&over, &saved_in_vain];
    for way in ways {
        let mut trace = Trace::new(rules(|_| {}));
        way(&mut trace);
        assert_eq!(trace.then(Happening::Ending), []);
        let head = trace.machine.head().clone();
        for what in [
            Happening::TurnEnded(TurnOutcome::Completed),
            Happening::Requested(Request::Continue),
        ] {
            assert_eq!(trace.then(what), []);
        }
        // The iteration is complete, so both kinds of stop take effect now.
        for (what, is_abort) in [
            (stop(When::AfterIteration), false),
            (stop(When::Now), false),
            (abort(), true),
        ] {
            let effects = trace.then(what);
            let deadline = trace.machine.deadline();
            assert_eq!(effects, [Effect::StopBy(deadline)]);
            assert_eq!(deadline.is_abort(), is_abort);
        }
        assert_eq!(trace.machine.head(), &head);
    }
}

#[test]
fn a_suspended_run_has_its_budget_left_when_it_goes_on() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::Now));
    let by = trace.machine.deadline().by().unwrap();
    let frozen = Duration::from_secs(60);
    trace.then(Happening::Thawed(frozen));
    assert_eq!(trace.machine.deadline().by(), Some(by + frozen));
}

#[test]
fn a_process_that_takes_the_run_up_has_no_deadline_of_the_one_before() {
    let mut trace = interrupted();
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert!(trace.machine.is_stopping());
    trace.then(Happening::Resumed(Resume::default()));
    assert_eq!(trace.machine.deadline(), StopDeadline::Open);
}

#[test]
fn a_stop_before_the_first_event_is_saved_and_finishes_with_the_reason_of_the_head() {
    let request = StopRequest {
        by: StopCause::HungUp,
        when: When::Now,
    };
    let early = || Happening::StoppedEarly(request);
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(early());
    assert!(matches!(effects[0], Effect::StopBy(_)));
    assert_eq!(effects[1..], [Effect::Save, Effect::Finish]);
    let stopped = StopReason::Stopped(StopCause::HungUp);
    assert_eq!(trace.machine.head().stop_reason(), Some(stopped));

    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    let done = trace.reason();
    assert_eq!(trace.then(early()).last(), Some(&Effect::Finish));
    assert_eq!(trace.machine.head().stop_reason(), Some(done));
}

#[test]
fn a_shutdown_waits_once_for_its_reason_and_is_a_termination_without_one() {
    let mut trace = Trace::new(rules(|_| {}));
    let wait = Effect::AwaitStop(SHUTDOWN_REASON);
    assert_eq!(trace.then(Happening::ShutDown), [wait]);
    assert_eq!(trace.then(Happening::ShutDown), []);
    let effects = trace.then(Happening::TimeUp(Timer::Shutdown));
    assert_eq!(effects[0], Effect::StopBy(trace.machine.deadline()));
    assert_eq!(effects.last(), Some(&halt(None)));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Terminated));

    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::Now));
    assert_eq!(trace.then(Happening::ShutDown), [], "the reason is known");
}

#[test]
fn an_aborted_turn_is_ended_without_being_asked() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(abort());
    let (why, at_once) = (None, true);
    assert_eq!(effects.last(), Some(&Effect::StopAttempt { why, at_once }));
}

#[test]
fn no_timer_runs_out_and_no_silence_counts_while_the_run_is_suspended() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
        rules.limits.max_duration = Some(Duration::from_secs(60));
    }));
    let due = trace.machine.next_deadline().unwrap();
    trace.then(Happening::Frozen(true));
    let frozen_at = Timestamp(trace.now);
    trace.then(Happening::Frozen(true));
    let machine = &trace.machine;
    assert_eq!((machine.next_deadline(), machine.silence()), (None, None));
    assert_eq!(machine.due(due), None);
    let frozen = machine.frozen_for(due).unwrap();
    assert_eq!(frozen, due.since(frozen_at), "since the suspend began");
    trace.now = due.0;
    trace.then(Happening::Frozen(false));
    trace.then(Happening::Thawed(frozen));
    assert_eq!(trace.machine.frozen_for(due), None);
    assert_eq!(trace.machine.next_deadline(), Some(due + frozen));
}

#[test]
fn a_stop_saves_before_git_answers_and_keeps_nothing_that_runs() {
    let mut trace = Trace::new(rules(|_| {}));
    assert_eq!(trace.machine.glance(false), Glance::Brief);
    assert_eq!(trace.machine.glance(true), Glance::Awaited);
    assert!(trace.machine.keeps_leftovers() && trace.machine.keeps_calls());
    assert_eq!(trace.machine.ends_within(Timestamp(trace.now)), None);
    trace.then(stop(When::Now));
    for seals in [false, true] {
        assert_eq!(trace.machine.glance(seals), Glance::Skipped);
    }
    assert!(!trace.machine.keeps_leftovers() && !trace.machine.keeps_calls());
    let left = trace.machine.ends_within(Timestamp(trace.now + 1000));
    assert_eq!(left, Some(STOP_BUDGET - Duration::from_secs(1)));
}

#[test]
fn the_last_save_of_a_run_awaits_the_answer_of_git() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    assert!(trace.machine.head().end.is_some());
    assert_eq!(trace.machine.glance(false), Glance::Awaited);
}
