//! What to start, and how.

use crate::agent::Agent;
use crate::error::{Error, Kind};
use crate::guarded::Failure;
use crate::keeper::Keeper;
use crate::output::Outputs;
use crate::stdin::Input;
use crate::wire::{MAX_HOLD, Spec, Text};
use crate::{Marker, group, guard, guarded};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::{Receiver, Sender};

/// What the agent finds on its standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StdinMode {
    /// Nothing: `/dev/null`.
    #[default]
    Null,
    /// A pipe, written through [`Agent::take_stdin`].
    Piped,
    /// These bytes and then the end. They are written in the background, so that an agent that never reads them stops
    /// nobody.
    Bytes(Vec<u8>),
}

/// Who owns the tree of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Containment {
    /// A guard where there can be one, else the process group.
    #[default]
    Auto,
    /// A guard, or the spawn fails.
    Guard,
    /// A process group of its own, a walk of the descendants and a sweep by marker: what has left the group, lost its
    /// parent and its environment escapes, and so does everything when the host is killed.
    Group,
}

/// Describes an agent to start. By default it has no standard input, the environment and the working directory of the
/// host, lines of at most 16 MiB, and [`Containment::Auto`].
#[derive(Debug)]
#[must_use = "nothing is started before `spawn`"]
pub struct AgentCommand {
    program: OsString,
    args: Vec<OsString>,
    env_clear: bool,
    env: BTreeMap<OsString, Option<OsString>>,
    directory: Option<PathBuf>,
    stdin: StdinMode,
    marker: Option<Marker>,
    hold: Vec<OwnedFd>,
    survivors_file: Option<PathBuf>,
    max_line: usize,
    containment: Containment,
    group_only: bool,
}

impl AgentCommand {
    /// Names the program. Without a slash it is looked for on the agent's `PATH`; with one, a relative path counts from
    /// the agent's working directory.
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

    /// Starts from an empty environment, without what was set before.
    pub fn env_clear(mut self) -> Self {
        self.env_clear = true;
        self.env.clear();
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets what the agent finds on its standard input.
    pub fn stdin(mut self, stdin: StdinMode) -> Self {
        self.stdin = stdin;
        self
    }

    /// Marks the tree, so that it is found when guard and host are gone. Without a marker nothing can be swept.
    pub fn marker(mut self, marker: Marker) -> Self {
        self.marker = Some(marker);
        self
    }

    /// Has the guard hold a descriptor until the tree is gone, for example that of a lock; the agent never gets it. At
    /// most 16. Without a guard it is held until the [`Agent`] is dropped.
    pub fn hold(mut self, descriptor: OwnedFd) -> Self {
        self.hold.push(descriptor);
        self
    }

    /// Names the file (created with mode 0600) to which the guard adds what it found after the death of the host.
    /// [`SweepReport::read`](crate::sweep::SweepReport::read) reads it.
    pub fn survivors_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.survivors_file = Some(path.into());
        self
    }

    /// Sets the longest line that comes out whole, in bytes (default 16 MiB).
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Sets who owns the tree.
    pub fn containment(mut self, containment: Containment) -> Self {
        self.containment = containment;
        self
    }

