//! The deadline of a stop: when it begins, and which inputs still have an effect while the run ends.

use std::time::Duration;

use loop_state::times::{ABORT, SHUTDOWN_REASON, STOP_BUDGET};
use loop_state::{
    CheckResult, Effect, GitStatusWait, Machine, MachineInput, PauseAfter, Request, ResumeOptions,
    RunUpdate, SaveKind, StopCause, StopDeadline, StopReason, StopRequest, StopTiming, Timer,
    Timestamp, TurnOutcome,
};

use crate::rules;
use crate::traces::{Trace, failed, stop, stop_attempt};

fn abort() -> MachineInput {
    MachineInput::Requested(Request::Abort)
}

/// Returns a run whose turn was interrupted and that waits for a person.
fn interrupted() -> Trace {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    trace
}

#[test]
fn a_stop_after_the_iteration_ends_an_interrupted_turn_within_the_budget() {
    for is_repeated in [false, true] {
        let mut trace = Trace::new(rules(|_| {}));
        if is_repeated {
            trace.then(stop(StopTiming::AfterIteration));
            assert_eq!(trace.machine.deadline(), StopDeadline::Unset);
        }
        trace.then(MachineInput::TurnEnded(TurnOutcome::Interrupted));
        let effects = trace.then(stop(StopTiming::AfterIteration));
        let by = Timestamp::from_millis(trace.now) + STOP_BUDGET;
        assert_eq!(effects[0], Effect::StopBy(StopDeadline::Stop { by }));
        assert!(effects.contains(&Effect::Emit(RunUpdate::Stopping)));
        assert_eq!(effects.last(), Some(&stop_attempt(None)));
    }
}

#[test]
fn stop_after_iteration_has_no_deadline_during_the_iteration() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(stop(StopTiming::AfterIteration));
    let later = Effect::Emit(RunUpdate::StoppingAfterIteration);
    assert_eq!(effects, [Effect::Save, later]);
    assert!(!trace.machine.is_stopping());
}

#[test]
fn queued_request_starts_its_deadline_when_it_is_handled() {
    let mut trace = Trace::new(rules(|_| {}));
    let foreseen = |abort| MachineInput::StopForeseen { abort };
    assert!(foreseen(true).is_transient() && MachineInput::Ending.is_transient());
    let head = trace.machine.head().clone();
    let by = Timestamp::from_millis(trace.now + 100) + STOP_BUDGET;
    let deadline = Effect::StopBy(StopDeadline::Stop { by });
    assert_eq!(trace.then(foreseen(false)), std::slice::from_ref(&deadline));
    assert_eq!(trace.machine.head(), &head, "the request itself follows");
    assert_eq!(trace.then(stop(StopTiming::Now))[0], deadline);
    let by = Timestamp::from_millis(trace.now + 100) + ABORT;
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
        assert_eq!(trace.then(MachineInput::Ending), []);
        let head = trace.machine.head().clone();
        for what in [
            MachineInput::TurnEnded(TurnOutcome::Completed),
            MachineInput::Requested(Request::Continue),
        ] {
            assert_eq!(trace.then(what), []);
        }
        // The iteration is complete, so both kinds of stop take effect now.
        for (what, is_abort) in [
            (stop(StopTiming::AfterIteration), false),
            (stop(StopTiming::Now), false),
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
fn suspended_run_keeps_its_budget() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    let by = trace.machine.deadline().by().unwrap();
    let frozen = Duration::from_secs(60);
    trace.then(MachineInput::Thawed(frozen));
    assert_eq!(trace.machine.deadline().by(), Some(by + frozen));
}

#[test]
fn resuming_process_has_no_deadline_of_the_previous_one() {
    let mut trace = interrupted();
    trace.then(stop(StopTiming::Now));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert!(trace.machine.is_stopping());
    trace.then(MachineInput::Resumed(ResumeOptions::default()));
    assert_eq!(trace.machine.deadline(), StopDeadline::Unset);
}

#[test]
fn stop_before_the_first_input_is_saved_with_the_reason_of_the_head() {
    let request = StopRequest {
        by: StopCause::HungUp,
        when: StopTiming::Now,
    };
    let early = || MachineInput::StoppedBeforeStart(request);
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(early());
    assert!(matches!(effects[0], Effect::StopBy(_)));
    assert_eq!(effects[1..], [Effect::Save, Effect::EndRun]);
    let stopped = StopReason::Stopped(StopCause::HungUp);
    assert_eq!(trace.machine.head().stop_reason(), Some(stopped));

    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    let done = trace.reason();
    assert_eq!(trace.then(early()).last(), Some(&Effect::EndRun));
    assert_eq!(trace.machine.head().stop_reason(), Some(done));
}

#[test]
fn shutdown_without_reason_is_a_termination() {
    let mut trace = Trace::new(rules(|_| {}));
    let wait = Effect::AwaitStop(SHUTDOWN_REASON);
    assert_eq!(trace.then(MachineInput::ShutDown), [wait]);
    assert_eq!(trace.then(MachineInput::ShutDown), []);
    let effects = trace.then(MachineInput::TimerExpired(Timer::Shutdown));
    assert_eq!(effects[0], Effect::StopBy(trace.machine.deadline()));
    assert_eq!(effects.last(), Some(&stop_attempt(None)));
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.reason(), StopReason::Stopped(StopCause::Terminated));

    let mut trace = Trace::new(rules(|_| {}));
    trace.then(stop(StopTiming::Now));
    assert_eq!(
        trace.then(MachineInput::ShutDown),
        [],
        "the reason is known"
    );
}

