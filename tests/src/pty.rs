//! A pseudo-terminal with a person at it: types bytes and reads the screen.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcgetpgrp, tcsetwinsize};

use crate::wait::poll_until;

/// Kept of what was printed; what comes later is read and forgotten, so that the program is never held up.
const KEPT: usize = 16 << 20;
/// Read in one look at most: more than a line holds, so that a program that prints without end does not hold up who looks.
const BLOCKS: usize = 64;
/// Rows that have left the screen and are kept.
const SCROLLED: usize = 10_000;

/// The person's side of a pseudo-terminal. Dropping it hangs up.
#[derive(Debug)]
#[must_use]
pub struct Terminal {
    ours: File,
    printed: Arc<Mutex<Printed>>,
    /// Closed to end the reader, whose descriptor would keep the line open.
    end: Option<OwnedFd>,
    reader: Option<JoinHandle<()>>,
}

/// What came, and what a person sees of it.
struct Printed {
    bytes: Vec<u8>,
    screen: vt100::Parser,
}

impl Printed {
    /// Takes what the line holds, and tells whether a process still has the other side.
    ///
    /// Whoever looks calls it too: what a process had written before it ended is then seen, however late the reader's turn comes.
    fn catch_up(&mut self, mut line: &File) -> bool {
        let mut block = [0; 8192];
        for _ in 0..BLOCKS {
            let mut fds = [PollFd::new(line, PollFlags::IN)];
            // Only who holds the lock reads: what is there now is there for the read too, and it can't block.
            match poll(&mut fds, Some(&Timespec::default())) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
            // An error means that the last process on the terminal has ended.
            let Ok(count @ 1..) = line.read(&mut block) else {
                return false;
            };
            let room = KEPT.saturating_sub(self.bytes.len()).min(count);
            self.bytes.extend_from_slice(&block[..room]);
            self.screen.process(&block[..count]);
        }
        true
    }
}

impl std::fmt::Debug for Printed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl Terminal {
    /// Opens a pair; the second is for the child alone.
    pub(crate) fn open((rows, columns): (u16, u16)) -> io::Result<(Self, OwnedFd)> {
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
        tcsetwinsize(&ours, size(rows, columns))?;
        let ours = File::from(ours);
        let reader = ours.try_clone()?;
        let printed = Arc::new(Mutex::new(Printed {
            bytes: Vec::new(),
            screen: vt100::Parser::new(some(rows), some(columns), SCROLLED),
        }));
        let sink = Arc::clone(&printed);
        let (ended, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let reader = thread::spawn(move || {
            loop {
                let mut fds = [
                    PollFd::new(&reader, PollFlags::IN),
                    PollFd::new(&ended, PollFlags::IN),
                ];
                let polled = poll(&mut fds, None);
                if !fds[1].revents().is_empty() || polled.is_err() {
                    return;
                }
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                if !sink.catch_up(&reader) {
                    return;
                }
            }
        });
        let terminal = Self {
            ours,
            printed,
            end: Some(end),
            reader: Some(reader),
        };
        Ok((terminal, theirs))
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

    /// Types a lot, as a paste does: the program has to read on for it to arrive.
    ///
    /// # Panics
    ///
    /// When the terminal has not taken all of it after `deadline`.
    #[track_caller]
    pub fn paste(&self, bytes: impl Into<Vec<u8>>, deadline: Duration) {
        let (bytes, ours) = (bytes.into(), self.ours.try_clone());
        let writer = thread::spawn(move || ours?.write_all(&bytes));
        let written = poll_until(deadline, || writer.is_finished().then_some(()));
        assert!(
            written.is_some(),
            "not all was read within {deadline:?}:\n{}",
            self.scrolled()
        );
        let result = writer.join().expect("a writer does not panic");
        result.expect("the terminal should be open");
    }

    /// All bytes printed so far, escape sequences included.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.printed().bytes.clone()
    }

    fn printed(&self) -> MutexGuard<'_, Printed> {
        let mut printed = self.locked();
        printed.catch_up(&self.ours);
        printed
    }

    fn locked(&self) -> MutexGuard<'_, Printed> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a person sees now: the rows of the screen, without what is empty at their ends and at the bottom.
    #[must_use]
    pub fn screen(&self) -> String {
        self.printed().screen.screen().contents()
    }

    /// The same, with what has left the screen at its top.
    #[must_use]
    pub fn scrolled(&self) -> String {
        let mut printed = self.printed();
        let screen = printed.screen.screen_mut();
        let (rows, columns) = screen.size();
        screen.set_scrollback(usize::MAX);
        let mut lines = Vec::new();
        while screen.scrollback() > 0 {
            let take = screen.scrollback().min(rows.get().into());
            lines.extend(screen.rows(0, columns.get()).take(take));
            screen.set_scrollback(screen.scrollback() - take);
        }
        lines.push(screen.contents());
        lines.join("\n")
    }

    /// Where the cursor stands: row and column, from 0.
    #[must_use]
    pub fn cursor(&self) -> (u16, u16) {
        self.printed().screen.screen().cursor_position()
    }

    /// Waits until the screen is as wished.
    ///
    /// # Panics
    ///
    /// When it is not after `deadline`; the screen is in the message.
    #[track_caller]
    pub fn wait_screen(&self, what: &str, deadline: Duration, is_it: impl Fn(&str) -> bool) {
        let found = poll_until(deadline, || is_it(&self.screen()).then_some(()));
        assert!(
            found.is_some(),
            "{what} was not to be seen within {deadline:?}:\n{}",
            self.scrolled()
        );
    }

    /// Waits until `text` stands on the screen.
    ///
    /// # Panics
    ///
    /// As [`wait_screen`](Self::wait_screen).
    #[track_caller]
    pub fn sees(&self, text: &str, deadline: Duration) {
        self.wait_screen(text, deadline, |screen| screen.contains(text));
    }

    /// Waits until `text` stands nowhere on the screen.
    ///
    /// # Panics
    ///
    /// As [`wait_screen`](Self::wait_screen).
    #[track_caller]
    pub fn sees_no(&self, text: &str, deadline: Duration) {
        let what = format!("the end of {text:?}");
        self.wait_screen(&what, deadline, |screen| !screen.contains(text));
    }

    /// Makes it another size, as a person does who drags a window's corner; what runs in the foreground gets SIGWINCH.
    ///
    /// # Panics
    ///
    /// When the terminal is gone.
    pub fn resize(&self, rows: u16, columns: u16) {
        let mut printed = self.printed();
        printed
            .screen
            .screen_mut()
            .set_size(some(rows), some(columns));
        tcsetwinsize(&self.ours, size(rows, columns)).expect("the terminal should be open");
    }

    /// The process group that has it in the foreground.
    #[must_use]
    pub fn foreground(&self) -> Option<i32> {
        tcgetpgrp(&self.ours)
            .ok()
            .map(|pid| pid.as_raw_nonzero().get())
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

    /// Reads nothing that is printed until the guard is dropped, as a terminal whose line is stuck.
    #[must_use]
    pub fn stall(&self) -> impl Drop + '_ {
        self.locked()
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

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(reader) = self.reader.take() {
            let _panicked = reader.join();
        }
    }
}

fn some(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a terminal has rows and columns")
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
