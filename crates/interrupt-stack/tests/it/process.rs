//! Tests of real processes with real signals: how they end, and how a parent or a shell sees it.

use std::{os::unix::process::ExitStatusExt, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    apart,
    child::{Probe, send},
    pass, wait_for,
};

#[test]
fn j27b_j27c_process_cleans_up_and_dies_by_sigint() {
    let mut probe = Probe::start("graceful");
    probe.kill(Signal::INT);
    assert_eq!(probe.line(), "cleanup Press, 1 presses");
    assert_eq!(probe.end().signal(), Some(2));

    let mut probe = Probe::start_by("\"$@\"; echo \"probe: shell says $?\" >&2", "graceful");
    probe.kill(Signal::INT);
    assert_eq!(
        (probe.line(), probe.line()),
        ("cleanup Press, 1 presses".into(), "shell says 130".into())
    );
    assert!(probe.end().success());
}

#[test]
fn j33a_three_presses_end_a_process_that_cannot_act() {
    for state in [
        "hung",
        "blocked workers",
        "blocked current thread",
        "blocked runtime drop",
        "blocked waker",
    ] {
        let mut probe = Probe::start(state);
        probe.press();
        assert_eq!(probe.line(), "press 1", "{state}");
        probe.kill(Signal::INT);
        let mut lines = [probe.line(), probe.line()];
        lines.sort();
        assert_eq!(lines, ["press 2", "shutdown Press"], "{state}");
        assert!(probe.is_alive(), "{state}: graceful so far");
        apart();
        probe.kill(Signal::INT);
        assert_eq!(probe.end().signal(), Some(2), "{state}");
    }
}

#[test]
fn j33a_j33b_second_terminate_is_no_press() {
    let mut probe = Probe::start("hung");
    probe.kill(Signal::TERM);
    assert_eq!(probe.line(), "shutdown Terminate");
    probe.kill(Signal::TERM);
    probe.kill(Signal::HUP);
    apart();
    assert!(probe.is_alive());
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
}

#[test]
fn hung_shutdown_ends_at_its_deadline_with_its_cause() {
    let mut probe = Probe::start("hung, with deadline");
    probe.kill(Signal::TERM);
    assert_eq!(probe.end().signal(), Some(15));
}

#[test]
fn j42a_j42b_terminate_and_hangup_are_graceful_and_quit_is_not() {
    for (signal, number, line) in [
        (Signal::TERM, 15, "cleanup Terminate, 0 presses"),
        (Signal::HUP, 1, "cleanup Hangup, 0 presses"),
    ] {
        let mut probe = Probe::start("graceful");
        probe.kill(signal);
        assert_eq!(probe.line(), line);
        assert_eq!(probe.end().signal(), Some(number));
    }
    // Core files are allowed here, so a missing core file shows that the crate prevented it.
    let mut probe = Probe::start_by("ulimit -c unlimited; exec \"$@\"", "graceful");
    probe.kill(Signal::QUIT);
    let status = probe.end();
    assert_eq!((status.signal(), status.core_dumped()), (Some(3), false));
    assert!(probe.rest().is_empty(), "no cleanup");
}

#[test]
fn j42d_ignored_at_start_stays_ignored() {
    let mut probe = Probe::start_by("trap '' INT HUP QUIT; exec \"$@\"", "graceful");
    probe.kill(Signal::INT);
    probe.kill(Signal::HUP);
    probe.kill(Signal::QUIT);
    probe.kill(Signal::TERM);
    assert_eq!(probe.line(), "cleanup Terminate, 0 presses");
    assert_eq!(probe.end().signal(), Some(15));
}

/// A shell without job control starts background commands with these two signals ignored.
#[test]
fn ignored_keys_are_caught_on_request() {
    let ignored = "trap '' INT HUP QUIT; exec \"$@\"";
    let mut probe = Probe::start_by(ignored, "graceful, with ignored keys");
    probe.kill(Signal::HUP);
    probe.kill(Signal::INT);
    assert_eq!(probe.line(), "cleanup Press, 1 presses");
    assert_eq!(probe.end().signal(), Some(2));
    let mut probe = Probe::start_by(ignored, "graceful, with ignored keys");
    probe.kill(Signal::QUIT);
    assert_eq!(probe.end().signal(), Some(3));
}

#[test]
fn j43_press_during_a_slow_start_is_graceful() {
    let mut probe = Probe::start("slow start");
    probe.press();
    assert!(probe.is_alive());
    probe.resume();
    assert_eq!(probe.line(), "cleanup Press");
    assert_eq!(probe.end().signal(), Some(2));
}

/// This also tests C58: a second install in the same process catches the signals again.
#[test]
fn x122a_x122b_dropped_install_restores_the_signals() {
    let mut probe = Probe::start("installed twice");
    for _ in 0..2 {
        // The first ladder is still alive; if it got the signals, the third press would end the process.
        probe.press();
        probe.press();
        probe.resume();
        assert_eq!(probe.line(), "2 presses");
        probe.expect_ready();
    }
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
}

