//! The signals of the process, of which there is one set: who has them, and how they are given back.

use std::{
    collections::BTreeMap,
    io,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTSTP};
use signal_hook_registry::{SigId, unregister};

use crate::{
    Builder, Error, HardExit, Interrupts, SystemClock, acting::SIGNALS, catch::Catch, error::Kind,
    sys, sys::Disposition,
};

/// The process has one set of signals.
static PROCESS: Mutex<Process> = Mutex::new(Process {
    installed: false,
    catching: BTreeMap::new(),
});

struct Process {
    installed: bool,
    /// The signal registry's handlers. It sets each once in the life of a process, so a second install must put them back itself.
    catching: BTreeMap<i32, Disposition>,
}

/// A ladder that catches the process's signals.
///
/// Dropping it stops catching them and restores what they did before; the ladder itself lives on as a detached one while other
/// handles exist. Keep it to the end of `main`.
///
/// Restoring means the default effect in nearly every program. Where other code of the process listens to the same signals through
/// the same registry (as `tokio::signal` does), it is what they did before the install, so listeners that came later go deaf.
#[must_use = "dropping it restores the signals' former effect at once"]
pub struct Installed {
    interrupts: Interrupts,
    before: Vec<(i32, Disposition)>,
    actions: Vec<SigId>,
}

impl Installed {
    /// Makes an install whose router is served by what `start` starts.
    pub(crate) fn new(
        mut builder: Builder,
        is_driven: bool,
        start: impl FnOnce(&Interrupts) -> io::Result<()>,
    ) -> Result<Self, Error> {
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if process.installed {
            return Err(Kind::AlreadyInstalled.into());
        }
        let mut before = Vec::new();
        for signal in SIGNALS {
            let disposition =
                Disposition::of(signal).map_err(|source| Kind::Signal { signal, source })?;
            let stays = match signal {
                SIGINT | SIGHUP | SIGQUIT => disposition.is_ignore(),
                SIGTSTP => disposition.is_ignore() || !builder.hooks.are_of_stops(),
                _ => false,
            };
            if !stays {
                before.push((signal, disposition));
            }
        }
        builder.clock = Arc::new(SystemClock); // the handler's
        let last_rung = match builder.hard_exit {
            HardExit::InHandler => 2,
            HardExit::Thread => 3,
            HardExit::Off | HardExit::Callback(_) => u64::MAX,
        };
        let catch = Catch::new(
            builder.rules.debounce,
            builder.forward_window,
            last_rung,
            builder.restore_terminal,
        );
        let catch = Arc::new(catch.map_err(Kind::Wake)?);
        let mut router = builder.router(Some(catch.clone()));
        router.is_driven = is_driven;
        let mut installed = Self {
            interrupts: Interrupts::new(router),
            before: Vec::new(),
            actions: Vec::new(),
        };
        process.installed = true;
        let mut handled = before.into_iter().try_for_each(|(signal, disposition)| {
            // Noted first, so that what is half done is undone by the drop.
            installed.before.push((signal, disposition));
            let catch = catch.clone();
            sys::register(signal, move |origin| catch.on_signal(signal, origin))
                .map(|action| installed.actions.push(action))
                .and_then(|()| process.catch(signal))
                .map_err(|source| Kind::Signal { signal, source })
        });
        // After the handlers: it lets in what the mask has kept waiting.
        handled = handled.and_then(|()| start(&installed.interrupts).map_err(Kind::Thread));
        drop(process); // the drop of `installed` needs it
        handled?;
        Ok(installed)
    }
}

/// Stops the process by the default action of `SIGTSTP`, and comes back with it. At once where the system stops nobody by that
/// signal, because there would be no shell to continue it: in an orphaned process group, and as PID 1 of a container.
pub(crate) fn stop_process() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner); // no install comes or goes meanwhile
    if let Ok(handler) = Disposition::of(SIGTSTP) {
        sys::raise_default(SIGTSTP);
        drop(handler.put_back(SIGTSTP)); // see the drop of `Installed`
    }
}

impl Process {
    fn catch(&mut self, signal: i32) -> io::Result<()> {
        match self.catching.get(&signal) {
            Some(disposition) => disposition.put_back(signal),
            None => Disposition::of(signal)
                .map(|disposition| _ = self.catching.insert(signal, disposition)),
        }
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
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catch) = &self.interrupts.router().catch {
            catch.release();
        }
        for (signal, disposition) in &self.before {
            // It cannot fail: the signal is valid, and so is an action that came from the kernel.
            drop(disposition.put_back(*signal));
        }
        for action in self.actions.drain(..) {
            unregister(action);
        }
        self.interrupts.router().tick(); // no signal is left behind
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
