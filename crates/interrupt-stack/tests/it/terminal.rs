//! Tests of typed presses on real terminals.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::{
    apart,
    child::{Place, Seat},
    wait_for,
};

#[test]
fn j28c_press_is_a_signal_in_cooked_mode_and_a_byte_in_raw_mode() {
    let mut seat = Seat::take(Place::Foreground, "terminal", "");
    let mut number = 0;
    for (key, source) in [
        (None, "Signal"),
        (Some("k"), "Signal"),
        (Some("r"), "RawByte"),
        (Some("o"), "Signal"),
        (Some("r"), "RawByte"),
    ] {
        if let Some(key) = key {
            seat.send(key);
            if number == 1 || number == 4 {
                seat.send("\n"); // a cooked terminal passes only whole lines
            }
            assert_eq!(seat.line(), "changed");
            if number == 1 || number == 4 {
                assert_eq!(seat.line(), "key 10");
            }
        }
        seat.send(b"\x03");
        number += 1;
        assert_eq!(seat.line(), format!("press {number} by {source}"));
        apart();
    }
    seat.kill(Signal::TERM);
    assert_eq!(seat.line(), "Terminate after 5 presses");
}

/// Each press counts once, whether it came as a signal or as a byte.
#[test]
fn presses_while_raw_mode_is_entered_and_left_count_once_each() {
    let mut seat = Seat::take(Place::Foreground, "toggling", "");
    let (mut number, mut sources) = (0, BTreeSet::new());
    while number < 20 || sources.len() < 2 && number < 200 {
        number += 1;
        seat.send(b"\x03");
        let line = seat.line();
        let source = line.strip_prefix(&format!("press {number} by "));
        sources.insert(source.unwrap_or_else(|| panic!("{line}")).to_owned());
        apart();
    }
    seat.kill(Signal::TERM);
    assert_eq!(seat.line(), format!("Terminate after {number} presses"));
    assert_eq!(sources.len(), 2, "both sources occurred: {sources:?}");
}

#[test]
fn j39a_j39c_press_on_a_menu_begins_shutdown_and_a_key_continues() {
    let mut seat = Seat::take(Place::Foreground, "menu", "");
    for _ in 0..3 {
        seat.send(b"\x03");
        assert_eq!(seat.line(), "menu");
        seat.send("xc");
        assert_eq!(seat.line(), "continues");
        apart();
    }
    seat.send(b"\x03");
    assert_eq!(seat.line(), "menu");
    apart();
    seat.send(b"\x03");
    assert_eq!(seat.line(), "Press after 5 presses");
    assert_eq!(seat.end(), "ended signal 2");
    assert_eq!(seat.settings(), seat.before);
}

/// A job in the background doesn't touch the terminal, and isn't stopped by it.
#[test]
fn j47e_hard_exit_in_the_background_leaves_the_terminal_alone() {
    let mut seat = Seat::take(Place::Background, "hung", "");
    let others = seat.change(); // as if the foreground program had made it raw
    for line in ["press 1", "press 2"] {
        seat.kill(Signal::INT);
        assert_eq!(seat.line(), line);
        apart();
    }
    assert_eq!(seat.line(), "shutdown Press");
    seat.kill(Signal::INT);
    assert_eq!(seat.end(), "ended signal 2");
    assert!(!seat.text().contains("stopped"), "{}", seat.text());
    assert_eq!(seat.settings(), others);
}

/// The shutdown deadline, which a thread keeps, restores the terminal too.
#[test]
fn shutdown_deadline_restores_the_terminal() {
    let mut seat = Seat::take(Place::Foreground, "hung, with deadline", "raw");
    assert_ne!(seat.settings(), seat.before);
    seat.kill(Signal::TERM);
    assert_eq!(seat.end(), "ended signal 15");
    assert_eq!(seat.settings(), seat.before);
}

