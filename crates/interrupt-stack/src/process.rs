//! The process: its one set of signals, how it is stopped by one, and how it ends: by its cause, as shells expect, and with the terminal's settings
//! as they were found.

#[cfg(feature = "signals")]
use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};
use std::{fs::File, os::fd::AsFd};

#[cfg(feature = "signals")]
use libc::SIGTSTP;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

#[cfg(feature = "signals")]
use crate::sys::Disposition;
use crate::{Cause, sys};

/// The process has one set of signals.
#[cfg(feature = "signals")]
static PROCESS: Mutex<Process> = Mutex::new(Process {
    installed: false,
    catching: BTreeMap::new(),
});

#[cfg(feature = "signals")]
pub(crate) struct Process {
    pub(crate) installed: bool,
    /// The signal registry's handlers. It sets each once in the life of a process, so a second install must put them back itself.
    catching: BTreeMap<i32, Disposition>,
}

/// Waits until no other install comes or goes.
#[cfg(feature = "signals")]
pub(crate) fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(feature = "signals")]
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
#[cfg(feature = "signals")]
pub(crate) fn stop_process() {
    let _process = process(); // no install comes or goes meanwhile
    if let Ok(handler) = Disposition::of(SIGTSTP) {
        sys::raise_default(SIGTSTP);
        drop(handler.put_back(SIGTSTP)); // see the drop of `Installed`
    }
}

/// Ends this process by the cause's signal, so that whoever waits for it sees a death by signal and a shell's `for` loop stops too.
///
/// This is the last line of a program whose graceful shutdown is done. Nothing is run or flushed: no destructors, no `atexit`
/// handlers, no output buffers. The terminal stays as it is: leave raw mode before. [`HardExit`](crate::HardExit) ends a process in
/// the same way, after it has put the terminal's settings back: to abort from within, take
/// [`Injector::terminate`](crate::Injector::terminate) with [`Cause::Quit`], or a press after shutdown began.
///
/// [`Cause::Quit`] leaves no core file. Where a signal cannot end the process, as in PID 1 of a container, and for
/// [`Cause::Requested`], it exits with [`Cause::exit_code`].
///
/// # Platform
///
/// Unix.
pub fn die_by(cause: Cause) -> ! {
    if let Some(signal) = cause.signal() {
        sys::raise_default(signal);
    }
    sys::exit_now(cause.exit_code())
}

/// The controlling terminal and its settings as they were found, so that a hard exit leaves the shell no raw mode.
pub(crate) struct Terminal {
    /// Of our own: the program may close or redirect every other.
    tty: File,
    settings: Termios,
}

impl Terminal {
    /// Returns `None` where there is no controlling terminal.
    pub(crate) fn find() -> Option<Self> {
        let tty = File::open("/dev/tty").ok()?;
        let settings = tcgetattr(&tty).ok()?;
        Some(Self { tty, settings })
    }

    /// Puts the settings back, if the terminal is ours. Safe in a signal handler: system calls, none of which waits for the terminal.
    ///
    /// From the background it would stop the process by `SIGTTOU`, and may fall there between the look and the call.
    pub(crate) fn restore(&self) {
        if sys::is_in_foreground(self.tty.as_fd()) {
            sys::block(libc::SIGTTOU);
            // There is nobody to tell: the process ends.
            let _untold = tcsetattr(&self.tty, OptionalActions::Now, &self.settings);
        }
    }
}
