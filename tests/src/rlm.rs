//! Starts a program as a user would, and observes its end: the exit code or the signal.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fs_err as fs;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::pty::Terminal;
use crate::sandbox::Sandbox;
use crate::schema;
use crate::survivors::{disown, owned_spawn};
use crate::wait::poll_until;

/// The number of the next output file.
static OUTPUTS: AtomicUsize = AtomicUsize::new(0);

/// A program to start in a [`Sandbox`]: in its repository, with only the environment of the sandbox.
#[derive(Debug)]
#[must_use]
pub struct Rlm<'a> {
    sandbox: &'a Sandbox,
    command: Command,
    input: Option<Vec<u8>>,
    size: (u16, u16),
}

impl<'a> Rlm<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox, program: &Path) -> Self {
        let mut command = Command::new(program);
        let name = program.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b"rlm") {
            // As a shell calls a program on PATH, so that suggested commands don't contain its path.
            command.arg0("rlm");
        }
        command
            .current_dir(sandbox.repo())
            .env_clear()
            .envs(sandbox.environment());
        Self {
            sandbox,
            command,
            input: None,
            size: (40, 120),
        }
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the working directory, which is the repository by default.
    pub fn dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets the content of stdin, which is empty by default.
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Sets the rows and columns of its terminal; the default is 40 and 120.
    pub fn size(mut self, rows: u16, columns: u16) -> Self {
        self.size = (rows, columns);
        self
    }

    /// Starts it in its own session, as cron and supervisors do: signals to its process group don't reach the harness.
    pub fn own_session(mut self) -> Self {
        crate::os::own_session(&mut self.command);
        self
    }

    /// Starts it without a terminal. stdout and stderr go to files, so that a slow reader can't block it and a survivor can't block the test.
    ///
    /// # Panics
    ///
    /// If it can't start.
    #[track_caller]
    pub fn spawn(mut self) -> Running {
        let arguments = self.command.get_args().map(Into::into).collect();
        let number = OUTPUTS.fetch_add(1, Ordering::Relaxed);
        let base = self.sandbox.path().join(format!("output-{number}"));
        let (out, err) = (base.with_extension("stdout"), base.with_extension("stderr"));
        self.command
            .stdout(fs::File::create(&out).unwrap().into_file());
        self.command
            .stderr(fs::File::create(&err).unwrap().into_file());
        self.command.stdin(match &self.input {
            None => Stdio::null(),
            Some(text) => {
                let path = base.with_extension("stdin");
                fs::File::create(&path).unwrap().write_all(text).unwrap();
                fs::File::open(&path).unwrap().into_file().into()
            }
        });
        Running {
            child: owned_spawn(&mut self.command),
            arguments,
            out,
            err,
        }
    }

    /// Starts it under a new pseudo-terminal, as the leader of the session that the terminal controls.
    ///
    /// # Panics
    ///
    /// If no pseudo-terminal is available, the program can't start, or `input` was set, because typed text goes through the [`Terminal`].
    #[track_caller]
    pub fn spawn_on_terminal(mut self) -> (Running, Terminal) {
        assert!(self.input.is_none(), "type into the terminal instead");
        let (terminal, side) = Terminal::open(self.size).expect("a pseudo-terminal");
        let copy = || Stdio::from(side.try_clone().expect("the descriptor can be duplicated"));
        self.command.stdin(copy()).stdout(copy()).stderr(copy());
        crate::os::take_terminal(&mut self.command);
        let child = owned_spawn(&mut self.command);
        drop((self.command, side)); // our copy would keep the terminal open after its last process
        (
            Running {
                child,
                arguments: Vec::new(),
                out: PathBuf::new(),
                err: PathBuf::new(),
            },
            terminal,
        )
    }

    /// Starts it and waits for its end.
    ///
    /// # Panics
    ///
    /// If it can't start, or has not ended after `deadline`.
    #[track_caller]
    pub fn run(self, deadline: Duration) -> Ended {
        self.spawn().wait(deadline)
    }
}

