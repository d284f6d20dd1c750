//! The viewer of a process of the loop, and the crash that ends the process.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use cancellable_sleep::{Sleep, SleepGate};
use loop_runner::{RunEventReceiver, View};
use tokio::sync::watch;

use super::judge::Seen;

/// More polls than any night needs.
const POLLS: u64 = 3_000_000;

/// The input of a viewer.
pub(crate) type Watching = (RunEventReceiver, watch::Receiver<Arc<View>>);

/// Waits for the next event or view, as a screen does.
pub(crate) async fn look(watched: &mut Option<Watching>) -> Seen {
    let Some((news, view)) = watched else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        Some((_, news)) = news.recv() => Seen::Event(news),
        Ok(()) = view.changed() => Seen::View(view.borrow_and_update().clone()),
        else => std::future::pending().await,
    }
}

/// The end of a process at an arbitrary point: a number of polls after a certain time.
pub(crate) struct Crash {
    at: Option<Pin<Box<Sleep>>>,
    is_due: bool,
    left: u64,
    polls: u64,
}

impl Crash {
    /// Creates a crash at `after`, if any.
    pub(crate) fn new(after: Option<Duration>, left: u64) -> Self {
        Self {
            at: after.map(|after| Box::pin(SleepGate::new().sleep(after))),
            is_due: false,
            left,
            polls: 0,
        }
    }
}

impl Future for Crash {
    /// Whether the process was polled too often, so that it spins.
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<bool> {
        self.polls += 1;
        if self.polls > POLLS {
            return Poll::Ready(true);
        }
        if !self.is_due {
            let at = self.at.as_mut();
            self.is_due = at.is_some_and(|at| at.as_mut().poll(cx).is_ready());
        }
        if !self.is_due {
            return Poll::Pending;
        }
        if self.left == 0 {
            return Poll::Ready(false);
        }
        self.left -= 1;
        Poll::Pending
    }
}
