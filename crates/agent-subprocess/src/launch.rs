//! Starts a program from its description: its streams, and its process tree under a guard if one is available, otherwise in a process group.

use crate::error::{Error, Kind};
use crate::guard_protocol::MAX_HOLD;
use crate::output::{Outputs, RawOutput};
use crate::process::set_user;
use crate::tree_handle::TreeHandle;
use crate::writer::Input;
use crate::{
    Containment, Marker, OutputMode, ProcessTree, StdinMode, TreeCommand, group, guard_executable,
    sweep,
};
#[cfg(target_os = "linux")]
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::{Receiver, Sender};

/// The program's ends of its streams.
struct Streams {
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Opens an output of the program. Returns the host's end, if it has one, and the program's end.
fn open_output(mode: OutputMode, own: impl AsFd) -> io::Result<(Option<PipeReader>, OwnedFd)> {
    Ok(match mode {
        OutputMode::Lines | OutputMode::Bytes => {
            let (ours, theirs) = io::pipe()?;
            (Some(ours), theirs.into())
        }
        OutputMode::Inherit => (None, own.as_fd().try_clone_to_owned()?),
        OutputMode::Null => (None, File::options().write(true).open("/dev/null")?.into()),
    })
}

impl TreeCommand {
    /// Starts the program. The current runtime owns the program; while that runtime lives, the [`ProcessTree`] can be used from any other runtime.
    ///
    /// # Errors
    /// Fails if the program is not found or not executable, the working directory cannot be entered, the arguments are too long, the marker is
    /// invalid, the survivors file cannot be written, there are too few descriptors, or no guard can be started.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    /// Dropping the future ends everything that was started so far.
    pub async fn spawn(mut self) -> Result<ProcessTree, Error> {
        let marker = self.check()?;
        let no_pipe = |source| Error::from(Kind::Pipe { source });
        let (stdin, our_stdin) = match self.stdin {
            StdinMode::Null => (None, None),
            _ => std::io::pipe()
                .map(|(theirs, ours)| (Some(theirs), Some(ours)))
                .map_err(no_pipe)?,
        };
        let modes = (self.stdout, self.stderr);
        let (our_stdout, stdout) = open_output(modes.0, io::stdout()).map_err(no_pipe)?;
        let (our_stderr, stderr) = open_output(modes.1, io::stderr()).map_err(no_pipe)?;
        // Some programs exit without writing the output that does not fit into the pipe. If the system refuses the larger size, nothing else changes.
        #[cfg(target_os = "linux")]
        let _default_size = our_stdout
            .as_ref()
            .map(|pipe| rustix::pipe::fcntl_setpipe_size(pipe, 1 << 20));
        let bytes = match std::mem::take(&mut self.stdin) {
            StdinMode::Bytes(bytes) => Some(bytes),
            _ => None,
        };
        let streams = Streams {
            stdin: stdin.map(Into::into),
            stdout,
            stderr,
        };
        let (max_line, stderr_waits) = (self.max_line, self.stderr_waits);
        let (keeper, hold) = self.launch(streams, marker).await?;
        let input = our_stdin
            .map(|pipe| Sender::from_owned_fd(pipe.into()).map(Input::new))
            .transpose()
            .map_err(no_pipe)?;
        let receiver = |pipe: PipeReader| Receiver::from_owned_fd(pipe.into());
        let stdout = our_stdout.map(receiver).transpose().map_err(no_pipe)?;
        let stderr = our_stderr.map(receiver).transpose().map_err(no_pipe)?;
        let lines = |pipe: Option<Receiver>, mode| match mode {
            OutputMode::Lines => (pipe, None),
            _ => (None, pipe.map(RawOutput)),
        };
        let (stdout, raw_stdout) = lines(stdout, modes.0);
        let (stderr, raw_stderr) = lines(stderr, modes.1);
        let outputs = Outputs::read([stdout, stderr], max_line, stderr_waits, &keeper.progress);
        let stdin_free = bytes.is_none();
        if let (Some(bytes), Some(input)) = (bytes, &input) {
            let mut writer = input.writer();
            // A program that does not read all of its input is not an error.
            tokio::spawn(async move { drop(writer.write_all(&bytes).await) });
        }
        let raw = [raw_stdout, raw_stderr];
        Ok(ProcessTree::new(
            keeper, input, stdin_free, outputs, raw, hold,
        ))
    }

