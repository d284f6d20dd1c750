//! The feature `driver`: a future on a tokio runtime in the place of all threads.

use std::{
    fmt,
    io::PipeReader,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{net::unix::pipe, time::timeout};

use crate::{acting::Step, router::Router};

/// Does on a tokio runtime what threads do otherwise: wakes handlers, announces shutdown, minds deadlines. Spawn it.
///
/// It ends when the last handle of its ladder is gone. The signal handler counts presses and ends the process without it, whether it
/// was never spawned or the runtime is stuck; but then nobody is woken for a press, and the shutdown deadline has no effect. Hooks
/// and callbacks run inside it and hold its runtime up.
///
/// # Cancel safety
///
/// Dropping it loses no press: each is decided by the next event (a handler that looks for its notice by
/// [`notified`](crate::Handler::notified) or [`try_take`](crate::Handler::try_take), an answer, an injected press), though nobody is
/// woken for it any more. [`cause`](crate::Interrupts::cause), [`presses`](crate::Interrupts::presses) and the waits that block decide
/// nothing: without an event they know of no press or signal that came since.
///
/// # Panics
///
/// Panics when it is polled outside of a tokio runtime with I/O and time enabled.
#[must_use = "nobody is woken for a press unless the driver runs: spawn it"]
pub struct Driver(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Driver {
    pub(crate) fn new(router: Arc<Router>, woken: PipeReader) -> Self {
        Self(Box::pin(drive(router, woken)))
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

async fn drive(router: Arc<Router>, woken: PipeReader) {
    let woken = pipe::Receiver::from_owned_fd(woken.into())
        .expect("a runtime that drives I/O has room for one more pipe");
    loop {
        drop(router.serve());
        let rest = match router.step() {
            Step::Done => continue,
            Step::Rest(_, rest) => rest,
            Step::Closed => return,
        };
        // All that is decided elsewhere writes into the pipe too, after its decision: none is slept through.
        let wake = forget(&woken);
        let is_driven = match rest {
            None => wake.await,
            Some(rest) => timeout(rest, wake).await.unwrap_or(true),
        };
        if !is_driven {
            return;
        }
    }
}

/// Waits for a wake and takes it out of the pipe; `false` when the runtime is going down.
async fn forget(woken: &pipe::Receiver) -> bool {
    let is_driven = woken.readable().await.is_ok();
    // What cannot be read was a false alarm.
    drop(woken.try_read(&mut [0; 64]));
    is_driven
}
