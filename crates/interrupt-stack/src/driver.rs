//! The feature `driver`: a future on a tokio runtime that replaces all threads.

use std::{
    fmt,
    io::PipeReader,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{net::unix::pipe, time::timeout};

use crate::{router::Router, worker::WorkState};

/// A future that does the work of all threads on a tokio runtime: it wakes handlers, announces shutdown and keeps deadlines. Spawn it.
///
/// After [`install_driven_scoped`](crate::Builder::install_driven_scoped), the driver ends when the last handle of its ladder is
/// gone. If it was never spawned, or if the runtime is stuck, the signal handler
/// still counts presses and ends the process. But no handler is woken for a press, and the shutdown deadline has no effect. Hooks and
/// callbacks run inside the driver and block its runtime.
///
/// # Cancel safety
///
/// Dropping the driver loses no press. The next event first processes all earlier presses. Such an event is a handler's call of
/// [`notified`](crate::Handler::notified) or [`try_take`](crate::Handler::try_take), an answer, or an injected press. But no handler
/// is woken any more. [`cause`](crate::Interrupts::cause), [`presses`](crate::Interrupts::presses) and the blocking waits are not
/// events: they don't see a press or signal that came after the drop.
///
/// # Panics
///
/// Panics if it is polled outside of a tokio runtime with I/O and time enabled.
#[must_use = "a press wakes no handler unless the driver runs: spawn it"]
pub struct InterruptDriver(Pin<Box<dyn Future<Output = ()> + Send>>);

impl InterruptDriver {
    pub(crate) fn new(router: Arc<Router>, woken: PipeReader) -> Self {
        Self(Box::pin(drive(router, woken)))
    }
}

impl Future for InterruptDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for InterruptDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterruptDriver").finish_non_exhaustive()
    }
}

async fn drive(router: Arc<Router>, woken: PipeReader) {
    let woken = pipe::Receiver::from_owned_fd(woken.into())
        .expect("the runtime has I/O enabled and can register the pipe");
    loop {
        drop(router.serve());
        let rest = match router.step() {
            WorkState::Done => continue,
            WorkState::Idle(_, rest) => rest,
            WorkState::Closed => return,
        };
        // Other threads also write to the pipe after they have changed the state, so this wait misses no change.
        let wake = read_wake(&woken);
        let is_driven = match rest {
            None => wake.await,
            Some(rest) => timeout(rest, wake).await.unwrap_or(true),
        };
        if !is_driven {
            return;
        }
    }
}

/// Waits for a wake and reads it from the pipe. Returns `false` when the runtime shuts down.
async fn read_wake(woken: &pipe::Receiver) -> bool {
    let is_driven = woken.readable().await.is_ok();
    // If the read fails, the wake was spurious.
    drop(woken.try_read(&mut [0; 64]));
    is_driven
}
