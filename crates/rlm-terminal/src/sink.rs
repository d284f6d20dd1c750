//! Writes text on a separate thread, so that a slow reader blocks nothing else.
//!
//! A broken pipe is permanent. Other errors, above all a full disk, can be temporary. So the thread tries to write each piece, and after the first
//! success it reports that earlier text is missing.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anstream::{AutoStream, ColorChoice};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::tty::Tty;

#[derive(Debug)]
enum SinkMessage {
    Write(String),
    /// Report when everything that was queued before this is written.
    ConfirmWritten(oneshot::Sender<()>),
}

/// A writer on its own thread. Dropping it waits until everything is written.
#[derive(Debug)]
pub(crate) struct Sink {
    /// The channel is unbounded, but `free` limits it.
    messages: Option<mpsc::UnboundedSender<SinkMessage>>,
    /// The permit for one piece, which can be a line of megabytes. The thread returns the permit when the piece is written.
    free: Arc<Semaphore>,
    /// Whether the reader is gone.
    is_closed: Arc<AtomicBool>,
    /// Why text before the last written piece is missing.
    write_error: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
    colour: bool,
}

impl Sink {
    pub(crate) fn terminal(after_piece: impl Fn() + Send + 'static) -> io::Result<Self> {
        let terminal = Tty::reopen()?;
        let colour = AutoStream::choice(&terminal) != ColorChoice::Never;
        Ok(Self::start(terminal, colour, after_piece))
    }

    /// Starts a sink with its thread, which calls `after_piece` after each piece, before there is room again.
    pub(crate) fn start(
        mut to: impl Write + Send + 'static,
        colour: bool,
        after_piece: impl Fn() + Send + 'static,
    ) -> Self {
        let (messages, mut queued) = mpsc::unbounded_channel();
        let free = Arc::new(Semaphore::new(1));
        let written = Arc::clone(&free);
        let gone = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&gone);
        let missing = Arc::new(Mutex::new(None));
        let to_tell = Arc::clone(&missing);
        let thread = std::thread::spawn(move || {
            let mut broken: Option<WriteFailure> = None;
            while let Some(message) = queued.blocking_recv() {
                match message {
                    SinkMessage::Write(text) => {
                        // Without a reader, drop the text.
                        if !failed.load(Ordering::SeqCst) {
                            match write(&mut to, &text, broken.as_ref()) {
                                Ok(()) => {
                                    if let Some(WriteFailure { why, .. }) = broken.take() {
                                        *lock(&to_tell) = Some(why);
                                    }
                                }
                                Err(it) if it.is_gone => failed.store(true, Ordering::SeqCst),
                                Err(it) => broken = Some(it),
                            }
                        }
                        drop(text);
                        after_piece();
                        written.add_permits(1);
                    }
                    SinkMessage::ConfirmWritten(done) => _ = done.send(()),
                }
            }
        });
        Self {
            messages: Some(messages),
            free,
            is_closed: gone,
            write_error: missing,
            thread: Some(thread),
            colour,
        }
    }

    /// Whether the sink supports colours.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour
    }

    /// Whether the reader is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Takes the reason why text is missing. The reason is set when writing works again, and returned once.
    pub(crate) fn missing(&self) -> Option<String> {
        lock(&self.write_error).take()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.free.available_permits() > 0
    }

    /// Waits until there is room.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn room(&self) {
        // Return the permit immediately; this thread is the only writer.
        drop(self.free.acquire().await);
    }

    /// Writes text, if there is room.
    pub(crate) fn write(&self, text: String) {
        if !text.is_empty()
            && let Ok(permit) = self.free.try_acquire()
        {
            permit.forget();
            self.queue(SinkMessage::Write(text));
        }
    }

    fn queue(&self, message: SinkMessage) {
        // If the thread is gone, nothing can be written.
        let _gone = self
            .messages
            .as_ref()
            .map(|messages| messages.send(message));
    }

    /// Writes text, and waits until it is written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait. The text may then be unwritten.
    pub(crate) async fn write_through(&self, text: String) {
        let (done, is_done) = oneshot::channel();
        self.room().await;
        self.write(text);
        self.queue(SinkMessage::ConfirmWritten(done));
        let _gone = is_done.await;
    }
}

/// The error that kept text from being written.
#[derive(Debug)]
struct WriteFailure {
    why: String,
    is_gone: bool,
    /// Whether the output ends with half a line.
    is_half: bool,
}

/// Writes whole lines. If the output ends with half a line, ends that line first.
fn write(
    to: &mut impl Write,
    text: &str,
    before: Option<&WriteFailure>,
) -> Result<(), WriteFailure> {
    let is_half = before.is_some_and(|before| before.is_half);
    let text: Cow<'_, str> = match is_half {
        true => format!("\n{text}").into(),
        false => text.into(),
    };
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let error = match to.write(rest) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(count) => {
                rest = &rest[count..];
                continue;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => e,
        };
        let written = text.len() - rest.len();
        return Err(WriteFailure {
            why: error.to_string(),
            is_gone: error.kind() == io::ErrorKind::BrokenPipe,
            is_half: match written {
                0 => is_half,
                _ => text.as_bytes()[written - 1] != b'\n',
            },
        });
    }
    to.flush().map_err(|e| WriteFailure {
        why: e.to_string(),
        is_gone: e.kind() == io::ErrorKind::BrokenPipe,
        is_half: false,
    })
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.messages.take());
        // A panic in the thread has been reported already.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with `room` bytes left.
    struct Disk {
        written: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.written.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn line_written_after_a_full_disk_is_whole() {
        let mut disk = Disk {
            written: Vec::new(),
            room: 7,
        };
        let first = write(&mut disk, "one\ntwo\n", None).unwrap_err();
        assert!(first.is_half && !first.is_gone, "{first:?}");
        let second = write(&mut disk, "three\n", Some(&first)).unwrap_err();
        assert!(second.is_half, "{second:?}");
        disk.room = 99;
        write(&mut disk, "four\n", Some(&second)).unwrap();
        assert_eq!(disk.written, b"one\ntwo\nfour\n");
    }
}
