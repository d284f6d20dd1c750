//! The program's settings for the router: the action of the last stage, and the hooks.

use std::{fmt, sync::Arc};

use crate::Cause;

/// The action of the last stage, when a press or a deadline ends a graceful shutdown.
///
/// No action runs destructors or `atexit` handlers, or flushes a buffer, because each of these can hang.
#[derive(Default)]
#[non_exhaustive]
pub enum HardExit {
    /// Ends the process in the signal handler, as [`die_by`](crate::die_by) does, whatever its threads do. Before that, the handler
    /// [restores](crate::Builder::restore_terminal) the settings of the terminal. The default. A press ends the process by `SIGINT`,
    /// even if `SIGTERM` began the shutdown.
    ///
    /// For an injected press, for the shutdown deadline, and on a detached ladder, one of this crate's threads or the driver ends the
    /// process.
    #[default]
    InHandler,
    /// Ends the process from one of this crate's threads, without holding a lock, so that [`Builder::before_exit`](crate::Builder::before_exit)
    /// can run. The next press ends the process in the signal handler, whatever the thread does.
    Thread,
    /// Doesn't end the process. Presses are still counted, and `SIGQUIT` begins shutdown. For programs with their own exit.
    Off,
    /// Calls this function on one of this crate's threads, without holding a lock, for tests and for embedders. It can be called more than once.
    /// While it runs, no deadline takes effect.
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

/// The hooks of the program.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) on_suspend: Option<Box<dyn Fn() + Send + Sync>>,
    pub(crate) on_resume: Option<Box<dyn Fn() + Send + Sync>>,
    pub(crate) on_notice_timeout: Option<Box<dyn Fn() + Send + Sync>>,
    pub(crate) before_exit: Option<Arc<dyn Fn(Cause) + Send + Sync>>,
}

impl Hooks {
    /// Returns whether there is a hook for a suspension of the process.
    pub(crate) fn has_suspend_hook(&self) -> bool {
        self.on_suspend.is_some() || self.on_resume.is_some()
    }
}
