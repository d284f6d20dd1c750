use std::{
    collections::BTreeMap,
    io,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::{Handle, Signals},
};

use crate::{
    Cause, Error, Interrupts, PressSource, error::Kind, router::Router, sys, sys::Disposition,
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
    handle: Handle,
    reader: Option<JoinHandle<()>>,
}

impl Installed {
    pub(crate) fn new(start: impl FnOnce() -> io::Result<Interrupts>) -> Result<Self, Error> {
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if process.installed {
            return Err(Kind::AlreadyInstalled.into());
        }
        let mut before = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let disposition =
                Disposition::of(signal).map_err(|source| Kind::Signal { signal, source })?;
            if !(disposition.is_ignore() && matches!(signal, SIGINT | SIGHUP)) {
                before.push((signal, disposition));
            }
        }
        let interrupts = start().map_err(Kind::Thread)?;
        let mut signals = Signals::new([0; 0]).map_err(Kind::Thread)?;
        let mut installed = Self {
            interrupts,
            before: Vec::new(),
            handle: signals.handle(),
            reader: None,
        };
        process.installed = true;
        for (signal, disposition) in before {
            // Noted first, so that what is half done is undone by the drop.
            installed.before.push((signal, disposition));
            let result = installed
                .handle
                .add_signal(signal)
                .and_then(|()| process.catch(signal));
            if let Err(source) = result {
                drop(process); // the drop of `installed` needs it
                return Err(Kind::Signal { signal, source }.into());
            }
        }
        drop(process);
        let router = installed.interrupts.router().clone();
        let reader = std::thread::Builder::new()
            .name("interrupts-sig".into())
            .spawn(move || read(&mut signals, &router));
        installed.reader = Some(reader.map_err(Kind::Thread)?);
        Ok(installed)
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

/// The reading thread's whole life. Reading is apart from acting, so that a press is decided while wakers run.
fn read(signals: &mut Signals, router: &Arc<Router>) {
    // One thread at least must be able to receive them, whatever mask the process inherited.
    sys::unblock(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT]);
    loop {
        let closed = signals.is_closed(); // asked before the last look, so that no signal is left behind
        for signal in signals.wait() {
            match signal {
                SIGINT => router.press(PressSource::Signal),
                SIGHUP => router.terminate(Cause::Hangup),
                SIGQUIT => router.terminate(Cause::Quit),
                _ => router.terminate(Cause::Terminate),
            }
        }
        if closed {
            return;
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
        for (signal, disposition) in &self.before {
            // It cannot fail: the signal is valid, and so is an action that came from the kernel.
            drop(disposition.put_back(*signal));
        }
        self.handle.close();
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
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
