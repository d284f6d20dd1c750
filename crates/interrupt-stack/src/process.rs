//! The signals of the process, of which there is one set: whether they are taken, and how it is stopped by one.

use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use libc::SIGTSTP;

use crate::{sys, sys::Disposition};

/// The process has one set of signals.
static PROCESS: Mutex<Process> = Mutex::new(Process {
    installed: false,
    catching: BTreeMap::new(),
});

pub(crate) struct Process {
    pub(crate) installed: bool,
    /// The signal registry's handlers. It sets each once in the life of a process, so a second install must put them back itself.
    catching: BTreeMap<i32, Disposition>,
}

/// Waits until no other install comes or goes.
pub(crate) fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Takes a signal whose handler is registered.
    pub(crate) fn catch(&mut self, signal: i32) -> io::Result<()> {
        match self.catching.get(&signal) {
            Some(disposition) => disposition.put_back(signal),
            None => Disposition::of(signal)
                .map(|disposition| _ = self.catching.insert(signal, disposition)),
        }
    }
}

/// Stops the process by the default action of `SIGTSTP`, and comes back with it. At once where the system stops nobody by that
/// signal, because there would be no shell to continue it: in an orphaned process group, and as PID 1 of a container.
pub(crate) fn stop_process() {
    let _process = process(); // no install comes or goes meanwhile
    if let Ok(handler) = Disposition::of(SIGTSTP) {
        sys::raise_default(SIGTSTP);
        drop(handler.put_back(SIGTSTP)); // see the drop of `Installed`
    }
}
