//! When a turn has been silent, or has lasted, for too long.

use std::time::Duration;

use loop_state::{Happening, Step, Timer, Timestamp};

use crate::rules;
use crate::traces::Trace;

#[test]
fn s5d_a_running_tool_is_not_silence() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
    }));
    assert_eq!(trace.machine.next_deadline(), Some(Timestamp(2100)));
    trace.machine.busy(true);
    assert_eq!(trace.machine.due(Timestamp(60_000)), None);
    trace.machine.busy(false);
    trace.machine.alive(Timestamp(60_000));
    assert_eq!(trace.machine.next_deadline(), Some(Timestamp(62_000)));
}

#[test]
fn p49_s05_an_announced_wait_is_patience_and_a_bounded_one() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.idle_timeout = Some(Duration::from_secs(2));
    }));
    let silence = |trace: &Trace| trace.machine.silence().map(|s| (s.since.0, s.until.0));
    assert_eq!(silence(&trace), Some((100, 2100)));
    trace
        .machine
        .retrying(Timestamp(1000), Duration::from_secs(30));
    assert_eq!(trace.machine.due(Timestamp(32_999)), None);
    // What comes meanwhile takes nothing of it away.
    trace.machine.alive(Timestamp(5000));
    assert_eq!(silence(&trace), Some((31_000, 33_000)));
    assert_eq!(trace.machine.next_deadline(), Some(Timestamp(33_000)));
    trace.machine.retrying(Timestamp(40_000), Duration::MAX);
    assert_eq!(silence(&trace), Some((3_640_000, 3_642_000)));
    trace.machine.busy(true);
    assert_eq!(silence(&trace), None);
    trace.machine.busy(false);
    trace.then(Happening::TimeUp(Timer::Idle));
    assert_eq!(silence(&trace), None, "its turn is being ended");
}

#[test]
fn x126c_time_in_which_all_stood_still_is_not_held_against_the_turn() {
    let mut trace = Trace::new(rules(|rules| {
        rules.phases[0].limits.iteration_timeout = Some(Duration::from_secs(10));
    }));
    trace.now = 3_600_000;
    trace.then(Happening::Thawed(Duration::from_secs(3595)));
    assert!(matches!(trace.machine.head().step, Step::Turn { .. }));
    let due = trace.machine.next_deadline().unwrap();
    assert!(due > Timestamp(trace.now), "{due:?}");
    assert_eq!(
        trace.machine.due(due),
        Some(Happening::TimeUp(Timer::Iteration))
    );
}
