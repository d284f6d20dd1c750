//! Tests of sleeps under paused time: their ends, their results, and that no wake-up is lost.

mod batches;
mod blocking;
#[cfg(feature = "backon")]
mod examples;
mod gate;
mod interval;
mod model;
#[cfg(feature = "backon")]
mod retry;
mod run;
mod trace;
mod wakers;
mod wakes;
mod wall;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

const TEN: Duration = Duration::from_secs(10);

/// Returns the time of tokio's clock as an `Instant` of the standard library.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets a hundred tasks run until each waits. It yields several times, because one turn of the scheduler runs about sixty tasks.
async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// A waker that counts its calls.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    fn poll<F: Future + ?Sized>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}
