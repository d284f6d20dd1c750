//! The programs that the layers start.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::ledger::{Ledger, Note};
use crate::reference::{CheckResult, broken};

/// Time limit for a program that needs some milliseconds.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the path of this program, also in its tests.
///
/// # Errors
/// If it was not built; the text has the reason.
pub fn own() -> Result<PathBuf, String> {
    beside("crash-test")
}

/// Returns the path of the shipped `rlm`.
///
/// # Errors
/// If it was not built with the same profile; the text has the reason.
pub fn rlm() -> Result<PathBuf, String> {
    beside("rlm")
}

fn beside(name: &str) -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|err| err.to_string())?;
    // A test program is in a directory below the other programs.
    let mut places = here.ancestors().skip(1).take(2).map(|dir| dir.join(name));
    places
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no program `{name}` was built beside {}", here.display()))
}

/// Returns the path of a tool of the system.
///
/// # Errors
/// If it is not installed; the text has the reason.
pub fn tool(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The path of a normal user may lack the tools for administrators.
    let mut dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.find_map(|dir| Some(dir.join(name)).filter(|path| path.is_file()))
        .ok_or_else(|| format!("no {name} here"))
}

/// A program that prints notes on its standard output. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Whether it leads a process group, which is killed with it.
    is_leader: bool,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a program whose standard output is read.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        Self::spawn(command, false)
    }

    /// Starts a program with a process group of its own; the programs in the group are killed with it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn lead(command: &mut Command) -> Result<Self, String> {
        Self::spawn(command.process_group(0), true)
    }

    fn spawn(command: &mut Command, is_leader: bool) -> Result<Self, String> {
        let spawned = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = spawned.map_err(|err| format!("cannot start {command:?}: {err}"))?;
        let out = child.stdout.take().expect("standard output is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines();
            // The receiver of the lines may have ended.
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Ok(Self {
            child,
            is_leader,
            lines,
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("pids are small"))
    }

    /// Sends a signal. If the program has ended, nothing happens.
    pub fn signal(&self, signal: Signal) {
        // The program is not reaped yet, so its pid is still its own.
        let (Ok(()) | Err(_)) = kill(self.pid(), signal);
    }

    /// Waits for a line; returns `None` if the program's output has ended.
    ///
    /// # Errors
    /// If there is no line within the time limit.
    pub fn line(&self) -> CheckResult<Option<String>> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => broken('B', "a program printed nothing for a minute"),
        }
    }

    /// Waits for a note; returns `None` if the program's output has ended.
    ///
    /// # Errors
    /// As [`line`](Self::line).
    pub fn note(&self) -> CheckResult<Option<Note>> {
        let Some(line) = self.line()? else {
            return Ok(None);
        };
        match Note::parse(&line) {
            Some(note) => Ok(Some(note)),
            None => broken('B', format!("a program printed `{line}`")),
        }
    }

    /// Records at most `count` notes; returns whether there were that many.
    ///
    /// # Errors
    /// As [`line`](Self::line), and if a note shows a broken promise.
    pub fn notes(&self, ledger: &mut Ledger, count: usize) -> CheckResult<bool> {
        for _ in 0..count {
            match self.note()? {
                Some(note) => ledger.note(note)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Kills the program, and returns its remaining lines.
    ///
    /// # Errors
    /// As [`line`](Self::line).
    pub fn kill(self) -> CheckResult<Vec<String>> {
        self.signal(Signal::SIGKILL);
        let mut lines = Vec::new();
        while let Some(line) = self.line()? {
            lines.push(line);
        }
        Ok(lines)
    }

    /// Kills the program, and records its remaining notes.
    ///
    /// # Errors
    /// As [`notes`](Self::notes).
    pub fn end(mut self, ledger: &mut Ledger) -> CheckResult {
        self.signal(Signal::SIGKILL);
        self.wait(ledger)
    }

    /// Waits for the end of the program, and records its notes.
    ///
    /// # Errors
    /// As [`notes`](Self::notes); and if the program panicked.
    pub fn wait(&mut self, ledger: &mut Ledger) -> CheckResult {
        while self.notes(ledger, 1)? {}
        match self.child.wait() {
            Ok(status) if status.code().is_some_and(|code| code != 0) => {
                broken('B', format!("a program ended with {status}"))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Until it is reaped, its pid and its process group are its own.
        if self.is_leader && matches!(self.child.try_wait(), Ok(None)) {
            let (Ok(()) | Err(_)) = killpg(self.pid(), Signal::SIGKILL);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sleeps for `time`.
pub fn pause(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}
