//! Where text goes, behind a thread of its own: who takes nothing holds nobody up.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anstream::{AutoStream, ColorChoice};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::tty::Tty;
use crate::command::detach::Output;

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
    /// Whether writing has failed.
    gone: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    colour: bool,
}

impl Sink {
    /// The standard output; that of a detached run has a bounded file.
    pub(crate) fn stdout(file: Option<Output>) -> Self {
        let colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        match file {
            Some(file) => Self::start(file, false),
            None => Self::start(io::stdout(), colour),
        }
    }

    pub(crate) fn terminal() -> io::Result<Self> {
        let terminal = Tty::again()?;
        let colour = AutoStream::choice(&terminal) != ColorChoice::Never;
        Ok(Self::start(terminal, colour))
    }

    fn start(mut to: impl Write + Send + 'static, colour: bool) -> Self {
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let free = Arc::new(Semaphore::new(1));
        let written = Arc::clone(&free);
        let gone = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&gone);
        let thread = std::thread::spawn(move || {
            while let Some(order) = ordered.blocking_recv() {
                match order {
                    Order::Write(text) => {
                        // What can't be written is lost, and so is all behind it: half a line would be worse.
                        if !failed.load(Ordering::SeqCst) {
                            let result = to.write_all(text.as_bytes()).and_then(|()| to.flush());
                            failed.store(result.is_err(), Ordering::SeqCst);
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

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A panic there has been reported.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}
