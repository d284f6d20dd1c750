//! A pseudo-terminal with a simulated person, who types bytes and reads the screen.

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

/// The maximum number of bytes stored of the output. Later output is read and dropped, so that the program never blocks.
const KEPT: usize = 16 << 20;
/// The maximum number of blocks per read: more than the terminal buffers, so that endless output can't block the caller.
const BLOCKS: usize = 64;
/// The number of scrolled-off rows to store.
const SCROLLED: usize = 10_000;

/// The person's side of a pseudo-terminal. Dropping it hangs up.
#[derive(Debug)]
#[must_use]
pub struct Terminal {
    ours: File,
    printed: Arc<Mutex<Output>>,
    /// Closing it ends the reader, whose descriptor would keep the terminal open.
    end: Option<OwnedFd>,
    reader: Option<JoinHandle<()>>,
}

/// The output so far, and the resulting screen.
struct Output {
    bytes: Vec<u8>,
    screen: vt100::Parser,
}

impl Output {
    /// Reads the buffered output. Returns whether a process still has the other side.
    ///
    /// The methods of [`Terminal`] also call it, so that they see everything that a process wrote before its end, even if the reader thread is slow.
    fn catch_up(&mut self, mut line: &File) -> bool {
        let mut block = [0; 8192];
        for _ in 0..BLOCKS {
            let mut fds = [PollFd::new(line, PollFlags::IN)];
            // Only the holder of the lock reads: the available bytes can't disappear before the read, so it can't block.
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

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl Terminal {
    /// Opens a pair. The second descriptor is for the child only.
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
        let printed = Arc::new(Mutex::new(Output {
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
    /// If the terminal is gone.
    #[track_caller]
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        (&self.ours)
            .write_all(bytes.as_ref())
            .expect("the terminal should be open");
    }

    /// Types a long text, as a paste does: it arrives only if the program continues to read.
    ///
    /// # Panics
    ///
    /// If the terminal has not accepted all of it after `deadline`.
    #[track_caller]
    pub fn paste(&self, bytes: impl Into<Vec<u8>>, deadline: Duration) {
        let (bytes, ours) = (bytes.into(), self.ours.try_clone());
        let writer = thread::spawn(move || ours?.write_all(&bytes));
        let written = poll_until(deadline, || writer.is_finished().then_some(()));
        assert!(
            written.is_some(),
            "the program did not read everything within {deadline:?}:\n{}",
            self.scrolled()
        );
        let result = writer.join().expect("a writer does not panic");
        result.expect("the terminal should be open");
    }

    /// Returns all bytes printed so far, including escape sequences.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.printed().bytes.clone()
    }

    fn printed(&self) -> MutexGuard<'_, Output> {
        let mut printed = self.locked();
        printed.catch_up(&self.ours);
        printed
    }

    fn locked(&self) -> MutexGuard<'_, Output> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the visible screen: its rows, without trailing spaces and without empty rows at the bottom.
    #[must_use]
    pub fn screen(&self) -> String {
        self.printed().screen.screen().contents()
    }

    /// Returns the visible screen and the rows that scrolled off its top.
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

    /// Returns the position of the cursor: row and column, from 0.
    #[must_use]
    pub fn cursor(&self) -> (u16, u16) {
        self.printed().screen.screen().cursor_position()
    }

    /// Waits until the screen satisfies `is_it`.
    ///
    /// # Panics
    ///
    /// If it doesn't after `deadline`; the message contains the screen.
    #[track_caller]
    pub fn wait_screen(&self, what: &str, deadline: Duration, is_it: impl Fn(&str) -> bool) {
        let found = poll_until(deadline, || is_it(&self.screen()).then_some(()));
        assert!(
            found.is_some(),
            "timed out after {deadline:?} waiting for {what} on the screen:\n{}",
            self.scrolled()
        );
    }

    /// Waits until the screen contains `text`.
    ///
    /// # Panics
    ///
    /// As [`wait_screen`](Self::wait_screen).
    #[track_caller]
    pub fn sees(&self, text: &str, deadline: Duration) {
        self.wait_screen(text, deadline, |screen| screen.contains(text));
    }

    /// Waits until the screen no longer contains `text`.
    ///
    /// # Panics
    ///
    /// As [`wait_screen`](Self::wait_screen).
    #[track_caller]
    pub fn sees_no(&self, text: &str, deadline: Duration) {
        let what = format!("the end of {text:?}");
        self.wait_screen(&what, deadline, |screen| !screen.contains(text));
    }

    /// Changes its size, as a person does by dragging the corner of a window. The foreground processes get SIGWINCH.
    ///
    /// # Panics
    ///
    /// If the terminal is gone.
    pub fn resize(&self, rows: u16, columns: u16) {
        let mut printed = self.printed();
        printed
            .screen
            .screen_mut()
            .set_size(some(rows), some(columns));
        tcsetwinsize(&self.ours, size(rows, columns)).expect("the terminal should be open");
    }

    /// Returns the process group in the foreground.
    #[must_use]
    pub fn foreground(&self) -> Option<i32> {
        tcgetpgrp(&self.ours)
            .ok()
            .map(|pid| pid.as_raw_nonzero().get())
    }

    /// Returns all text printed so far.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Waits until `needle` is in the output after the first `from` bytes, and returns the position after it.
    ///
    /// # Panics
    ///
    /// If the text is not there when `deadline` has passed; the message contains the output.
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

    /// Stops reading until the guard is dropped, like a terminal with a blocked line.
    #[must_use]
    pub fn stall(&self) -> impl Drop + '_ {
        self.locked()
    }

    /// Returns the settings of the terminal.
    ///
    /// # Panics
    ///
    /// If the terminal is gone.
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
