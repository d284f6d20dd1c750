//! Tests of programs in their own pid namespace, as in a container.

use std::{io::Write, process::Command};

use rustix::process::{Signal, geteuid, kill_process};

use crate::{
    apart,
    child::{Place, Probe, Seat, press},
};

/// Returns a command that starts a program in its own pid namespace.
pub(crate) fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--pid", "--fork", "--mount-proc", "--"]);
    unshare
}

fn is_refused() -> bool {
    let is_refused = !unshare()
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    if is_refused {
        drop(writeln!(std::io::stderr(), "skipped: no namespaces here"));
    }
    is_refused
}

/// The default action of a signal never ends PID 1.
#[test]
fn pid_1_exits_with_the_code_of_the_signal() {
    if is_refused() {
        return;
    }
    let unshare = unshare();
    let words = [unshare.get_program()]
        .into_iter()
        .chain(unshare.get_args());
    let words: Vec<_> = words.filter_map(|word| word.to_str()).collect();
    let script = format!("exec {} \"$@\"", words.join(" "));
    for (probe, signal, count, code) in [
        ("graceful", Signal::INT, 1, 130),
        ("graceful", Signal::TERM, 1, 143),
        ("graceful", Signal::HUP, 1, 129),
        ("graceful", Signal::QUIT, 1, 131),
        ("hung", Signal::INT, 3, 130),
        ("hung, with deadline", Signal::TERM, 1, 143),
    ] {
        let mut parent = Probe::start_by(&script, probe);
        let pid_1 = parent.grandchild();
        for _ in 1..count {
            press(pid_1);
        }
        kill_process(pid_1, signal).unwrap();
        assert_eq!(parent.end().code(), Some(code), "{probe}, {signal:?}");
    }
}

/// The process group has no id in the namespace, but the process is still in the foreground.
#[test]
fn hard_exit_restores_the_terminal_for_another_process_group() {
    if is_refused() {
        return;
    }
    let mut seat = Seat::take(Place::Foreground, "in a namespace", "keys");
    assert_eq!(seat.line(), "ready 1");
    assert_ne!(seat.settings(), seat.before);
    for line in ["press 1", "press 2"] {
        seat.send(b"\x03");
        assert_eq!(seat.line(), line);
        apart();
    }
    assert_eq!(seat.line(), "shutdown Press");
    seat.send(b"\x03");
    seat.end();
    assert_eq!(seat.settings(), seat.before);
}