    /// Stops by `killpg` only, as a program without this crate would: the control that shows what the rest is for.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn group_only(mut self) -> Self {
        self.containment = Containment::Group;
        self.group_only = true;
        self
    }

    /// Starts the agent. Must be called within a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// When the program is not found or may not be executed, the working directory cannot be entered, the arguments are
    /// too long, there are too few descriptors, or no guard can be had.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started so far.
    pub async fn spawn(mut self) -> Result<Agent, Error> {
        self.check()?;
        let no_pipe = |source| Error::from(Kind::Pipe { source });
        let (stdin, our_stdin) = match self.stdin {
            StdinMode::Null => (None, None),
            _ => std::io::pipe()
                .map(|(theirs, ours)| (Some(theirs), Some(ours)))
                .map_err(no_pipe)?,
        };
        let (our_stdout, stdout) = std::io::pipe().map_err(no_pipe)?;
        let (our_stderr, stderr) = std::io::pipe().map_err(no_pipe)?;
        // Some agents exit with what does not fit into the pipe unwritten; a refusal of more room changes nothing else.
        #[cfg(target_os = "linux")]
        let _default_size = rustix::pipe::fcntl_setpipe_size(&our_stdout, 1 << 20);
        let bytes = match std::mem::take(&mut self.stdin) {
            StdinMode::Bytes(bytes) => Some(bytes),
            _ => None,
        };
        let streams = (
            stdin.map(OwnedFd::from),
            OwnedFd::from(stdout),
            OwnedFd::from(stderr),
        );
        let max_line = self.max_line;
        let (keeper, hold) = self.start(streams).await?;
        let input = our_stdin
            .map(|pipe| Sender::from_owned_fd(pipe.into()).map(Input::new))
            .transpose()
            .map_err(no_pipe)?;
        let stdout = Receiver::from_owned_fd(our_stdout.into()).map_err(no_pipe)?;
        let stderr = Receiver::from_owned_fd(our_stderr.into()).map_err(no_pipe)?;
        let outputs = Outputs::read(stdout, stderr, max_line, &keeper.progress);
        if let (Some(bytes), Some(input)) = (&bytes, &input) {
            let (mut writer, bytes) = (input.writer(), bytes.clone());
            // An agent that does not read its input to the end is its own affair.
            tokio::spawn(async move { drop(writer.write_all(&bytes).await) });
        }
        Ok(Agent::new(keeper, input, bytes.is_none(), outputs, hold))
    }

    fn check(&mut self) -> Result<(), Error> {
        if let Some(marker) = &self.marker {
            self.env
                .insert(marker.variable.clone().into(), Some(marker.value().into()));
        }
        let nul = |text: &OsStr| text.as_encoded_bytes().contains(&0);
        let entries = self
            .env
            .iter()
            .flat_map(|(name, value)| [Some(name), value.as_ref()])
            .flatten();
        if nul(&self.program) || self.args.iter().any(|arg| nul(arg)) {
            return Err(Kind::Nul {
                what: "the program and its arguments",
            }
            .into());
        } else if entries.map(OsString::as_os_str).any(nul) {
            return Err(Kind::Nul {
                what: "the environment",
            }
            .into());
        } else if self.hold.len() > MAX_HOLD {
            return Err(Kind::TooManyHeld { limit: MAX_HOLD }.into());
        }
        // The guard stands in `/`, so that every path must be absolute.
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).map_err(|source| Kind::BadDirectory { path, source })
        };
        self.directory = Some(absolute(
            self.directory.take().unwrap_or_else(|| ".".into()),
        )?);
        self.survivors_file = self.survivors_file.take().map(absolute).transpose()?;
        Ok(())
    }

    /// Starts with a guard or without; returns the descriptors that the host itself has to hold.
    async fn start(
        self,
        streams: (Option<OwnedFd>, OwnedFd, OwnedFd),
    ) -> Result<(Keeper, Vec<OwnedFd>), Error> {
        let guard = match (self.containment, guard::executable()) {
            (Containment::Group, _) | (Containment::Auto, None) => None,
            (Containment::Guard, None) => return Err(Kind::NoGuard.into()),
            (_, Some(path)) => Some(path),
        };
        let directory = self.directory.clone().unwrap_or_default();
        let (stdin, stdout, stderr) = &streams;
        if let Some(path) = guard {
            let streams = [stdin.as_ref(), Some(stdout), Some(stderr)]
                .into_iter()
                .flatten();
            let descriptors: Vec<_> = streams.chain(&self.hold).map(OwnedFd::as_fd).collect();
            let spec = self.spec(stdin.is_some());
            match guarded::start(&path, &spec, &descriptors, self.marker.clone()).await {
                Ok(keeper) => return Ok((keeper, Vec::new())),
                Err(Failure::Other(error)) => return Err(error),
                Err(Failure::NotSpawned {
                    source,
                    in_directory,
                }) => {
                    return Err(Error::spawn(
                        &self.program,
                        &directory,
                        in_directory,
                        source,
                    ));
                }
                Err(Failure::Refused(_)) if self.containment == Containment::Auto => {}
                Err(Failure::Refused(reason)) => {
                    return Err(Kind::Guard {
                        path,
                        what: format!("cannot work here: {reason}"),
                    }
                    .into());
                }
            }
        }
        let (stdin, stdout, stderr) = streams;
        let mut command = std::process::Command::new(&self.program);
        command
            .args(&self.args)
            .current_dir(&directory)
            .stdout(stdout)
            .stderr(stderr);
        command.stdin(stdin.map_or_else(std::process::Stdio::null, Into::into));
        if self.env_clear {
            command.env_clear();
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let keeper = group::start(command.into(), self.marker, self.group_only)
            .map_err(|source: io::Error| Error::spawn(&self.program, &directory, false, source))?;
        Ok((keeper, self.hold))
    }

    fn spec(&self, stdin: bool) -> Spec {
        Spec {
            program: Text::new(&self.program),
            args: self.args.iter().map(Text::new).collect(),
            env_clear: self.env_clear,
            env: self
                .env
                .iter()
                .map(|(name, value)| (Text::new(name), value.as_ref().map(Text::new)))
                .collect(),
            directory: Text::new(self.directory.as_deref().unwrap_or("/".as_ref())),
            stdin,
            survivors_file: self.survivors_file.as_ref().map(Text::new),
        }
    }
}
