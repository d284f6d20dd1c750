//! The process: its one set of signals, its suspension, and its end. It ends by the signal of its cause, as shells expect, and with the original
//! settings of the terminal.

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
use crate::sys::SignalAction;
use crate::{Cause, sys};

/// The state of the one set of signals that a process has.
#[cfg(feature = "signals")]
static PROCESS: Mutex<Process> = Mutex::new(Process {
    installed: false,
    catching: BTreeMap::new(),
});

#[cfg(feature = "signals")]
pub(crate) struct Process {
    pub(crate) installed: bool,
    /// The handlers of the signal registry. The registry sets each handler once per process, so a second install must restore them itself.
    catching: BTreeMap<i32, SignalAction>,
}

/// Locks the signals of the process. Waits while another install is being created or dropped.
#[cfg(feature = "signals")]
pub(crate) fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(feature = "signals")]
impl Process {
    /// Restores the handler of the signal registry for this signal. The first call for a signal only records the handler.
    pub(crate) fn catch(&mut self, signal: i32) -> io::Result<()> {
        match self.catching.get(&signal) {
            Some(disposition) => disposition.put_back(signal),
            None => SignalAction::of(signal)
                .map(|disposition| _ = self.catching.insert(signal, disposition)),
        }
    }
}

/// Suspends the process by the default action of `SIGTSTP`, and returns when it continues. Returns at once if the kernel ignores that
/// signal because no shell could continue the process: in an orphaned process group, and for PID 1 of a container.
#[cfg(feature = "signals")]
pub(crate) fn stop_process() {
    let _process = process(); // blocks other installs meanwhile
    if let Ok(handler) = SignalAction::of(SIGTSTP) {
        sys::raise_default(SIGTSTP);
        drop(handler.put_back(SIGTSTP)); // see the drop of `Installed`
    }
}

/// Ends this process by the signal of the cause, so that its parent sees a death by signal and a shell's `for` loop stops too.
///
/// Call this last in a program, after its graceful shutdown. It runs no destructors and no `atexit` handlers, and flushes no output
/// buffers. It doesn't change the terminal: leave raw mode before. [`HardExit`](crate::HardExit) ends a process in the same way, after
/// it has restored the settings of the terminal. To abort the program from within, use
/// [`Injector::hard_exit`](crate::Injector::hard_exit).
///
/// [`Cause::Quit`] leaves no core file. If a signal can't end the process, as for PID 1 of a container, and for
/// [`Cause::Requested`], the process exits with [`Cause::exit_code`].
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

/// The controlling terminal and its original settings, so that a hard exit doesn't leave the shell in raw mode.
pub(crate) struct Terminal {
    /// A separate descriptor, because the program may close or redirect its own.
    tty: File,
    settings: Termios,
}

impl Terminal {
    /// Returns the controlling terminal; `None` if there is none.
    pub(crate) fn find() -> Option<Self> {
        let tty = File::open("/dev/tty").ok()?;
        let settings = tcgetattr(&tty).ok()?;
        Some(Self { tty, settings })
    }

    /// Restores the settings, if this process is in the foreground. Safe in a signal handler: it makes only system calls, none of which
    /// waits for the terminal.
    ///
    /// From the background the call would stop the process by `SIGTTOU`. The process can move to the background between the check and
    /// the call, so this blocks `SIGTTOU`.
    pub(crate) fn restore(&self) {
        if sys::is_in_foreground(self.tty.as_fd()) {
            sys::block(libc::SIGTTOU);
            // The process ends, so an error can't be reported.
            let _untold = tcsetattr(&self.tty, OptionalActions::Now, &self.settings);
        }
    }
}