#[test]
fn aborted_turn_is_ended_without_an_interrupt() {
    let mut trace = Trace::new(rules(|_| {}));
    let effects = trace.then(abort());
    let (why, at_once) = (None, true);
    assert_eq!(effects.last(), Some(&Effect::StopAttempt { why, at_once }));
}

#[test]
fn no_timer_and_no_silence_counts_during_suspension() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
        rules.limits.max_duration = Some(Duration::from_secs(60));
    }));
    let due = trace.machine.next_deadline().unwrap();
    trace.then(MachineInput::Frozen(true));
    let frozen_at = Timestamp::from_millis(trace.now);
    trace.then(MachineInput::Frozen(true));
    let machine = &trace.machine;
    assert_eq!((machine.next_deadline(), machine.silence()), (None, None));
    assert_eq!(machine.due_input(due), None);
    let frozen = machine.frozen_for(due).unwrap();
    assert_eq!(frozen, due.since(frozen_at), "since the suspend began");
    trace.now = due.as_millis();
    trace.then(MachineInput::Frozen(false));
    trace.then(MachineInput::Thawed(frozen));
    assert_eq!(trace.machine.frozen_for(due), None);
    assert_eq!(trace.machine.next_deadline(), Some(due + frozen));
}

#[test]
fn stop_saves_before_git_answers_and_ends_everything() {
    let mut trace = Trace::new(rules(|_| {}));
    assert_eq!(
        trace.machine.git_status_wait(SaveKind::Progress),
        GitStatusWait::Brief
    );
    assert_eq!(
        trace.machine.git_status_wait(SaveKind::FinishedPhase),
        GitStatusWait::Awaited
    );
    assert!(trace.machine.keeps_leftovers() && trace.machine.keeps_notify_calls());
    assert_eq!(
        trace.machine.ends_within(Timestamp::from_millis(trace.now)),
        None
    );
    trace.then(stop(StopTiming::Now));
    for save in [SaveKind::Progress, SaveKind::FinishedPhase] {
        assert_eq!(trace.machine.git_status_wait(save), GitStatusWait::Skipped);
    }
    assert!(!trace.machine.keeps_leftovers() && !trace.machine.keeps_notify_calls());
    let left = trace
        .machine
        .ends_within(Timestamp::from_millis(trace.now + 1000));
    assert_eq!(left, Some(STOP_BUDGET - Duration::from_secs(1)));
}

#[test]
fn last_save_of_a_run_awaits_the_git_status() {
    let mut trace = Trace::new(rules(|_| {}));
    trace.iteration(CheckResult::Passed);
    assert!(trace.machine.head().end.is_some());
    assert_eq!(
        trace.machine.git_status_wait(SaveKind::Progress),
        GitStatusWait::Awaited
    );
}

#[test]
fn process_begins_a_run_by_its_start_or_resume() {
    let mut trace = Trace::new(rules(|_| {}));
    assert!(trace.machine.has_begun());
    trace.machine = Machine::from(trace.machine.head().clone());
    assert!(!trace.machine.has_begun(), "it is another process");
    trace.then(MachineInput::Resumed(ResumeOptions::default()));
    assert!(trace.machine.has_begun());
}

#[test]
fn stop_limits_the_time_for_every_end() {
    let mut trace = Trace::new(rules(|_| {}));
    let now = Timestamp::from_millis(trace.now);
    assert_eq!(trace.machine.budget(now), STOP_BUDGET);
    trace.then(stop(StopTiming::Now));
    let second = Duration::from_secs(1);
    let later = Timestamp::from_millis(trace.now) + second;
    assert_eq!(trace.machine.budget(later), STOP_BUDGET - second);
}

#[test]
fn complete_iteration_is_committed_also_if_the_run_is_being_stopped() {
    let mut trace = Trace::new(rules(|_| {}));
    assert!(!trace.machine.commits(), "the turn runs");
    trace.then(MachineInput::TurnEnded(TurnOutcome::Completed));
    assert!(!trace.machine.commits(), "the check runs");
    trace.then(MachineInput::CheckEnded(failed("it is red")));
    assert!(trace.machine.commits());
    trace.then(stop(StopTiming::Now));
    assert!(
        trace.machine.commits(),
        "the commit reports that it was stopped"
    );
}

#[test]
fn reason_of_a_pause_applies_from_its_request_to_the_end_of_the_pause() {
    let mut trace = Trace::new(rules(|_| {}));
    let pauses = |trace: &Trace| trace.machine.is_pausing_or_paused();
    assert!(!pauses(&trace));
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    assert!(pauses(&trace), "it was requested");
    trace.iteration(failed("it is red"));
    assert!(pauses(&trace), "the run waits");
    trace.then(MachineInput::Requested(Request::Continue));
    assert!(!pauses(&trace));
    assert!(pauses(&interrupted()), "the session waits");
    trace.then(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    trace.then(abort());
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert!(!pauses(&trace), "the run has ended");
}
