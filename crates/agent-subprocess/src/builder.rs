//! The description of an agent before it starts, and the settings that all processes of one attempt share.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Containment, Marker, StopPolicy};

/// The standard input of the agent.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StdinMode {
    /// Empty: `/dev/null`.
    #[default]
    Null,
    /// A pipe, written through [`Agent::take_stdin`](crate::Agent::take_stdin).
    Piped,
    /// These bytes and then the end. A background task writes them, so an agent that never reads them blocks nothing.
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

/// The description of an agent to start. By default the agent has no standard input, the environment and the working directory of the host, lines of
/// at most 16 MiB, and [`Containment::Auto`].
#[must_use = "nothing is started before `spawn`"]
pub struct AgentCommand {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env_clear: bool,
    pub(crate) env: BTreeMap<OsString, Option<OsString>>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) stdin: StdinMode,
    pub(crate) marker: Option<Marker>,
    pub(crate) hold: Vec<OwnedFd>,
    pub(crate) survivors_file: Option<PathBuf>,
    pub(crate) max_line: usize,
    pub(crate) containment: Containment,
    pub(crate) group_only: bool,
}

impl fmt::Debug for AgentCommand {
    /// Shows the program and the names of the variables. Arguments, values and input can contain secrets, so only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCommand")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("directory", &self.directory)
            .field("stdin", &self.stdin)
            .field("containment", &self.containment)
            .finish_non_exhaustive()
    }
}

impl AgentCommand {
    /// Creates a description of this program. A name without a slash is searched on the `PATH` of the agent. A relative path with a slash is relative
    /// to the working directory of the agent.
    pub fn new(program: impl Into<OsString>) -> Self {
        AgentCommand {
            program: program.into(),
            args: Vec::new(),
            env_clear: false,
            env: BTreeMap::new(),
            directory: None,
            stdin: StdinMode::Null,
            marker: None,
            hold: Vec::new(),
            survivors_file: None,
            max_line: 16 << 20,
            containment: Containment::Auto,
            group_only: false,
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

    /// Sets the standard input of the agent.
    pub fn stdin(mut self, stdin: StdinMode) -> Self {
        self.stdin = stdin;
        self
    }

    /// Marks the process tree, so that a sweep finds it after guard and host ended. Without a marker nothing can be swept.
    pub fn marker(mut self, marker: Marker) -> Self {
        self.marker = Some(marker);
        self
    }

    /// Makes the guard hold a descriptor, for example of a lock, until the process tree is gone. The agent never gets the descriptor. An agent can
    /// have at most 16 held descriptors. Without a guard, the host holds them until the [`Agent`](crate::Agent) is dropped.
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

/// The settings that the agent, the required checks and the check of one attempt share: working directory, environment, marker, and the times of a
/// stop.
///
/// Its `Debug` only shows the names of variables: the values can be secret.
#[derive(Clone)]
pub struct ProcessContext {
    /// The working directory.
    pub cwd: PathBuf,
    /// Variables in addition to the environment of the host.
    pub env: Vec<(OsString, OsString)>,
    /// The marker by which a sweep finds the processes.
    pub marker: Option<Marker>,
    /// A descriptor that each guard holds until its process tree is gone, for example of a lock.
    pub hold: Option<Arc<OwnedFd>>,
    /// A directory for files that live as long as the attempt, such as a prompt; created with mode 0700 when it is needed.
    pub scratch: PathBuf,
    /// The file to which a guard appends its report after the death of the host, in an existing directory; see [`AgentCommand::survivors_file`].
    pub survivors_file: Option<PathBuf>,
    /// The stages of a stop and their times.
    pub stop: StopPolicy,
}

impl ProcessContext {
    /// Creates a context with only a working directory, a directory for files that live as long as the attempt, and the default stages of a stop.
    pub fn new(cwd: impl Into<PathBuf>, scratch: impl Into<PathBuf>) -> Self {
        Self {
            cwd: cwd.into(),
            env: Vec::new(),
            marker: None,
            hold: None,
            scratch: scratch.into(),
            survivors_file: None,
            stop: StopPolicy::default(),
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
            .field("stop", &self.stop)
            .finish()
    }
}

impl AgentCommand {
    /// Applies a context to the command: working directory, environment, marker, held descriptor and survivors file.
    ///
    /// # Errors
    /// Fails if the held descriptor can't be duplicated because too many are open.
    pub fn context(mut self, context: &ProcessContext) -> std::io::Result<Self> {
        self = self.current_dir(&context.cwd);
        for (name, value) in &context.env {
            self = self.env(name, value);
        }
        if let Some(marker) = &context.marker {
            self = self.marker(marker.clone());
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
        let command = AgentCommand::new("agent")
            .arg("--key=secret")
            .env("KEY", "secret");
        let command = command.stdin(StdinMode::Bytes(b"secret".to_vec()));
        insta::assert_snapshot!(format!("{command:?}"), @r#"AgentCommand { program: "agent", args: 1, env: ["KEY"], directory: None, stdin: Bytes(6), containment: Auto, .. }"#);
    }
}
