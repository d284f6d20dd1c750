//! Idle timeouts and turn limits.

use std::time::Duration;

use loop_state::{Effect, IterationStep, MachineInput, Reminder, Timer, Timestamp, TurnOutcome};

use crate::rules;
use crate::traces::{Trace, stop_attempt};

/// Passes an input about the live agent to the machine; such an input changes no head and has no effects.
fn sign(trace: &mut Trace, at: u64, what: MachineInput) {
    assert!(what.is_transient());
    let before = trace.machine.head().clone();
    assert_eq!(trace.machine.step(crate::at(at, what)), []);
    assert_eq!(trace.machine.head(), &before);
}

#[test]
fn s5d_a_running_tool_is_not_silence() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
    }));
    assert_eq!(
        trace.machine.next_deadline(),
        Some(Timestamp::from_millis(2100))
    );
    sign(&mut trace, 0, MachineInput::AgentBusy(true));
    assert_eq!(
        trace.machine.due_input(Timestamp::from_millis(60_000)),
        None
    );
    sign(&mut trace, 0, MachineInput::AgentBusy(false));
    sign(&mut trace, 60_000, MachineInput::AgentActive);
    assert_eq!(
        trace.machine.next_deadline(),
        Some(Timestamp::from_millis(62_000))
    );
}

#[test]
fn silence_is_reported_once_at_two_thirds_of_the_limit() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(30));
    }));
    let machine = &mut trace.machine;
    let mut report = |at: u64| {
        let what = machine.reminder_due(Timestamp::from_millis(at))?;
        machine.step(crate::at(at, what)).pop()
    };
    assert_eq!(report(20_099), None);
    let silent = Duration::from_millis(20_001);
    let of = Duration::from_secs(30);
    let reminder = Effect::Remind(Reminder::Silent { silent, of });
    assert_eq!(report(20_101), Some(reminder));
    assert_eq!(report(30_000), None);
    machine.step(crate::at(25_000, MachineInput::AgentActive));
    assert_eq!(
        machine.next_reminder(),
        Some(Timestamp::from_millis(45_000))
    );
    machine.step(crate::at(26_000, MachineInput::Frozen(true)));
    assert_eq!(machine.next_reminder(), None);
}

#[test]
fn p49a_s5d_announced_wait_is_no_silence_and_is_limited() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
    }));
    let silence = |trace: &Trace| {
        trace
            .machine
            .silence()
            .map(|s| (s.since.as_millis(), s.until.as_millis()))
    };
    assert_eq!(silence(&trace), Some((100, 2100)));
    sign(
        &mut trace,
        1000,
        MachineInput::AgentRetrying(Duration::from_secs(30)),
    );
    assert_eq!(
        trace.machine.due_input(Timestamp::from_millis(32_999)),
        None
    );
    // Activity in the meantime doesn't shorten the announced wait.
    sign(&mut trace, 5000, MachineInput::AgentActive);
    assert_eq!(silence(&trace), Some((31_000, 33_000)));
    assert_eq!(
        trace.machine.next_deadline(),
        Some(Timestamp::from_millis(33_000))
    );
    sign(
        &mut trace,
        40_000,
        MachineInput::AgentRetrying(Duration::MAX),
    );
    assert_eq!(silence(&trace), Some((3_640_000, 3_642_000)));
    sign(&mut trace, 0, MachineInput::AgentBusy(true));
    assert_eq!(silence(&trace), None);
    sign(&mut trace, 0, MachineInput::AgentBusy(false));
    trace.then(MachineInput::TimerExpired(Timer::Idle));
    assert_eq!(silence(&trace), None, "the turn is being ended");
}

#[test]
fn x126c_suspended_time_does_not_count_for_the_turn() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.iteration_timeout = Some(Duration::from_secs(10));
    }));
    trace.now = 3_600_000;
    trace.then(MachineInput::Thawed(Duration::from_secs(3595)));
    assert!(matches!(
        trace.machine.head().step,
        IterationStep::Turn { .. }
    ));
    let due = trace.machine.next_deadline().unwrap();
    assert!(due > Timestamp::from_millis(trace.now), "{due:?}");
    assert_eq!(
        trace.machine.due_input(due),
        Some(MachineInput::TimerExpired(Timer::Iteration))
    );
}

#[test]
fn x108b_turn_that_times_out_is_interrupted_and_not_awaited() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.iteration_timeout = Some(Duration::from_secs(10));
    }));
    let due = trace.machine.next_deadline().unwrap();
    let passed = trace.machine.due_input(due).unwrap();
    assert_eq!(passed, MachineInput::TimerExpired(Timer::Iteration));
    assert_eq!(
        trace.then(passed),
        [stop_attempt(Some("the turn took longer than 10s"))]
    );
    trace.then(MachineInput::TurnEnded(TurnOutcome::Stopped));
    assert_eq!(trace.machine.head().streaks.failures, 1);
}
