//! Tests of X104: a forwarded press is part of the terminal's press, and a burst of signals counts once per debounce window.

use std::{
    os::unix::process::ExitStatusExt,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    apart,
    child::{Place, Probe, Seat},
    pass, wait_for,
};

/// Starts a parent that forwards its SIGINT 200 ms later, and `probe` as its child in the same job.
fn forwarded(probe: &str) -> Seat {
    Seat::take(Place::Foreground, "forwarding", probe)
}

#[test]
fn x104a_forwarded_press_is_one_press() {
    let mut seat = forwarded("counting");
    let mut trace = Vec::new();
    for _ in 0..3 {
        seat.send(b"\x03");
        // The two processes print independently: on a busy machine, the parent can be first.
        let mut lines = [seat.line(), seat.line()];
        lines.sort_by_key(|line| line == "forwarded");
        trace.push("(^C)".to_owned());
        trace.extend(lines);
        apart();
    }
    seat.kill(Signal::TERM);
    trace.extend(["(SIGTERM)".to_owned(), seat.line()]);
    insta::assert_snapshot!("forwarded", trace.join("\n"));
}

/// The control: with a forward window shorter than the delay of the parent, the forwarded SIGINT is a separate press.
#[test]
fn x104a_control_forward_after_the_window_is_a_press() {
    let mut seat = forwarded("counting, own forwards");
    seat.send(b"\x03");
    let mut lines = [seat.line(), seat.line(), seat.line()];
    lines.sort();
    assert_eq!(
        lines,
        ["forwarded", "press 1 by Signal", "press 2 by Signal"]
    );
}

/// Each of three typed presses is one stage, although six signals come.
#[test]
fn x104a_forwarded_presses_advance_one_stage_each() {
    let mut seat = forwarded("hung");
    for press in ["press 1", "press 2"] {
        seat.send(b"\x03");
        assert_eq!(seat.line(), press);
        while seat.line() != "forwarded" {}
        apart();
        assert!(!seat.is_gone(), "{}", seat.text());
    }
    seat.send(b"\x03");
    wait_for("the end of the probe", || seat.is_gone());
}

/// Only an ancestor forwards a press; a signal from another process is a press.
#[test]
fn x104a_signal_of_another_process_is_a_press() {
    let mut seat = Seat::take(Place::Foreground, "counting", "");
    seat.send(b"\x03");
    assert_eq!(seat.line(), "press 1 by Signal");
    apart();
    seat.press(); // this test is an ancestor of the probe
    let pid = seat.probe().to_string();
    let killed = Command::new("sh")
        .args(["-c", "kill -INT \"$0\"", &pid])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(seat.line(), "press 2 by Signal");
    pass(Duration::from_millis(600));
    seat.kill(Signal::INT);
    assert_eq!(
        seat.line(),
        "press 3 by Signal",
        "after the forward window it is a new press"
    );
    seat.kill(Signal::TERM);
    assert_eq!(
        seat.line(),
        "Terminate after 3 presses",
        "the SIGINT of the ancestor was forwarded"
    );
}

fn storm(probe: &mut Probe) -> Duration {
    let start = Instant::now();
    for n in 0..10_000_u64 {
        if !probe.is_alive() {
            break;
        }
        probe.kill(Signal::INT);
        while start.elapsed() < Duration::from_micros(n * 100) {
            std::thread::yield_now();
        }
    }
    start.elapsed()
}

#[test]
fn x104b_storm_is_one_press_per_window() {
    let mut probe = Probe::start("counting for ever");
    let start = Instant::now();
    storm(&mut probe);
    probe.resume();
    let line = probe.line();
    let took = start.elapsed();
    let presses: u128 = line.strip_suffix(" presses").unwrap().parse().unwrap();
    assert!(presses >= 2, "{presses}");
    assert!(
        presses <= 1 + took.as_millis() / 30,
        "{presses} in {took:?}"
    );
}

/// Three stages take at least two debounce windows, for any number of signals.
#[test]
fn x104b_storm_advances_one_stage_per_window() {
    let mut probe = Probe::start("hung");
    let took = storm(&mut probe);
    assert_eq!(probe.end().signal(), Some(2));
    assert!(took >= Duration::from_millis(60), "{took:?}");
}
