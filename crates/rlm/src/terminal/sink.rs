//! Where text goes, behind a thread of its own: who takes nothing holds nobody up.

use std::io::{self, Write};
use std::thread::JoinHandle;

use anstream::{AutoStream, ColorChoice};
use tokio::sync::{mpsc, oneshot};

use super::tty::Tty;

/// How many pieces wait for a slow reader, beside the one that is being written: a piece can be a line of megabytes.
const WAITING: usize = 1;

#[derive(Debug)]
enum Order {
    Write(String),
    /// Everything before this is written.
    Tell(oneshot::Sender<()>),
}

/// One place to write to. Dropping it waits until all is written.
#[derive(Debug)]
pub(crate) struct Sink {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    colour: bool,
}

impl Sink {
    pub(crate) fn stdout() -> Self {
        let colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        Self::start(io::stdout(), colour)
    }

    pub(crate) fn terminal() -> io::Result<Self> {
        let terminal = Tty::again()?;
        let colour = AutoStream::choice(&terminal) != ColorChoice::Never;
        Ok(Self::start(terminal, colour))
    }

    fn start(mut to: impl Write + Send + 'static, colour: bool) -> Self {
        let (orders, mut ordered) = mpsc::channel(WAITING);
        let thread = std::thread::spawn(move || {
            // What can't be written is lost, and so is all behind it: half a line would be worse.
            let mut is_gone = false;
            while let Some(order) = ordered.blocking_recv() {
                match order {
                    Order::Write(text) if !is_gone => {
                        let written = to.write_all(text.as_bytes()).and_then(|()| to.flush());
                        is_gone = written.is_err();
                    }
                    Order::Write(_) => {}
                    Order::Tell(done) => _ = done.send(()),
                }
            }
        });
        Self {
            orders: Some(orders),
            thread: Some(thread),
            colour,
        }
    }

    /// Whether colours are wanted there.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour
    }

    pub(crate) fn has_room(&self) -> bool {
        let orders = self.orders.as_ref();
        orders.is_some_and(|orders| orders.capacity() > 0)
    }

    /// Waits until there is room.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn room(&self) {
        match &self.orders {
            // The permit is given back at once; nobody else writes here.
            Some(orders) => drop(orders.reserve().await),
            None => std::future::pending().await,
        }
    }

    /// Writes text that may have colours, if there is room.
    pub(crate) fn write(&self, text: String) {
        if let Some(orders) = self.orders.as_ref().filter(|_| !text.is_empty()) {
            let _no_room = orders.try_send(Order::Write(text));
        }
    }

    /// Writes, and waits until all is written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the wait up.
    pub(crate) async fn write_through(&self, text: String) {
        let (done, is_done) = oneshot::channel();
        if let Some(orders) = &self.orders
            && orders.send(Order::Write(text)).await.is_ok()
            && orders.send(Order::Tell(done)).await.is_ok()
        {
            let _gone = is_done.await;
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A panic there has been reported.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}
