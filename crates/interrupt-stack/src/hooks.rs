//! What a program sets for the router: how the last rung ends the process, and which code of the program is called.

use std::{fmt, sync::Arc};

use crate::Cause;

/// What the last rung does: how a process is ended whose graceful shutdown takes too long for somebody.
///
/// None of these runs destructors or `atexit` handlers, or flushes a buffer: each of them can hang.
#[derive(Default)]
#[non_exhaustive]
pub enum HardExit {
    /// Ends the process in the signal handler, as [`die_by`](crate::die_by) does, in whatever state its threads are, once the settings
    /// of the terminal are [put back](crate::Builder::restore_terminal). The default. A press ends it by `SIGINT`, also where `SIGTERM` began the
    /// shutdown.
    ///
    /// What is no signal (an injected press, the shutdown deadline) acts from one of this crate's threads or from the driver, and so
    /// does all on a detached ladder.
    #[default]
    InHandler,
    /// Ends the process from one of this crate's threads, under no lock, so that [`Builder::before_exit`](crate::Builder::before_exit) has its turn. The press after
    /// that ends it in the signal handler, whatever the thread does.
    Thread,
    /// Ends nothing; presses are still counted, and `SIGQUIT` begins shutdown. For programs with an exit of their own.
    Off,
    /// Calls this on one of this crate's threads, under no lock, for tests and for embedders. It may come more than once, and while it
    /// runs no deadline acts.
    Callback(Box<dyn Fn(Cause) + Send + Sync>),
}

impl fmt::Debug for HardExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InHandler => "InHandler",
            Self::Thread => "Thread",
            Self::Off => "Off",
            Self::Callback(_) => "Callback(..)",
        })
    }
}

/// Code of the program that the router calls.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) on_suspend: Option<Box<dyn Fn() + Send + Sync>>,
    pub(crate) on_resume: Option<Box<dyn Fn() + Send + Sync>>,
    pub(crate) on_untaken: Option<Box<dyn Fn() + Send + Sync>>,
    pub(crate) before_exit: Option<Arc<dyn Fn(Cause) + Send + Sync>>,
}

impl Hooks {
    /// Says whether there is something to be done about a stop.
    pub(crate) fn are_of_stops(&self) -> bool {
        self.on_suspend.is_some() || self.on_resume.is_some()
    }
}
