//! The one deadline of a stop: when it begins, and what counts while the run ends.

use std::time::Duration;

use loop_state::times::{ABORT, STOP_BUDGET};
use loop_state::{
    CheckResult, Effect, Happening, Notice, Request, Resume, StopCause, StopDeadline, StopReason,
    StopRequest, Timestamp, TurnOutcome, When,
};

use crate::rules;
use crate::traces::{Trace, stop};

fn abort() -> Happening {
    Happening::Requested(Request::Abort)
}

/// A run whose turn was interrupted, and waits for a person.
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
        assert_eq!(effects.last(), Some(&Effect::StopAttempt));
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
    assert_eq!(trace.then(foreseen(false)), [deadline.clone()]);
    assert_eq!(trace.machine.head(), &head, "the request itself follows");
    assert_eq!(trace.then(stop(When::Now))[0], deadline);
    let by = Timestamp(trace.now + 100) + ABORT;
    let deadline = Effect::StopBy(StopDeadline::Abort { by });
    assert_eq!(trace.then(foreseen(true)), [deadline.clone()]);
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
        // The iteration is complete, so that both kinds mean now.
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