/// A running program. Dropping it kills this process only.
#[derive(Debug)]
#[must_use]
pub struct Running {
    child: Child,
    arguments: Vec<OsString>,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends a signal to this process only.
    ///
    /// # Panics
    ///
    /// If the process has been reaped.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert!(
            self.signal_unless_reaped(signal),
            "the process should still exist"
        );
    }

    /// Sends a signal unless the process has been reaped. Returns whether it was sent.
    pub fn signal_unless_reaped(&self, signal: Signal) -> bool {
        let pid = Pid::from_child(&self.child);
        // Until somebody waits for the process, no other process gets its pid, and only its handle waits for it.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), look).is_ok() && kill_process(pid, signal).is_ok()
    }

    /// Returns the stdout so far; empty on a terminal.
    #[must_use]
    pub fn stdout(&self) -> String {
        read(&self.out)
    }

    /// Returns the stderr so far; empty on a terminal.
    #[must_use]
    pub fn stderr(&self) -> String {
        read(&self.err)
    }

    /// Returns whether it has ended.
    ///
    /// # Panics
    ///
    /// If the state of the child can't be read.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("the state of a child can be read")
            .is_some()
    }

    /// Waits for a value while it runs.
    ///
    /// # Panics
    ///
    /// If `deadline` has passed or it has ended without the value; the message contains its output.
    #[track_caller]
    pub fn until<T>(
        &mut self,
        what: &str,
        deadline: Duration,
        mut poll: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let found = poll_until(deadline, || {
            // Checks for the end before the poll, so that its last actions count.
            let ended = self.has_ended();
            poll(self).map(Ok).or_else(|| ended.then_some(Err(())))
        });
        let why = match found {
            Some(Ok(value)) => return value,
            Some(Err(())) => "it has ended".to_owned(),
            None => format!("{deadline:?} have passed"),
        };
        let (stdout, stderr) = (self.stdout(), self.stderr());
        panic!("{why}, and still no {what}\nstdout: {stdout}\nstderr: {stderr}");
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// If it has not ended after `deadline`; the message contains its output. If it printed JSON that does not match `docs/schema`.
    #[track_caller]
    pub fn wait(mut self, deadline: Duration) -> Ended {
        let status = poll_until(deadline, || {
            self.child
                .try_wait()
                .expect("the state of a child can be read")
        });
        let (stdout, stderr) = (self.stdout(), self.stderr());
        schema::expect(self.arguments.iter().map(OsString::as_os_str), &stdout);
        match status {
            Some(status) => Ended {
                status,
                stdout,
                stderr,
            },
            None => panic!(
                "pid {} is still running after {deadline:?}\nstdout: {stdout}\nstderr: {stderr}",
                self.pid()
            ),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the process was already reaped.
        let _killed = self.child.kill();
        let _status = self.child.wait();
        disown(self.pid());
    }
}

/// The end of a program, with its output.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ended {
    status: ExitStatus,
    /// The whole stdout; empty on a terminal.
    pub stdout: String,
    /// The whole stderr; empty on a terminal.
    pub stderr: String,
}

impl Ended {
    /// Returns the exit code; `None` after a death by signal.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns the number of the signal that ended it.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Returns whether it left a core file.
    #[must_use]
    pub fn core_dumped(&self) -> bool {
        self.status.core_dumped()
    }

    /// Checks the exit code, and returns `self`.
    ///
    /// # Panics
    ///
    /// If it ended differently; the message contains its output.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert!(
            self.code() == Some(code),
            "expected exit code {code}, got {self}"
        );
        self
    }

    /// Checks the signal that ended it, and returns `self`.
    ///
    /// # Panics
    ///
    /// If it ended differently; the message contains its output.
    #[track_caller]
    pub fn expect_signal(self, signal: Signal) -> Self {
        assert!(
            self.signal() == Some(signal.as_raw()),
            "expected death by {signal:?}, got {self}"
        );
        self
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\nstdout: {}\nstderr: {}",
            self.status, self.stdout, self.stderr
        )
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
