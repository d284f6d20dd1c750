//! How a new process handles the state that the previous one left.

use std::time::Duration;

use loop_state::{
    CheckResult, Effect, IterationStep, MachineInput, PauseAfter, ProcessTreeOutcome, Request,
    ResumeOptions, SessionPolicy, SteerState, StopCause, StopReason, StopRequest, StopTiming,
    Streak, Timer, TurnOutcome, UnfinishedCause,
};

use crate::limits::{HOUR, limited};
use crate::person::steer;
use crate::rules;
use crate::traces::{Trace, failed, stop};

fn request(by: StopCause) -> StopRequest {
    let when = StopTiming::Now;
    StopRequest { by, when }
}

#[test]
fn stop_before_first_input_is_recorded() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::StoppedBeforeStart(request(StopCause::HungUp)));
    assert_eq!(
        trace.machine.head().stopping,
        Some(request(StopCause::HungUp))
    );

    // A run that is already stopped records the latest origin of a stop.
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    trace.then(MachineInput::StoppedBeforeStart(request(
        StopCause::Terminated,
    )));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Terminated));

    // A run that had ended keeps its own end.
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    let done = trace.reason();
    trace.then(MachineInput::StoppedBeforeStart(request(StopCause::Person)));
    assert_eq!(trace.reason(), done);
}

/// After an unfinished turn, only a session that continues and has its prompt remembers the steers.
#[test]
fn discarded_session_remembers_nothing() {
    for combination in 0..16 {
        let [keeps, known, prompted, wanted] = [0, 1, 2, 3].map(|bit| combination & 1 << bit != 0);
        let mut trace = Trace::new(rules(|rules| {
            rules.phases[0].session = match keeps {
                true => SessionPolicy::Continue,
                false => SessionPolicy::Fresh,
            };
        }));
        if known {
            trace.then(MachineInput::SessionKnown("s1".into()));
        }
        if prompted {
            trace.then(MachineInput::PromptReceived);
        }
        if !wanted {
            trace.then(MachineInput::Requested(Request::FreshSession));
        }
        trace.then(steer("mind the docs", false));
        trace.then(MachineInput::SteerAdvanced {
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
fn failure_streak_survives_a_stop() {
    let fail = |trace: &mut Trace| {
        trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("no".into())));
        trace.then(MachineInput::CheckEnded(failed("red")));
        trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    };
    let mut trace = Trace::new(rules(|_| {}));
    fail(&mut trace);
    trace.then(stop(StopTiming::AfterIteration));
    fail(&mut trace);
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Person));
    for processes in 2..4 {
        trace.crash_and_resume();
        assert_eq!(trace.machine.head().counts.processes, processes);
    }
    trace.then(MachineInput::CheckEnded(failed("red")));
    fail(&mut trace);
    assert_eq!(
        trace.reason(),
        StopReason::Stuck {
            streak: Streak::Failures,
            count: 3
        }
    );
}

#[test]
fn death_during_a_stop_is_no_crash() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    trace.crash_and_resume();
    let head = trace.machine.head();
    assert_eq!(head.unfinished.unwrap().cause, UnfinishedCause::Stop);
    assert_eq!(head.streaks.crashes, 0);
    trace.then(MachineInput::CheckEnded(failed("red")));
    trace.crash_and_resume();
    let head = trace.machine.head();
    assert_eq!(head.unfinished.unwrap().cause, UnfinishedCause::ProcessDied);
    assert_eq!(head.streaks.crashes, 1);
}

/// After a data loss the caller knows newer numbers than the saved state.
#[test]
fn used_numbers_are_not_reused() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].has_check = false;
        rules.phases[0].has_promise = true;
    }));
    trace.then(MachineInput::Resumed(ResumeOptions {
        from_iteration: Some(5),
        last_begun_iteration: Some(7),
        highest_used_attempt: Some(9),
        ..ResumeOptions::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.iteration, head.attempt), (5, 10));
}

#[test]
fn run_with_removed_phase_continues_in_the_last_phase() {
    let phases = |count: usize| {
        rules(|rules| {
            rules.phases = vec![rules.phases[0].clone(); count];
        })
    };
    let mut trace = Trace::new(phases(3));
    trace.iteration(CheckResult::Passed);
    trace.then(MachineInput::TimerExpired(Timer::Sleep));
    trace.iteration(CheckResult::Passed);
    trace.then(MachineInput::TimerExpired(Timer::Sleep));
    for (count, phase) in [(3, 2), (4, 2), (2, 1), (1, 0)] {
        trace.then(MachineInput::Resumed(ResumeOptions {
            rules: Some(phases(count)),
            ..ResumeOptions::default()
        }));
        assert_eq!(trace.machine.head().phase, phase, "{count} phases");
    }
}

#[test]
fn external_numbers_are_limited() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].has_check = false;
        rules.phases[0].has_promise = true;
    }));
    trace.then(MachineInput::Resumed(ResumeOptions {
        from_iteration: Some((1 << 29) + 1),
        last_begun_iteration: Some(u32::MAX),
        highest_used_attempt: Some(u32::MAX),
        ..ResumeOptions::default()
    }));
    let head = trace.machine.head();
    assert_eq!((head.iteration, head.attempt), (1 << 29, (1 << 29) + 1));
}

