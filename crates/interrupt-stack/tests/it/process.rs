use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{DEADLINE, probe::VARIABLE, wait_for};

/// A real child process that is one of the probes. Dropping it ends it.
struct Probe {
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
    /// Of the probe itself, which is not the child where a shell stands in between.
    pid: Option<Pid>,
}

impl Probe {
    fn start(probe: &str) -> Self {
        Self::start_by("exec \"$@\"", probe)
    }

    /// Starts the probe from a shell script, to which it is `"$@"`.
    fn start_by(script: &str, probe: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "probe::probe", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, probe)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // The child's test harness talks too, on the same line even.
                if let Some((_, said)) = line.unwrap().split_once("probe: ") {
                    let Ok(()) = sender.send(said.to_owned()) else {
                        return;
                    };
                }
            }
        });
        let mut probe = Self {
            child,
            stdin,
            lines,
            pid: None,
        };
        probe.expect_ready();
        probe
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines
            .recv_timeout(DEADLINE)
            .expect("a line from the probe")
    }

    fn expect_ready(&mut self) {
        let line = self.line();
        let pid = line
            .strip_prefix("ready ")
            .unwrap_or_else(|| panic!("not ready: {line}"));
        self.pid = Pid::from_raw(pid.parse().unwrap());
    }

    fn kill(&self, signal: Signal) {
        kill_process(self.pid.unwrap(), signal).unwrap();
    }

    fn go_on(&mut self) {
        writeln!(self.stdin).unwrap();
    }

    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the end of the probe", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// Lets the debounce window pass: presses must be apart to be presses.
fn apart() {
    let (_keep, never) = mpsc::channel::<()>();
    assert!(never.recv_timeout(Duration::from_millis(70)).is_err());
}

#[test]
fn j27_process_cleans_up_and_dies_by_sigint() {
    let mut probe = Probe::start("graceful");
    probe.kill(Signal::INT);
    assert_eq!(probe.line(), "cleanup Press, 1 presses");
    assert_eq!(probe.end().signal(), Some(2));

    let mut probe = Probe::start_by("\"$@\"; echo \"probe: shell says $?\"", "graceful");
    probe.kill(Signal::INT);
    assert_eq!(
        (probe.line(), probe.line()),
        ("cleanup Press, 1 presses".into(), "shell says 130".into())
    );
    assert!(probe.end().success());
}

#[test]
fn j33_three_presses_end_a_process_that_cannot_act() {
    for state in [
        "hung",
        "blocked workers",
        "blocked current thread",
        "blocked runtime drop",
        "blocked waker",
    ] {
        let mut probe = Probe::start(state);
        probe.kill(Signal::INT);
        assert_eq!(probe.line(), "press 1", "{state}");
        apart();
        probe.kill(Signal::INT);
        let mut lines = [probe.line(), probe.line()];
        lines.sort();
        assert_eq!(lines, ["press 2", "shutdown Press"], "{state}");
        assert!(
            probe.child.try_wait().unwrap().is_none(),
            "{state}: graceful so far"
        );
        apart();
        probe.kill(Signal::INT);
        assert_eq!(probe.end().signal(), Some(2), "{state}");
    }
}

#[test]
fn j33_terminate_again_is_not_a_press_but_a_press_is() {
    let mut probe = Probe::start("hung");
    probe.kill(Signal::TERM);
    assert_eq!(probe.line(), "shutdown Terminate");
    probe.kill(Signal::TERM);
    probe.kill(Signal::HUP);
    apart();
    assert!(probe.child.try_wait().unwrap().is_none());
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
}

#[test]
fn hung_shutdown_ends_at_its_deadline_by_its_cause() {
    let mut probe = Probe::start("hung, with deadline");
    probe.kill(Signal::TERM);
    assert_eq!(probe.end().signal(), Some(15));
}

#[test]
fn j42_terminate_and_hangup_are_graceful_and_quit_is_not() {
    for (signal, number, line) in [
        (Signal::TERM, 15, "cleanup Terminate, 0 presses"),
        (Signal::HUP, 1, "cleanup Hangup, 0 presses"),
    ] {
        let mut probe = Probe::start("graceful");
        probe.kill(signal);
        assert_eq!(probe.line(), line);
        assert_eq!(probe.end().signal(), Some(number));
    }
    // With a core file allowed, so that its absence says something.
    let mut probe = Probe::start_by("ulimit -c unlimited; exec \"$@\"", "graceful");
    probe.kill(Signal::QUIT);
    let status = probe.end();
    assert_eq!((status.signal(), status.core_dumped()), (Some(3), false));
    assert!(probe.lines.recv_timeout(DEADLINE).is_err(), "no cleanup");
}

#[test]
fn j42_ignored_at_start_stays_ignored() {
    let mut probe = Probe::start_by("trap '' INT HUP; exec \"$@\"", "graceful");
    probe.kill(Signal::INT);
    probe.kill(Signal::HUP);
    probe.kill(Signal::TERM);
    assert_eq!(probe.line(), "cleanup Terminate, 0 presses");
    assert_eq!(probe.end().signal(), Some(15));
}

#[test]
fn j43_press_during_a_slow_start_is_graceful() {
    let mut probe = Probe::start("slow start");
    probe.kill(Signal::INT);
    apart();
    assert!(probe.child.try_wait().unwrap().is_none());
    probe.go_on();
    assert_eq!(probe.line(), "cleanup Press");
    assert_eq!(probe.end().signal(), Some(2));
}

/// Also C58: each install in one process catches signals of its own.
#[test]
fn x122_dropped_install_gives_the_signals_back() {
    let mut probe = Probe::start("installed twice");
    for _ in 0..2 {
        probe.kill(Signal::INT);
        apart();
        probe.go_on();
        assert_eq!(probe.line(), "1 presses");
        probe.expect_ready();
    }
    probe.kill(Signal::INT);
    assert_eq!(probe.end().signal(), Some(2));
}

/// A parent may leave its signals blocked to its children; a press must reach one of our threads all the same, and end the process.
#[cfg(target_os = "linux")]
#[test]
fn inherited_mask_does_not_silence_signals() {
    for (state, presses) in [("graceful", 1), ("hung", 3)] {
        let mut probe = Probe::start_by("exec env --block-signal=INT,TERM,HUP,QUIT \"$@\"", state);
        for _ in 0..presses {
            probe.kill(Signal::INT);
            apart();
        }
        assert_eq!(probe.end().signal(), Some(2), "{state}");
    }
}