/// The install holds for the life of the process, without any handle: the first press begins the shutdown and doesn't end the process, and the second
/// press is the hard exit.
#[test]
fn k3_install_outlives_its_handles() {
    let mut probe = Probe::start("setup");
    probe.press();
    assert!(probe.is_alive());
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
}

/// "Abort" in a menu looks like Ctrl-C to the shell, and not like a crash.
#[test]
fn hard_exit_on_request_dies_by_its_cause_and_runs_the_hook() {
    let mut probe = Probe::start("aborting");
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
    assert_eq!(probe.rest(), ["hook Press"]);
}

/// The signal handler and the ladder both use the new debounce. With the old one, the handler would end the process at the second press.
#[test]
fn debounce_can_change_after_the_install() {
    let mut probe = Probe::start("debounce set later");
    probe.press(); // begins the shutdown
    for _ in 0..2 {
        probe.resume();
        assert_eq!(
            probe.line(),
            "1 presses",
            "an injected press is the same press"
        );
        probe.press();
    }
    assert!(probe.is_alive());
}

/// A child inherits the blocked signals of its parent. A press must still reach one of the crate's threads and end the process.
#[cfg(target_os = "linux")]
#[test]
fn inherited_mask_does_not_silence_signals() {
    for (state, presses) in [("graceful", 1), ("hung", 3)] {
        let mut probe = Probe::start_by("exec env --block-signal=INT,TERM,HUP,QUIT \"$@\"", state);
        for _ in 0..presses {
            probe.press();
        }
        assert_eq!(probe.end().signal(), Some(2), "{state}");
    }
}

/// A program that closes all descriptors closes the wake pipe too. The ladder still works, and its threads don't use the processor.
#[cfg(target_os = "linux")]
#[test]
fn presses_work_without_free_descriptors() {
    let mut probe = Probe::start("hung, without descriptors");
    let busy = probe.processor_ticks();
    probe.press();
    assert_eq!(probe.line(), "press 1");
    probe.press();
    let mut lines = [probe.line(), probe.line()];
    lines.sort();
    assert_eq!(lines, ["press 2", "shutdown Press"]);
    // Three threads that check in a busy loop would use far more than these few ticks.
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    assert!(
        never
            .recv_timeout(std::time::Duration::from_millis(500))
            .is_err()
    );
    let spent = probe.processor_ticks() - busy;
    assert!(spent < 20, "{spent} ticks of the processor");
    probe.press();
    assert_eq!(probe.end().signal(), Some(2));
}

/// A signal that was pending because of the mask goes to the install, and not to the default action.
#[cfg(target_os = "linux")]
#[test]
fn j43_press_before_the_install_waits_for_it() {
    let script = "exec env --block-signal=INT sh -c 'kill -INT $$; exec \"$@\"' sh \"$@\"";
    let mut probe = Probe::start_by(script, "graceful");
    assert_eq!(probe.line(), "cleanup Press, 1 presses");
    assert_eq!(probe.end().signal(), Some(2));
    #[cfg(feature = "driver")]
    {
        let mut probe = Probe::start_by(script, "driver dropped");
        probe.resume();
        assert_eq!(probe.line(), "Some(1), None");
    }
}

/// Between `fork` and `exec` a child has the parent's handler, but a signal to the child doesn't count for the parent.
#[test]
fn signal_to_a_forked_child_ends_only_the_child() {
    let mut probe = Probe::start_by("ulimit -c 0; exec \"$@\"", "forking");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        probe.resume();
        let line = probe.line();
        let child = line
            .strip_prefix("forked ")
            .and_then(|pid| pid.parse().ok());
        kill_process(Pid::from_raw(child.unwrap()).unwrap(), signal).unwrap();
        assert_eq!(
            probe.line(),
            format!("it died by Some({})", signal.as_raw())
        );
        assert_eq!(probe.line(), "0 presses, None");
    }
    for _ in 0..3 {
        probe.press();
    }
    assert_eq!(probe.end().signal(), Some(2), "the parent still works");
}

#[test]
fn suspend_without_hooks_is_the_default_and_forgives_a_dropped_notice() {
    let mut probe = Probe::start("unsuspendable");
    for press in 1..=3 {
        probe.kill(Signal::INT);
        assert_eq!(probe.line(), format!("dropped {press}"));
        probe.kill(Signal::TSTP);
        wait_for("the stop", || probe.is_stopped());
        probe.kill(Signal::CONT);
        wait_for("the start", || !probe.is_stopped());
        apart();
    }
    probe.kill(Signal::INT);
    assert_eq!(probe.line(), "dropped 4");
    apart();
    probe.kill(Signal::INT);
    assert_eq!(
        probe.line(),
        "Press after 5 presses",
        "the control: no stop between them"
    );
    assert_eq!(probe.end().signal(), Some(2));
}