#[test]
fn sleeping_run_can_return_to_an_earlier_iteration() {
    let mut trace = Trace::new(rules(|rules| rules.limits.sleep = Duration::from_secs(9)));
    trace.iteration(failed("red"));
    trace.then(MachineInput::Requested(Request::Skip));
    trace.iteration(failed("red"));
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Sleeping { .. }
    ));
    trace.then(MachineInput::Resumed(ResumeOptions {
        from_iteration: Some(1),
        ..ResumeOptions::default()
    }));
    assert_eq!(trace.machine.head().iteration, 1);
}

#[test]
fn crashes_without_a_limit_do_not_end_the_run() {
    let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
    for _ in 0..5 {
        trace.crash_and_resume();
        assert_eq!(trace.machine.head().end, None);
        trace.then(MachineInput::CheckEnded(failed("red")));
    }
    assert_eq!(trace.machine.head().streaks.crashes, 5);
}

#[test]
fn errors_of_discarded_iterations_are_discarded() {
    let errors_from = |from| {
        let mut trace = Trace::new(rules(|rules| rules.limits.max_failures = 0));
        for _ in 0..3 {
            trace.then(MachineInput::TurnEnded(TurnOutcome::Failed("no".into())));
            trace.then(MachineInput::CheckEnded(failed("red")));
            trace.then(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
        }
        trace.then(MachineInput::Resumed(ResumeOptions {
            from_iteration: Some(from),
            ..ResumeOptions::default()
        }));
        let errors = trace.machine.head().errors.iter();
        errors.map(|error| error.iteration).collect::<Vec<u32>>()
    };
    assert_eq!(errors_from(1), [0; 0]);
    assert_eq!(errors_from(3), [1, 2]);
    assert_eq!(errors_from(4), [1, 2, 3]);
}

#[test]
fn resumed_wait_ends_at_its_time_or_at_the_wait_limit() {
    let waiting = || {
        let mut trace = Trace::new(rules(|_| {}));
        trace.then(limited(Some(HOUR)));
        let until = trace.machine.next_deadline().unwrap();
        (trace, until.as_millis())
    };
    for (early, is_over) in [(1, false), (0, true)] {
        let (mut trace, until) = waiting();
        trace.now = until - early - 100;
        let effects = trace.then(MachineInput::Resumed(ResumeOptions::default()));
        let starts = |effect: &Effect| matches!(effect, Effect::StartAttempt(_));
        assert_eq!(effects.iter().any(starts), is_over, "{early} ms too early");
    }
    let (mut trace, _) = waiting();
    let minute = Duration::from_secs(60);
    trace.then(MachineInput::Resumed(ResumeOptions {
        rules: Some(rules(|rules| rules.limits.wait_on_limit = minute)),
        ..ResumeOptions::default()
    }));
    let StopReason::RateLimit { cap, .. } = trace.reason() else {
        panic!("{:?}", trace.reason());
    };
    assert_eq!(cap, minute);
}

/// Lets another worker of a fleet take the run over, or a person resume it.
fn continued(trace: &mut Trace, taken_over: bool) -> Vec<Effect> {
    trace.then(MachineInput::Resumed(ResumeOptions {
        taken_over,
        ..ResumeOptions::default()
    }))
}

#[test]
fn f6_pause_survives_the_takeover_of_a_run() {
    for taken_over in [true, false] {
        // Before the pause, during it, and with a signal in between.
        for (is_complete, is_stopped) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let mut trace = Trace::new(rules(|_| {}));
            let (reason, after) = (None, PauseAfter::Iteration);
            trace.then(MachineInput::Requested(Request::Pause { reason, after }));
            if is_complete {
                trace.iteration(failed("red"));
                let step = &trace.machine.head().step;
                assert!(matches!(step, IterationStep::Paused { .. }), "{step:?}");
            }
            if is_stopped {
                trace.then(MachineInput::StopRequested(request(StopCause::Terminated)));
                if !is_complete {
                    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
                }
            }
            let effects = continued(&mut trace, taken_over);
            let head = trace.machine.head();
            let (is_paused, is_pausing) = (head.awaits_person(), head.pausing);
            let case = format!("{taken_over} {is_complete} {is_stopped}: {effects:?}");
            assert_eq!(is_paused, taken_over && is_complete, "{case}");
            assert_eq!(is_pausing, taken_over && !is_complete, "{case}");
            let starts = |it: &Effect| matches!(it, Effect::StartAttempt(_) | Effect::RunCheck);
            assert_eq!(effects.iter().any(starts), !is_paused, "{case}");
        }
    }
}

#[test]
fn f6_stop_after_the_iteration_survives_the_takeover_of_a_run() {
    for taken_over in [true, false] {
        // After a crash, a signal, a crash during the stop by a signal, and a signal before the next worker has begun.
        for signals in [0, 1, 2, 3] {
            let mut trace = Trace::new(rules(|_| {}));
            let after = StopTiming::AfterIteration;
            trace.then(MachineInput::Requested(Request::Stop { when: after }));
            let by = request(StopCause::Terminated);
            let signal = match signals {
                0 => None,
                3 => Some(MachineInput::StoppedBeforeStart(by)),
                _ => Some(MachineInput::StopRequested(by)),
            };
            if let Some(signal) = signal {
                trace.then(signal);
            }
            if signals == 1 {
                trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
                assert_eq!(trace.reason(), StopReason::Stopped(by.by));
            }
            assert!(trace.machine.head().was_stopped_by_a_person());
            continued(&mut trace, taken_over);
            let head = trace.machine.head();
            let stopping = head.stopping.map(|stop| (stop.by, stop.when));
            let wanted = taken_over.then_some((StopCause::Person, after));
            assert_eq!(stopping, wanted, "{signals}");
            assert_eq!(head.stop_cut_short, None);
        }
    }
}
