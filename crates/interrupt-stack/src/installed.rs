//! A ladder that catches the signals of the process and restores them, and the errors of an install.

use std::{io, mem, ops::Deref, sync::Arc};

use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTSTP};
use signal_hook_registry::{SigId, unregister};

use crate::{
    Builder, HardExit, Interrupts,
    clock::SystemClock,
    process::process,
    signal_catcher::{SIGNALS, SignalCatcher},
    sys,
    sys::SignalAction,
};

/// The error of an install.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Kind);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error(
        "this process already catches its signals: share the first `Interrupts` (it is `Clone`), or use `install_scoped` and drop the first guard before"
    )]
    AlreadyInstalled,
    #[error("cannot catch signal {signal}: {source}; use a detached ladder with its injector")]
    Signal { signal: i32, source: io::Error },
    #[error(
        "cannot create the pipe that wakes the signal threads: {0}; raise the limit on open files"
    )]
    Wake(io::Error),
    #[error("cannot start the signal threads: {0}; raise the limit on processes and threads")]
    Thread(io::Error),
}

impl Error {
    /// Returns whether this process already catches its signals: by [`Builder::install`], or by an [`Installed`] that is alive.
    pub fn is_already_installed(&self) -> bool {
        matches!(self.0, Kind::AlreadyInstalled)
    }
}

/// The guard of a ladder that catches the signals of the process, made by [`Builder::install_scoped`].
///
/// Dropping this value stops catching the signals and restores their earlier behaviour. The ladder itself continues as a detached ladder while
/// other handles exist.
///
/// In nearly every program the earlier behaviour is the default action. If other code listens to the same signals through the same
/// registry (as `tokio::signal` does), listeners that were registered after the install get no more signals.
#[must_use = "dropping it restores the earlier behaviour of the signals at once"]
pub struct Installed {
    interrupts: Interrupts,
    before: Vec<(i32, SignalAction)>,
    actions: Vec<SigId>,
}

impl Installed {
    /// Installs the ladder. `start` starts the threads or the driver of its router.
    pub(crate) fn new(
        mut builder: Builder,
        is_driven: bool,
        start: impl FnOnce(&Interrupts) -> io::Result<()>,
    ) -> Result<Self, Error> {
        let mut process = process();
        if process.installed {
            return Err(Kind::AlreadyInstalled.into());
        }
        let mut before = Vec::new();
        for signal in SIGNALS {
            let disposition =
                SignalAction::of(signal).map_err(|source| Kind::Signal { signal, source })?;
            let stays = match signal {
                SIGINT | SIGQUIT => disposition.is_ignore() && !builder.catch_ignored_keys,
                SIGHUP => disposition.is_ignore(),
                SIGTSTP => disposition.is_ignore() || !builder.hooks.has_suspend_hook(),
                _ => false,
            };
            if !stays {
                before.push((signal, disposition));
            }
        }
        builder.clock = Arc::new(SystemClock); // the signal handler uses this clock too
        let last_stage = match builder.hard_exit {
            HardExit::InHandler => 2,
            HardExit::Thread => 3,
            HardExit::Off | HardExit::Callback(_) => u64::MAX,
        };
        let catcher = SignalCatcher::new(
            builder.times.debounce,
            builder.forward_window,
            last_stage,
            builder.restore_terminal,
        );
        let catcher = Arc::new(catcher.map_err(Kind::Wake)?);
        let mut router = builder.router(Some(catcher.clone()));
        router.is_driven = is_driven;
        let mut installed = Self {
            interrupts: Interrupts::new(router),
            before: Vec::new(),
            actions: Vec::new(),
        };
        process.installed = true;
        let mut handled = before.into_iter().try_for_each(|(signal, disposition)| {
            // Recorded first, so that after an error the drop restores this signal too.
            installed.before.push((signal, disposition));
            let catcher = catcher.clone();
            sys::register(signal, move |origin| catcher.on_signal(signal, origin))
                .map(|action| installed.actions.push(action))
                .and_then(|()| process.catch(signal))
                .map_err(|source| Kind::Signal { signal, source })
        });
        // Start only after the handlers are registered, because the start unblocks signals that may be pending.
        handled = handled.and_then(|()| start(&installed.interrupts).map_err(Kind::Thread));
        drop(process); // the drop of `installed` needs it
        handled?;
        Ok(installed)
    }

    /// Catches the signals for the rest of the life of the process. The guard is never dropped, so its handle keeps the threads alive too.
    pub(crate) fn keep(self) -> Interrupts {
        let interrupts = self.interrupts.clone();
        mem::forget(self);
        interrupts
    }
}

impl Deref for Installed {
    type Target = Interrupts;

    fn deref(&self) -> &Interrupts {
        &self.interrupts
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let mut process = process();
        if let Some(catcher) = &self.interrupts.router().catcher {
            catcher.release();
        }
        for (signal, disposition) in &self.before {
            // This can't fail: the signal is valid, and the action came from the kernel.
            drop(disposition.put_back(*signal));
        }
        for action in self.actions.drain(..) {
            unregister(action);
        }
        self.interrupts.router().tick(); // handles signals that were already posted
        process.installed = false;
    }
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("interrupts", &self.interrupts)
            .finish_non_exhaustive()
    }
}
