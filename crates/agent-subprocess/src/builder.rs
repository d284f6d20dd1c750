//! The description of a program before it starts, and the settings that several programs share.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{Containment, Marker, StopPolicy, WarmGuard};

/// The standard input of the program.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StdinMode {
    /// Empty: `/dev/null`.
    #[default]
    Null,
    /// A pipe, written through [`ProcessTree::take_stdin`](crate::ProcessTree::take_stdin).
    Piped,
    /// These bytes and then the end. A background task writes them, so a program that never reads them blocks nothing.
    Bytes(Vec<u8>),
}

impl fmt::Debug for StdinMode {
    /// Shows the number of bytes, without their content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StdinMode::Null => f.write_str("Null"),
            StdinMode::Piped => f.write_str("Piped"),
            StdinMode::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
        }
    }
}

/// The use of an output of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutputMode {
    /// Lines, returned by [`ProcessTree::next_output`](crate::ProcessTree::next_output).
    #[default]
    Lines,
    /// Bytes, read through [`ProcessTree::take_stdout`](crate::ProcessTree::take_stdout) or
    /// [`take_stderr`](crate::ProcessTree::take_stderr).
    Bytes,
    /// The same output as that of the host, for example its terminal.
    Inherit,
    /// Dropped: `/dev/null`.
    Null,
}

/// The description of a program to start. By default the program has no standard input, the environment and the working directory of the host, lines of
/// at most 16 MiB, a random marker, and a guard on Linux.
#[must_use = "nothing is started before `spawn`"]
pub struct TreeCommand {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env_clear: bool,
    pub(crate) env: BTreeMap<OsString, Option<OsString>>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) stdin: StdinMode,
    pub(crate) stdout: OutputMode,
    pub(crate) stderr: OutputMode,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) marker: Option<Marker>,
    pub(crate) hold: Vec<OwnedFd>,
    pub(crate) survivors_file: Option<PathBuf>,
    pub(crate) kill_at: Option<Duration>,
    #[cfg(target_os = "linux")]
    pub(crate) warm: Option<WarmGuard>,
    pub(crate) max_line: usize,
    pub(crate) containment: Containment,
    pub(crate) group_only: bool,
    /// Whether the program waits when its standard error is not read, as it does for standard output.
    pub(crate) stderr_waits: bool,
}

impl fmt::Debug for TreeCommand {
    /// Shows the program and the names of the variables. Arguments, values and input can contain secrets, so only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeCommand")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("directory", &self.directory)
            .field("stdin", &self.stdin)
            .field("containment", &self.containment)
            .finish_non_exhaustive()
    }
}

impl TreeCommand {
    /// Creates a description of this program. A name without a slash is searched on the `PATH` of the program. A relative path with a slash is relative
    /// to the working directory of the program.
    pub fn new(program: impl Into<OsString>) -> Self {
        TreeCommand {
            program: program.into(),
            args: Vec::new(),
            env_clear: false,
            env: BTreeMap::new(),
            directory: None,
            stdin: StdinMode::Null,
            stdout: OutputMode::Lines,
            stderr: OutputMode::Lines,
            uid: None,
            gid: None,
            marker: None,
            hold: Vec::new(),
            survivors_file: None,
            kill_at: None,
            #[cfg(target_os = "linux")]
            warm: None,
            max_line: 16 << 20,
            containment: Containment::default(),
            group_only: false,
            stderr_waits: false,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), Some(value.into()));
        self
    }

    /// Removes a variable from the environment.
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), None);
        self
    }

    /// Starts from an empty environment, and drops the variables that were set before.
    pub fn env_clear(mut self) -> Self {
        self.env_clear = true;
        self.env.clear();
        self
    }

    /// Returns the names of the variables that were set or removed.
    pub fn env_names(&self) -> impl Iterator<Item = &OsStr> {
        self.env.keys().map(OsString::as_os_str)
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the standard input of the program.
    pub fn stdin(mut self, stdin: StdinMode) -> Self {
        self.stdin = stdin;
        self
    }

    /// Sets the use of standard output.
    pub fn stdout(mut self, stdout: OutputMode) -> Self {
        self.stdout = stdout;
        self
    }

    /// Sets the use of standard error.
    pub fn stderr(mut self, stderr: OutputMode) -> Self {
        self.stderr = stderr;
        self
    }

    /// Sets the user of the program. Only root may do that; the program then has no other groups of root. The host and the guard keep their user, so they
    /// can end the program.
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Sets the group of the program.
    pub fn gid(mut self, gid: u32) -> Self {
        self.gid = Some(gid);
        self
    }

    /// Sets the marker of the process tree, by which a sweep finds it after guard and host ended. By default the marker is random, and
    /// [`ProcessTree::marker`](crate::ProcessTree::marker) returns it. Store it before the program does anything that matters.
    pub fn marker(mut self, marker: Marker) -> Self {
        self.marker = Some(marker);
        self
    }

    /// Makes the guard hold a descriptor, for example of a lock, until the process tree is gone. The program never gets the descriptor. A program can
    /// have at most 16 held descriptors. Without a guard, the host holds them until the [`ProcessTree`](crate::ProcessTree) is dropped.
    pub fn hold(mut self, descriptor: OwnedFd) -> Self {
        self.hold.push(descriptor);
        self
    }

    /// Sets the file (created with mode 0600) to which the guard appends its report after the death of the host.
    /// [`SweepReport::read`](crate::sweep::SweepReport::read) reads it.
    ///
    /// A write error could not be reported at that time, so [`spawn`](Self::spawn) rejects a path that can't be written: its directory must exist. A
    /// relative path is relative to the working directory of the host. Without a guard, nothing is appended.
    pub fn survivors_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.survivors_file = Some(path.into());
        self
    }

    /// Sets the time at which the guard kills the process tree, on the clock `CLOCK_BOOTTIME`. The time holds from before the start of the program;
    /// [`ProcessTree::kill_at`](crate::ProcessTree::kill_at) moves it. [`spawn`](Self::spawn) fails if the program gets no guard.
    pub fn kill_at(mut self, boottime: Duration) -> Self {
        self.kill_at = Some(boottime);
        self
    }

    /// Runs the program under the guard that waits there, if one waits that can serve it.
    ///
    /// # Platform
    /// Does nothing outside Linux.
    pub fn warm_guard(self, warm: &WarmGuard) -> Self {
        #[cfg(target_os = "linux")]
        return Self {
            warm: Some(warm.clone()),
            ..self
        };
        #[cfg(not(target_os = "linux"))]
        {
            let _no_guard_here = warm;
            self
        }
    }

    /// Sets the maximum length of a line that is returned as one piece, in bytes (default 16 MiB).
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Sets the containment of the process tree.
    pub fn containment(mut self, containment: Containment) -> Self {
        self.containment = containment;
        self
    }

    /// Stops by `killpg` only, as a program without this crate would: the control experiment of the tests.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn group_only(mut self) -> Self {
        self.containment = Containment::Group;
        self.group_only = true;
        self
    }
}

