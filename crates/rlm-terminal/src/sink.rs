//! Where text goes, behind a thread of its own: who takes nothing holds nobody up.
//!
//! A reader that is gone stays gone. Anything else that keeps text from being written, a full disk above all, may pass: each piece is tried, and when
//! one gets through, whoever writes learns that those before it are missing.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anstream::{AutoStream, ColorChoice};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::tty::Tty;

#[derive(Debug)]
enum Order {
    Write(String),
    /// Everything before this is written.
    Tell(oneshot::Sender<()>),
}

/// One place to write to. Dropping it waits until all is written.
#[derive(Debug)]
pub(crate) struct Sink {
    /// Bounded by the permit.
    orders: Option<mpsc::UnboundedSender<Order>>,
    /// One piece at a time, which can be a line of megabytes: the permit is gone until it is written.
    free: Arc<Semaphore>,
    /// Whether nobody reads any more.
    gone: Arc<AtomicBool>,
    /// Why something is missing before what was written last.
    missing: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
    colour: bool,
}

impl Sink {
    pub(crate) fn terminal() -> io::Result<Self> {
        let terminal = Tty::again()?;
        let colour = AutoStream::choice(&terminal) != ColorChoice::Never;
        Ok(Self::start(terminal, colour))
    }

    /// Starts a sink of its own thread.
    pub(crate) fn start(mut to: impl Write + Send + 'static, colour: bool) -> Self {
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let free = Arc::new(Semaphore::new(1));
        let written = Arc::clone(&free);
        let gone = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&gone);
        let missing = Arc::new(Mutex::new(None));
        let to_tell = Arc::clone(&missing);
        let thread = std::thread::spawn(move || {
            let mut broken: Option<Broken> = None;
            while let Some(order) = ordered.blocking_recv() {
                match order {
                    Order::Write(text) => {
                        // Without a reader all is lost.
                        if !failed.load(Ordering::SeqCst) {
                            match write(&mut to, &text, broken.as_ref()) {
                                Ok(()) => {
                                    if let Some(Broken { why, .. }) = broken.take() {
                                        *lock(&to_tell) = Some(why);
                                    }
                                }
                                Err(it) if it.is_gone => failed.store(true, Ordering::SeqCst),
                                Err(it) => broken = Some(it),
                            }
                        }
                        drop(text);
                        written.add_permits(1);
                    }
                    Order::Tell(done) => _ = done.send(()),
                }
            }
        });
        Self {
            orders: Some(orders),
            free,
            gone,
            missing,
            thread: Some(thread),
            colour,
        }
    }

    /// Whether colours are wanted there.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour
    }

    /// Whether nobody is there any more to read it.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Takes why something is missing, told once and when there is room again.
    pub(crate) fn missing(&self) -> Option<String> {
        lock(&self.missing).take()
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
        // The permit is given back at once; nobody else writes here.
        drop(self.free.acquire().await);
    }

    /// Writes text, if there is room.
    pub(crate) fn write(&self, text: String) {
        if !text.is_empty()
            && let Ok(permit) = self.free.try_acquire()
        {
            permit.forget();
            self.order(Order::Write(text));
        }
    }

    fn order(&self, order: Order) {
        // Without its thread nothing can be written, and nothing is owed.
        let _gone = self.orders.as_ref().map(|orders| orders.send(order));
    }

    /// Writes, and waits until all is written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the wait up.
    pub(crate) async fn write_through(&self, text: String) {
        let (done, is_done) = oneshot::channel();
        self.room().await;
        self.write(text);
        self.order(Order::Tell(done));
        let _gone = is_done.await;
    }
}

/// What kept text from being written.
#[derive(Debug)]
struct Broken {
    why: String,
    is_gone: bool,
    /// Whether half a line stands there.
    is_half: bool,
}

/// Writes whole lines, behind the end of a half one.
fn write(to: &mut impl Write, text: &str, before: Option<&Broken>) -> Result<(), Broken> {
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
        return Err(Broken {
            why: error.to_string(),
            is_gone: error.kind() == io::ErrorKind::BrokenPipe,
            is_half: match written {
                0 => is_half,
                _ => text.as_bytes()[written - 1] != b'\n',
            },
        });
    }
    to.flush().map_err(|e| Broken {
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
        drop(self.orders.take());
        // A panic there has been reported.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with so much room left.
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
    fn what_a_full_disk_did_not_take_costs_no_line_behind_it() {
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
