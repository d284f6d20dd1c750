//! The settings of the terminal as they were found, so that a hard exit leaves the shell no raw mode.

use std::{fs::File, os::fd::AsFd};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::sys;

/// The controlling terminal and its settings as they were found.
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
