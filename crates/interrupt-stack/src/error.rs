//! Why signals can't be caught, each with the way out.

use std::io;

/// Why the operating system's side could not be set up.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Kind);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    #[error(
        "signals are caught in this process already: share the first `Interrupts` (it is `Clone`), or drop its `Installed` first"
    )]
    AlreadyInstalled,
    #[error(
        "cannot catch signal {signal}: {source}; use a detached ladder and feed it through its injector"
    )]
    Signal { signal: i32, source: io::Error },
    #[error(
        "cannot make the pipe that wakes the signal threads: {0}; raise the limit on open files"
    )]
    Wake(io::Error),
    #[error("cannot start the signal threads: {0}; raise the limit on processes and threads")]
    Thread(io::Error),
}

impl Error {
    /// Says whether another [`Installed`](crate::Installed) is alive in this process.
    pub fn is_already_installed(&self) -> bool {
        matches!(self.0, Kind::AlreadyInstalled)
    }
}