    /// Rejects a description that cannot be started, and completes it with the variable of the marker and absolute paths.
    fn check(&mut self) -> Result<Marker, Error> {
        let marker = self.marker.take().unwrap_or_else(Marker::random);
        if let Some(reason) = marker.validation_error() {
            return Err(Kind::Marker { reason }.into());
        }
        self.env
            .insert(marker.variable.clone().into(), Some(marker.value().into()));
        let nul = |text: &OsStr| text.as_encoded_bytes().contains(&0);
        let entries = self
            .env
            .iter()
            .flat_map(|(name, value)| [Some(name), value.as_ref()])
            .flatten();
        if nul(&self.program) || self.args.iter().any(|arg| nul(arg)) {
            return Err(Kind::Nul {
                what: "the program name and its arguments",
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
        // The working directory of the guard is `/`, so every path must be absolute.
        let path = self.directory.take().unwrap_or_else(|| ".".into());
        let directory = std::path::absolute(&path);
        self.directory = Some(directory.map_err(|source| Kind::BadDirectory { path, source })?);
        if let Some(path) = self.survivors_file.take() {
            let absolute = std::path::absolute(&path).and_then(|path| {
                sweep::check_report(&path)?;
                // The guard follows no link when it writes there, perhaps hours later.
                let above = path.parent().map(std::fs::canonicalize).transpose()?;
                let name = path.file_name();
                Ok(match (above, name) {
                    (Some(above), Some(name)) => above.join(name),
                    _ => path,
                })
            });
            self.survivors_file =
                Some(absolute.map_err(|source| Kind::BadSurvivorsFile { path, source })?);
        }
        Ok(marker)
    }

    /// Starts the process tree. Returns also the descriptors that the host itself has to hold.
    async fn launch(
        self,
        streams: Streams,
        marker: Marker,
    ) -> Result<(TreeHandle, Vec<OwnedFd>), Error> {
        let guard = match (self.containment, guard_executable::executable()) {
            (Containment::Group, _) | (Containment::Auto, None) => None,
            (Containment::Guard, None) => return Err(Kind::NoGuard.into()),
            (_, Some(path)) => Some(path),
        };
        #[cfg(target_os = "linux")]
        if let Some(path) = &guard
            && let Some(keeper) = self.launch_guarded(path, &streams, &marker).await?
        {
            return Ok((keeper, Vec::new()));
        }
        #[cfg(not(target_os = "linux"))]
        drop(guard);
        if self.kill_at.is_some() {
            return Err(Kind::NoKillTime.into());
        }
        self.launch_group(streams, marker)
    }

    /// Starts the program under a guard. Returns `None` if the guard cannot work here and the containment allows a process group.
    #[cfg(target_os = "linux")]
    async fn launch_guarded(
        &self,
        path: &std::path::Path,
        streams: &Streams,
        marker: &Marker,
    ) -> Result<Option<TreeHandle>, Error> {
        use crate::guarded::{self, Failure};
        let Streams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let agents = stdin.iter().chain([stdout, stderr]);
        let descriptors: Vec<_> = agents.chain(&self.hold).map(OwnedFd::as_fd).collect();
        let spec = self.spec(stdin.is_some());
        let unreaped = self.warm.as_ref().map(|warm| &warm.place.unreaped);
        let warm = match &self.warm {
            Some(warm) => warm.place.take(path, &marker.scope).await,
            None => None,
        };
        match guarded::start(path, &spec, &descriptors, marker.clone(), warm, unreaped).await {
            Ok(keeper) => Ok(Some(keeper)),
            Err(Failure::Other(error)) => Err(error),
            Err(Failure::NotSpawned {
                source,
                in_directory,
            }) => Err(self.not_spawned(in_directory, source)),
            Err(Failure::Refused(_)) if self.containment == Containment::Auto => Ok(None),
            Err(Failure::Refused(reason)) => {
                let path = path.to_owned();
                Err(Kind::GuardRefused { path, reason }.into())
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn spec(&self, stdin: bool) -> crate::guard_protocol::SpawnSpec {
        use crate::guard_protocol::{OsText, SpawnSpec};
        SpawnSpec {
            program: OsText::new(&self.program),
            args: self.args.iter().map(OsText::new).collect(),
            env: self.environment().iter().map(OsText::new).collect(),
            directory: OsText::new(self.directory()),
            stdin,
            uid: self.uid,
            gid: self.gid,
            survivors_file: self.survivors_file.as_ref().map(OsText::new),
            kill_at: self.kill_at.map(crate::guard_protocol::milliseconds),
        }
    }

    /// Returns the whole environment of the program, one `NAME=value` for each variable.
    #[cfg(target_os = "linux")]
    fn environment(&self) -> Vec<OsString> {
        let mut variables = BTreeMap::new();
        if !self.env_clear {
            variables.extend(std::env::vars_os());
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => variables.insert(name.clone(), value.clone()),
                None => variables.remove(name),
            };
        }
        let join = |(mut text, value): (OsString, OsString)| {
            text.push("=");
            text.push(value);
            text
        };
        variables.into_iter().map(join).collect()
    }

    fn launch_group(
        self,
        streams: Streams,
        marker: Marker,
    ) -> Result<(TreeHandle, Vec<OwnedFd>), Error> {
        #[cfg(target_os = "linux")]
        let mut command = self.resolved();
        #[cfg(not(target_os = "linux"))]
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(self.directory());
        command.stdin(streams.stdin.map_or_else(Stdio::null, Stdio::from));
        command.stdout(streams.stdout).stderr(streams.stderr);
        if self.env_clear {
            command.env_clear();
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        set_user(&mut command, self.uid, self.gid);
        match group::start(command.into(), marker, self.group_only) {
            Err(source) => Err(self.not_spawned(false, source)),
            Ok(keeper) => Ok((keeper, self.hold)),
        }
    }

    /// Finds the file of the program in the same way as the guard. If the program has its own `PATH`, the standard library would fork, which is slow in a large
    /// host. The C library would pass a file that is not a program to the shell.
    #[cfg(target_os = "linux")]
    fn resolved(&self) -> Command {
        use std::os::unix::process::CommandExt as _;
        let runs = |file: &PathBuf| {
            file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        };
        let mut command = match self.files().find(runs) {
            Some(file) => Command::new(file),
            None => Command::new(&self.program),
        };
        command.arg0(&self.program);
        command
    }

    /// Lists the files that the name of the program can mean.
    #[cfg(target_os = "linux")]
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
        let path = match self.env.get(OsStr::new("PATH")) {
            Some(set) => set.clone(),
            None if self.env_clear => None,
            None => std::env::var_os("PATH"),
        };
        let path = path.as_deref().map(OsStr::as_bytes);
        let files = crate::exec_image::files(self.program.as_bytes(), path).into_iter();
        files.map(|file| self.directory().join(OsString::from_vec(file)))
    }

    /// Only the system knows its search path here, so the list contains only an explicit path.
    #[cfg(not(target_os = "linux"))]
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let is_path = self.program.as_encoded_bytes().contains(&b'/');
        is_path
            .then(|| self.directory().join(&self.program))
            .into_iter()
    }

    fn not_spawned(&self, in_directory: bool, source: std::io::Error) -> Error {
        let file = self.files().find(|file| file.is_file());
        Error::spawn(
            &self.program,
            self.directory(),
            in_directory,
            file.as_deref(),
            source,
        )
    }

    fn directory(&self) -> &std::path::Path {
        self.directory.as_deref().unwrap_or("/".as_ref())
    }
}
