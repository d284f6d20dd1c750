//! How a new process handles the state that the previous one left.

use std::time::Duration;

use loop_state::{
    CheckResult, CutCause, Effect, Happening, Request, Resume, SessionPolicy, SteerState, Step,
    StopCause, StopReason, StopRequest, Streak, Timer, Tree, TurnOutcome, When,
};

use crate::limits::{HOUR, limited};
use crate::person::steer;
use crate::rules;
use crate::traces::{Trace, failed, stop};

fn request(by: StopCause) -> StopRequest {
    let when = When::Now;
    StopRequest { by, when }
}

#[test]
fn who_stops_a_run_before_its_first_event_has_stopped_it() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(Happening::StoppedEarly(request(StopCause::HungUp)));
    assert_eq!(
        trace.machine.head().stopping,
        Some(request(StopCause::HungUp))
    );

    // A run that is already stopped records the latest origin of a stop.
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::Now));
    trace.then(Happening::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    trace.then(Happening::StoppedEarly(request(StopCause::Terminated)));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Terminated));

    // A run that had ended keeps its own end.
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    let done = trace.reason();
    trace.then(Happening::StoppedEarly(request(StopCause::Person)));
    assert_eq!(trace.reason(), done);
}

/// After an unfinished turn, only a session that continues and has its prompt remembers the steers.
#[test]
fn a_session_that_is_not_gone_on_with_remembers_nothing() {
    for combination in 0..16 {
        let [keeps, known, prompted, wanted] = [0, 1, 2, 3].map(|bit| combination & 1 << bit != 0);
        let mut trace = Trace::new(rules(|rules| {
            rules.phases[0].session = match keeps {
                true => SessionPolicy::Continue,
                false => SessionPolicy::Fresh,
            };
        }));
        if known {
            trace.then(Happening::SessionKnown("s1".into()));
        }
        if prompted {
            trace.then(Happening::Prompted);
        }
        if !wanted {
            trace.then(Happening::Requested(Request::Fresh));
        }
        trace.then(steer("mind the docs", false));
        trace.then(Happening::SteerMoved {
            id: 1,
            state: SteerState::Seen,
        });
        trace.crash_and_resume();
        let remembers = keeps && known && prompted && wanted;
        let unseen = trace.machine.head().unseen_steers().count();
        assert_eq!(unseen, usize::from(!remembers), "{combination:04b}");
    }
}

/// Only an end that is not a stop resets the streaks; a stop between two failures doesn't.
#[test]
fn failures_are_in_a_row_across_a_stop() {
    let fail = |trace: &mut Trace| {
        trace.then(Happening::TurnEnded(TurnOutcome::Failed("no".into())));
        trace.then(Happening::CheckEnded(failed("red")));
        trace.then(Happening::Settled(Tree::default()));
    };
    let mut trace = Trace::new(rules(|_| {}));
    fail(&mut trace);
    trace.then(stop(When::AfterIteration));
    fail(&mut trace);
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    for processes in 2..4 {
        trace.crash_and_resume();
        assert_eq!(trace.machine.head().counts.processes, processes);
    }
    trace.then(Happening::CheckEnded(failed("red")));
    fail(&mut trace);
    assert_eq!(trace.reason(), StopReason::Stuck(Streak::Failures, 3));
}

#[test]
fn a_process_that_dies_while_it_stops_is_no_crash() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(When::Now));
    trace.crash_and_resume();
    let head = trace.machine.head();
    assert_eq!(head.cut.unwrap().cause, CutCause::Stop);
    assert_eq!(head.streaks.crashes, 0);
    trace.then(Happening::CheckEnded(failed("red")));
    trace.crash_and_resume();
    let head = trace.machine.head();
    assert_eq!(head.cut.unwrap().cause, CutCause::Crash);
    assert_eq!(head.streaks.crashes, 1);
}

