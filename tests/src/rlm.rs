//! Starts a program as a user would and sees how it ends: the exit code and the signal of death.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
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

/// Numbers the files that outputs go to.
static OUTPUTS: AtomicUsize = AtomicUsize::new(0);

/// A program about to be started in a [`Sandbox`]: in its repository, with its environment and no other.
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

    /// Starts in another folder than the repository.
    pub fn dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Gives it something on stdin, which is otherwise empty.
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Gives its terminal so many rows and columns; 40 and 120 are usual.
    pub fn size(mut self, rows: u16, columns: u16) -> Self {
        self.size = (rows, columns);
        self
    }

    /// Starts it in a session of its own, as cron and supervisors do: what it sends to its process group does not reach the harness.
    pub fn own_session(mut self) -> Self {
        crate::os::own_session(&mut self.command);
        self
    }

    /// Starts it without a terminal; stdout and stderr go to files, so that no reader can hold it up and no survivor the test.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
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
    /// When there is no pseudo-terminal or it cannot be started; when `input` was given: what a person types goes through the [`Terminal`].
    #[track_caller]
    pub fn spawn_on_terminal(mut self) -> (Running, Terminal) {
        assert!(self.input.is_none(), "type into the terminal instead");
        let (terminal, side) = Terminal::open(self.size).expect("a pseudo-terminal");
        let copy = || Stdio::from(side.try_clone().expect("a descriptor can be copied"));
        self.command.stdin(copy()).stdout(copy()).stderr(copy());
        crate::os::take_terminal(&mut self.command);
        let child = owned_spawn(&mut self.command);
        drop((self.command, side)); // the terminal ends when the last process that has it ends, not with us
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
    /// When it cannot be started or has not ended after `deadline`.
    #[track_caller]
    pub fn run(self, deadline: Duration) -> Ended {
        self.spawn().wait(deadline)
    }
}

/// A started program. Dropping it kills it, and only it.
#[derive(Debug)]
#[must_use]
pub struct Running {
    child: Child,
    arguments: Vec<OsString>,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// The process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends a signal to this process alone.
    ///
    /// # Panics
    ///
    /// When it is not there any more.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert!(
            self.signal_unless_reaped(signal),
            "the process should still be there"
        );
    }

    /// The same, unless it is known to have ended; tells whether that was not so.
    pub fn signal_unless_reaped(&self, signal: Signal) -> bool {
        let pid = Pid::from_child(&self.child);
        // Only while nobody has waited for it is the number this process's, and only its handle waits for it.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), look).is_ok() && kill_process(pid, signal).is_ok()
    }

    /// What it printed on stdout so far; empty on a terminal.
    #[must_use]
    pub fn stdout(&self) -> String {
        read(&self.out)
    }

    /// What it printed on stderr so far; empty on a terminal.
    #[must_use]
    pub fn stderr(&self) -> String {
        read(&self.err)
    }

    /// Whether it has ended.
    ///
    /// # Panics
    ///
    /// When the system cannot say.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child can be asked")
            .is_some()
    }

    /// Waits for a value while it runs.
    ///
    /// # Panics
    ///
    /// When `deadline` has passed or it has ended without one; what it printed is in the message.
    #[track_caller]
    pub fn until<T>(
        &mut self,
        what: &str,
        deadline: Duration,
        mut poll: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let found = poll_until(deadline, || {
            // Asked first: what it did before its end counts.
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
    /// When it has not ended after `deadline`; what it printed is in the message. When it printed JSON that is not as `docs/schema` says.
    #[track_caller]
    pub fn wait(mut self, deadline: Duration) -> Ended {
        let status = poll_until(deadline, || {
            self.child.try_wait().expect("a child can be asked")
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
                "pid {} still runs after {deadline:?}\nstdout: {stdout}\nstderr: {stderr}",
                self.pid()
            ),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it was waited for already.
        let _killed = self.child.kill();
        let _status = self.child.wait();
        disown(self.pid());
    }
}

/// How a program ended and what it had printed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ended {
    status: ExitStatus,
    /// All of stdout; empty on a terminal.
    pub stdout: String,
    /// All of stderr; empty on a terminal.
    pub stderr: String,
}

impl Ended {
    /// The exit code, `None` after a death by signal.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The number of the signal that it died of.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Whether it left a core file when it died.
    #[must_use]
    pub fn core_dumped(&self) -> bool {
        self.status.core_dumped()
    }

    /// Checks the exit code and gives the rest on.
    ///
    /// # Panics
    ///
    /// When it ended otherwise; what it printed is in the message.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert!(
            self.code() == Some(code),
            "expected exit code {code}, got {self}"
        );
        self
    }

    /// Checks the signal of death and gives the rest on.
    ///
    /// # Panics
    ///
    /// When it ended otherwise; what it printed is in the message.
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