/// `SIGCONT` cancels a pending suspension, as in the kernel, even while the suspend hook runs.
#[test]
fn suspend_that_is_cancelled_by_its_hook_does_not_happen() {
    let mut probe = Probe::start("slowly suspendable");
    for _ in 0..2 {
        probe.kill(Signal::TSTP);
        assert_eq!(probe.line(), "suspends");
        send(probe.pid, Signal::TSTP); // waits for the first one, and is cancelled with it
        send(probe.pid, Signal::CONT);
        probe.resume();
        assert_eq!(probe.line(), "has suspended");
        assert_eq!(probe.line(), "resumes", "after the other hook");
    }
    probe.kill(Signal::TSTP);
    assert_eq!(probe.line(), "suspends");
    probe.resume();
    assert_eq!(probe.line(), "has suspended");
    wait_for("the control: the stop", || probe.is_stopped());
    probe.kill(Signal::CONT);
    assert_eq!(probe.line(), "resumes");
}

#[test]
fn suspend_does_nothing_after_the_signals_are_restored() {
    let probe = Probe::start("suspended when let go");
    assert_eq!(probe.line(), "continues");
}

/// Signals and injected presses share one debounce, whichever comes first.
#[test]
fn press_that_is_both_signal_and_injected_counts_once() {
    for signal_first in [true, false] {
        let mut probe = Probe::start("long debounce");
        if signal_first {
            probe.kill(Signal::INT);
            assert_eq!(probe.line(), "press 1 by Signal");
            probe.resume();
        } else {
            probe.resume();
            let mut lines = [probe.line(), probe.line()];
            lines.sort();
            assert_eq!(lines, ["1 presses", "press 1 by Injected"]);
            probe.kill(Signal::INT);
            probe.resume();
        }
        assert_eq!(probe.line(), "1 presses");
    }
}

/// The signal handler must know of an injected press. Otherwise it would treat the signal of the same press as the last one.
#[test]
fn signal_of_an_injected_press_is_not_the_last_stage() {
    let mut probe = Probe::start("long debounce, nobody answers");
    probe.resume();
    assert_eq!(probe.line(), "1 presses", "shutdown has begun");
    probe.press();
    probe.resume();
    assert_eq!(probe.line(), "1 presses");
    assert!(probe.is_alive());
}

#[test]
fn hard_exit_can_run_on_a_thread() {
    let mut probe = Probe::start("hung by thread");
    for _ in 0..3 {
        assert!(probe.is_alive());
        probe.press();
    }
    assert_eq!(probe.end().signal(), Some(2));
}

#[test]
fn hard_exit_can_be_left_to_the_program() {
    let mut probe = Probe::start("hung by callback");
    let (mut presses, mut exits) = (0, 0);
    while exits < 3 {
        presses += 1;
        assert!(presses < 20, "no press called back");
        probe.press();
        while let Some(line) = probe.next_line() {
            exits += u32::from(line == "exit Press");
        }
    }
    assert!(probe.is_alive());
}

/// The time of a stop doesn't count: the deadline starts again, and then it takes effect.
#[test]
fn shutdown_deadline_works_after_a_suspend() {
    let mut probe = Probe::start("hung, with deadline");
    probe.kill(Signal::STOP);
    probe.kill(Signal::TERM);
    wait_for("the stop", || probe.is_stopped());
    pass(Duration::from_millis(300));
    probe.kill(Signal::CONT);
    assert_eq!(probe.line(), "shutdown Terminate");
    assert_eq!(probe.end().signal(), Some(15));
}

/// A hook that hangs delays the exit by one press or by two seconds, but never prevents it.
#[test]
fn hanging_exit_hook_is_ended_by_a_press_or_a_timeout() {
    for presses in [3, 4] {
        let mut probe = Probe::start("hung, hung exit hook");
        let mut heard = Vec::new();
        for press in 1..=3 {
            assert!(probe.is_alive(), "before press {press}");
            probe.press();
        }
        while heard.last().is_none_or(|line| line != "hook Press") {
            heard.push(probe.line());
        }
        if presses == 4 {
            probe.kill(Signal::INT);
        }
        assert_eq!(probe.end().signal(), Some(2), "{presses}");
    }
}

#[test]
fn hanging_exit_hook_is_ended_by_a_raw_press() {
    let mut probe = Probe::start("raw, hung exit hook");
    for _ in 0..3 {
        probe.resume();
        apart();
    }
    let mut heard = [(); 4].map(|()| probe.line());
    heard.sort();
    assert_eq!(heard, ["hook Press", "pressed", "pressed", "pressed"]);
    assert!(probe.is_alive());
    probe.resume();
    assert_eq!(probe.end().signal(), Some(2));
}

/// The control: with a hook that returns, three presses are enough.
#[test]
fn returning_exit_hook_delays_nothing() {
    let mut probe = Probe::start("hung, exit hook");
    for _ in 0..3 {
        assert!(probe.is_alive());
        probe.press();
    }
    assert_eq!(probe.end().signal(), Some(2));
    assert!(probe.rest().contains(&"hook Press".to_owned()));
}