/// After a data loss the caller knows newer numbers than the saved state.
#[test]
fn numbers_that_were_used_are_not_used_again() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].until = false;
        rules.phases[0].promise = true;
    }));
    trace.then(Happening::Resumed(Resume {
        from: Some(5),
        reached: Some(7),
        used_attempts: Some(9),
        ..Resume::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.iteration, head.attempt), (5, 10));
}

#[test]
fn a_run_whose_present_phase_is_gone_is_in_the_last_one_there_is() {
    let phases = |count: usize| {
        rules(|rules| {
            rules.phases = vec![rules.phases[0].clone(); count];
        })
    };
    let mut trace = Trace::new(phases(3));
    trace.iteration(CheckResult::Passed);
    trace.then(Happening::TimeUp(Timer::Sleep));
    trace.iteration(CheckResult::Passed);
    trace.then(Happening::TimeUp(Timer::Sleep));
    for (count, phase) in [(3, 2), (4, 2), (2, 1), (1, 0)] {
        trace.then(Happening::Resumed(Resume {
            rules: Some(phases(count)),
            ..Resume::default()
        }));
        assert_eq!(trace.machine.head().phase, phase, "{count} phases");
    }
}

#[test]
fn numbers_from_outside_are_bounded() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].until = false;
        rules.phases[0].promise = true;
    }));
    trace.then(Happening::Resumed(Resume {
        from: Some(1 << 29),
        reached: Some(u32::MAX),
        used_attempts: Some(u32::MAX),
        ..Resume::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.iteration, head.attempt), (1 << 29, (1 << 29) + 1));
}

#[test]
fn a_run_that_sleeps_goes_back_where_it_is_told() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.iteration(failed("red"));
    trace.then(Happening::Requested(Request::Skip));
    trace.iteration(failed("red"));
    assert!(matches!(trace.machine.head().step, Step::Sleeping { .. }));
    trace.then(Happening::Resumed(Resume {
        from: Some(1),
        ..Resume::default()
    }));
    assert_eq!(trace.machine.head().iteration, 1);
}

#[test]
fn crashes_without_a_limit_end_nothing() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    for _ in 0..5 {
        trace.crash_and_resume();
        assert_eq!(trace.machine.head().end, None);
        trace.then(Happening::CheckEnded(failed("red")));
    }
    assert_eq!(trace.machine.head().streaks.crashes, 5);
}

#[test]
fn errors_of_iterations_that_are_discarded_are_discarded() {
    let errors_from = |from| {
        let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
        for _ in 0..3 {
            trace.then(Happening::TurnEnded(TurnOutcome::Failed("no".into())));
            trace.then(Happening::CheckEnded(failed("red")));
            trace.then(Happening::Settled(Tree::default()));
        }
        trace.then(Happening::Resumed(Resume {
            from: Some(from),
            ..Resume::default()
        }));
        let errors = trace.machine.head().errors.iter();
        errors.map(|error| error.iteration).collect::<Vec<u32>>()
    };
    assert_eq!(errors_from(1), [0; 0]);
    assert_eq!(errors_from(3), [1, 2]);
    assert_eq!(errors_from(4), [1, 2, 3]);
}

#[test]
fn a_wait_goes_on_until_its_time_and_no_longer_than_the_rules_allow() {
    let waiting = || {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(limited(Some(HOUR)));
        let until = trace.machine.next_deadline().unwrap();
        (trace, until.0)
    };
    for (early, is_over) in [(1, false), (0, true)] {
        let (mut trace, until) = waiting();
        trace.now = until - early - 100;
        let effects = trace.then(Happening::Resumed(Resume::default()));
        let starts = |effect: &Effect| matches!(effect, Effect::StartAttempt(_));
        assert_eq!(effects.iter().any(starts), is_over, "{early} ms too early");
    }
    let (mut trace, _) = waiting();
    let minute = Duration::from_secs(60);
    trace.then(Happening::Resumed(Resume {
        rules: Some(rules(|rules| rules.limits.wait_on_limit = minute)),
        ..Resume::default()
    }));
    let StopReason::RateLimit { cap, .. } = trace.reason() else {
        panic!("{:?}", trace.reason());
    };
    assert_eq!(cap, minute);
}