#[test]
fn hard_exit_by_a_thread_restores_the_terminal_unless_disabled() {
    for (state, is_restored) in [("hung by thread", true), ("hung unrestored", false)] {
        let mut seat = Seat::take(Place::Foreground, state, "raw");
        seat.press();
        seat.press();
        seat.kill(Signal::INT);
        assert_eq!(seat.end(), "ended signal 2", "{state}");
        assert_eq!(seat.settings() == seat.before, is_restored, "{state}");
    }
}

#[test]
fn suspend_runs_its_hooks_before_and_after() {
    for (mode, raw) in [("keys", false), ("raw", true)] {
        let mut seat = Seat::take(Place::Foreground, "terminal", mode);
        for press in 1..=2 {
            seat.send(b"\x1a");
            assert_eq!(seat.line(), "suspends", "{mode}");
            assert_eq!(seat.line(), "stopped 20", "{mode}");
            seat.kill(Signal::CONT);
            assert_eq!(seat.line(), "resumes", "{mode}");
            seat.send(b"\x03");
            let source = if raw { "RawByte" } else { "Signal" };
            assert_eq!(seat.line(), format!("press {press} by {source}"));
            apart();
        }
    }
}

#[test]
fn suspend_and_fg_work_under_bash_job_control() {
    let mut seat = Seat::shell(&["-i"], "suspendable", "");
    wait_for("the prompt", || seat.text().ends_with("$ "));
    seat.send("eval \"$JOB\"\n");
    seat.expect_ready();
    seat.send(b"\x03");
    assert_eq!(seat.line(), "dropped 1");
    apart();
    for press in 2..=3 {
        seat.send(b"\x1a");
        assert_eq!(seat.line(), "suspends");
        wait_for("the job's stop", || {
            seat.text().matches("Stopped").count() == press - 1
        });
        seat.send("fg\n");
        assert_eq!(seat.line(), "resumes");
        seat.send(b"\x03");
        assert_eq!(
            seat.line(),
            format!("dropped {press}"),
            "a notice that was dropped before the stop is forgotten"
        );
        apart();
    }
    seat.send(b"\x03");
    assert_eq!(seat.line(), "Press after 4 presses");
    seat.send("echo pro''be: code $?\n"); // quoted, so that its echo isn't read as the result
    assert_eq!(seat.line(), "code 130");
}

/// In an orphaned process group no shell could continue the process, so neither the kernel nor this crate stops it.
#[test]
fn suspend_in_an_orphaned_group_does_not_hang() {
    for orphan in ["terminal", "driven, suspendable"] {
        if orphan.starts_with("driven") && cfg!(not(feature = "driver")) {
            continue;
        }
        let mut seat = Seat::shell(&["-c", "eval \"exec $JOB\""], orphan, "");
        seat.expect_ready();
        for _ in 0..2 {
            seat.send(b"\x1a");
            assert_eq!(seat.line(), "suspends", "{orphan}");
            assert_eq!(seat.line(), "resumes", "{orphan}");
        }
        seat.send(b"\x03");
        assert!(seat.line().contains("press 1"), "{orphan}: still alive");
    }
}

/// A shell's loop ends after a program that dies by the signal, and continues after a program that exits with 130.
#[test]
fn j27c_shell_loop_stops_with_the_program() {
    let mut seat = Seat::take(Place::Foreground, "loop", "graceful");
    seat.let_the_parent_wait();
    seat.send(b"\x03");
    assert_eq!(seat.line(), "cleanup Press, 1 presses");
    assert_eq!(seat.end(), "ended signal 2", "the shell");
    assert!(!seat.text().contains("round 1"), "{}", seat.text());

    let mut seat = Seat::take(Place::Foreground, "loop", "exiting");
    for round in 1..=2 {
        seat.let_the_parent_wait();
        seat.send(b"\x03");
        assert_eq!(seat.line(), format!("round {round} ended 130"));
        if round == 1 {
            seat.expect_ready();
        }
    }
    assert_eq!(seat.line(), "after the loop");
    assert_eq!(seat.end(), "ended code 0");
}
