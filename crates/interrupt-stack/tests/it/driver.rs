//! Tests of the driver: the same ladder without the crate's threads.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::{
    apart,
    child::{Place, Probe, Seat},
};

#[test]
fn driver_wakes_handlers_and_announces_shutdown() {
    for (signal, line) in [
        (Signal::TERM, "Terminate after 3 presses"),
        (Signal::HUP, "Hangup after 3 presses"),
    ] {
        let mut probe = Probe::start("driven");
        for press in 1..=3 {
            probe.press();
            assert_eq!(probe.line(), format!("run: press {press}"));
        }
        probe.kill(signal);
        assert_eq!(probe.line(), line);
        assert_eq!(probe.end().signal(), Some(signal.as_raw()));
    }
    let mut probe = Probe::start("driven");
    probe.kill(Signal::QUIT);
    assert_eq!(probe.end().signal(), Some(3));
}

#[test]
fn driver_enforces_the_deadlines() {
    let mut probe = Probe::start("driven, hung, with deadline");
    probe.press();
    assert_eq!(probe.line(), "run: press 1", "the handler below got it");
    probe.kill(Signal::TERM);
    assert_eq!(probe.line(), "shutdown Terminate");
    assert_eq!(probe.end().signal(), Some(15), "by the shutdown deadline");
}

#[test]
fn driver_follows_the_same_ladder() {
    let mut probe = Probe::start("driven, hung");
    probe.press();
    probe.kill(Signal::INT);
    assert_eq!(probe.line(), "shutdown Press");
    apart();
    assert!(probe.is_alive());
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
}

#[test]
fn press_without_its_driver_is_found_by_the_next_check() {
    let mut probe = Probe::start("driver dropped");
    probe.press();
    probe.resume();
    assert_eq!(probe.line(), "Some(1), None");
    apart();
    probe.kill(Signal::TERM);
    apart();
    probe.resume();
    assert_eq!(probe.line(), "None, Some(Terminate)");
}

/// Two presses that are processed late are still two, because each has its own time.
#[test]
fn late_decided_presses_stay_separate() {
    let mut probe = Probe::start("driver dropped");
    for _ in 0..2 {
        probe.press();
    }
    probe.resume();
    assert_eq!(probe.line(), "None, Some(Press)");
}

#[test]
fn driver_ends_with_the_last_handle_and_restores_the_signals() {
    let mut probe = Probe::start("driver over");
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
}

#[test]
fn unread_press_counts_when_the_signals_are_released() {
    let mut probe = Probe::start("driver unread");
    probe.press();
    probe.resume();
    assert_eq!(probe.line(), "0, then 1");
}

/// A full wake pipe must not block the threads that process events.
#[test]
fn driver_that_never_runs_blocks_nothing() {
    let mut probe = Probe::start("driver idle");
    assert_eq!(probe.line(), "70000 presses");
    for _ in 0..3 {
        probe.press();
    }
    assert_eq!(probe.end().signal(), Some(2));
}

#[test]
fn driver_runs_the_suspend_hooks() {
    let mut seat = Seat::take(Place::Foreground, "driven, suspendable", "");
    for press in 1..=2 {
        seat.send(b"\x1a");
        assert_eq!(seat.line(), "suspends");
        assert_eq!(seat.line(), "stopped 20");
        seat.kill(Signal::CONT);
        assert_eq!(seat.line(), "resumes");
        seat.send(b"\x03");
        assert_eq!(seat.line(), format!("run: press {press}"));
        apart();
    }
}
