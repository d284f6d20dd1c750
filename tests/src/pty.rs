//! A pseudo-terminal with a person at it: types bytes and reads the screen.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::wait::poll_until;

/// Kept of what was printed; what comes later is read and forgotten, so that the program is never held up.
const SCREEN: usize = 16 << 20;

/// The person's side of a pseudo-terminal. Dropping it hangs up.
#[derive(Debug)]
#[must_use]
pub struct Terminal {
    ours: File,
    printed: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Opens a pair; the second is for the child alone.
    pub(crate) fn open() -> io::Result<(Self, OwnedFd)> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let options =
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let theirs = rustix::fs::open(
            std::ffi::OsStr::from_bytes(name.as_bytes()),
            options,
            rustix::fs::Mode::empty(),
        )?;
        tcsetwinsize(
            &ours,
            Winsize {
                ws_row: 40,
                ws_col: 120,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )?;
        let ours = File::from(ours);
        let mut reader = ours.try_clone()?;
        let printed = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&printed);
        thread::spawn(move || {
            let mut block = [0; 8192];
            // An error means that the last process on the terminal has ended.
            while let Ok(count @ 1..) = reader.read(&mut block) {
                let mut sink: std::sync::MutexGuard<'_, Vec<u8>> =
                    sink.lock().unwrap_or_else(PoisonError::into_inner);
                let room = SCREEN.saturating_sub(sink.len()).min(count);
                sink.extend_from_slice(&block[..room]);
            }
        });
        Ok((Self { ours, printed }, theirs))
    }

    /// Types: `b"\x03"` is Ctrl-C, `b"\x1a"` is Ctrl-Z, `b"\r"` is Enter, `b"\x1b"` is Esc.
    ///
    /// # Panics
    ///
    /// When the terminal is gone.
    #[track_caller]
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        (&self.ours)
            .write_all(bytes.as_ref())
            .expect("the terminal should be open");
    }

    /// All bytes printed so far, escape sequences included.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// All text printed so far.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Waits until `needle` stands in what was printed after the first `from` bytes, and gives the position behind it.
    ///
    /// # Panics
    ///
    /// When that has not happened after `deadline`; the text is in the message.
    #[track_caller]
    pub fn wait_text(&self, needle: &str, from: usize, deadline: Duration) -> usize {
        let found = poll_until(deadline, || {
            let bytes = self.bytes();
            let at = bytes
                .get(from..)?
                .windows(needle.len())
                .position(|window| window == needle.as_bytes())?;
            Some(from + at + needle.len())
        });
        found.unwrap_or_else(|| {
            panic!(
                "{needle:?} not on the terminal after {deadline:?}:\n{}",
                self.text()
            )
        })
    }

    /// The settings of the terminal.
    ///
    /// # Panics
    ///
    /// When the terminal is gone.
    #[must_use]
    pub fn settings(&self) -> Termios {
        tcgetattr(&self.ours).expect("the terminal should be open")
    }
}