/// The settings that several programs share: working directory, environment, marker, containment, and the times of a stop.
///
/// Its `Debug` only shows the names of variables: the values can be secret.
#[derive(Clone)]
pub struct ProcessContext {
    /// The working directory.
    pub cwd: PathBuf,
    /// Variables in addition to the environment of the host.
    pub env: Vec<(OsString, OsString)>,
    /// The marker by which a sweep finds the processes; a random one if it is missing.
    pub marker: Option<Marker>,
    /// A descriptor that each guard holds until its process tree is gone, for example of a lock.
    pub hold: Option<Arc<OwnedFd>>,
    /// A directory for files that a program reads, such as a prompt; created with mode 0700 when it is needed.
    pub scratch: PathBuf,
    /// The file to which a guard appends its report after the death of the host, in an existing directory; see [`TreeCommand::survivors_file`].
    pub survivors_file: Option<PathBuf>,
    /// The guard that the host starts ahead of time for one of the programs.
    pub warm_guard: Option<WarmGuard>,
    /// The stages of a stop and their times.
    pub stop: StopPolicy,
    /// The containment of each process tree.
    pub containment: Containment,
}

impl ProcessContext {
    /// Creates a context with only a working directory, a directory for files that a program reads, and the default stages of a stop.
    pub fn new(cwd: impl Into<PathBuf>, scratch: impl Into<PathBuf>) -> Self {
        Self {
            cwd: cwd.into(),
            env: Vec::new(),
            marker: None,
            hold: None,
            scratch: scratch.into(),
            survivors_file: None,
            warm_guard: None,
            stop: StopPolicy::default(),
            containment: Containment::default(),
        }
    }
}

impl fmt::Debug for ProcessContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("ProcessContext")
            .field("cwd", &self.cwd)
            .field("env", &names)
            .field("marker", &self.marker)
            .field("hold", &self.hold)
            .field("scratch", &self.scratch)
            .field("survivors_file", &self.survivors_file)
            .field("warm_guard", &self.warm_guard)
            .field("stop", &self.stop)
            .field("containment", &self.containment)
            .finish()
    }
}

impl From<std::process::Command> for TreeCommand {
    /// Takes the program, the arguments, the variables and the working directory. A command of the standard library doesn't tell its streams, its user
    /// or a call of `env_clear`, so set these again.
    fn from(command: std::process::Command) -> Self {
        let mut this = TreeCommand::new(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            this.env.insert(name.to_owned(), value.map(OsStr::to_owned));
        }
        this.directory = command.get_current_dir().map(PathBuf::from);
        this
    }
}

impl TreeCommand {
    /// Applies a context to the command: working directory, environment, marker, held descriptor, survivors file, warm guard and containment.
    ///
    /// # Errors
    /// Fails if the held descriptor can't be duplicated because too many are open.
    pub fn context(mut self, context: &ProcessContext) -> std::io::Result<Self> {
        self = self
            .current_dir(&context.cwd)
            .containment(context.containment);
        for (name, value) in &context.env {
            self = self.env(name, value);
        }
        if let Some(marker) = &context.marker {
            self = self.marker(marker.clone());
        }
        if let Some(warm) = &context.warm_guard {
            self = self.warm_guard(warm);
        }
        if let Some(hold) = &context.hold {
            self = self.hold(hold.try_clone()?);
        }
        Ok(match &context.survivors_file {
            Some(path) => self.survivors_file(path),
            None => self,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p32c_debug_of_command_shows_no_secret() {
        let command = TreeCommand::new("agent")
            .arg("--key=secret")
            .env("KEY", "secret");
        let command = command.stdin(StdinMode::Bytes(b"secret".to_vec()));
        insta::assert_snapshot!(format!("{command:?}"), @r#"TreeCommand { program: "agent", args: 1, env: ["KEY"], directory: None, stdin: Bytes(6), containment: Guard, .. }"#);
    }
}
