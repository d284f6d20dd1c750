//! What all processes of one attempt have in common.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{AgentCommand, Marker, StopPolicy};

/// What the agent, the gates and the check of one attempt share: where they work, what they carry, and how they are stopped.
///
/// Its `Debug` shows the names of variables only: the values may be secret.
#[derive(Clone)]
pub struct Context {
    /// The working directory.
    pub cwd: PathBuf,
    /// Variables on top of the host's environment.
    pub env: Vec<(OsString, OsString)>,
    /// The mark by which a sweep finds the processes.
    pub marker: Option<Marker>,
    /// A descriptor that each guard holds until its tree is gone, for example that of a lock.
    pub hold: Option<Arc<OwnedFd>>,
    /// A directory for files that live as long as the attempt, such as a prompt; made with mode 0700 when it is needed.
    pub scratch: PathBuf,
    /// The file to which a guard adds what it found after the death of the host, in a directory that is there; see
    /// [`AgentCommand::survivors_file`].
    pub survivors_file: Option<PathBuf>,
    /// The stages of a stop and their times.
    pub stop: StopPolicy,
}

impl Context {
    /// Makes a context with nothing but a working directory, a directory for files that live as long as the attempt, and the usual stages of a stop.
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

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Context")
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
    /// Puts the command into a context: working directory, environment, marker, held descriptor and survivors file.
    ///
    /// # Errors
    /// When the held descriptor can't be duplicated because there are too many open.
    pub fn context(mut self, context: &Context) -> std::io::Result<Self> {
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
