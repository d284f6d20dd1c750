//! Work at a gate: a future that the gate ends early, as it ends a sleep. It is separate from `sleep`, because it has no time.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::task::coop;

use crate::{
    Wake,
    sleeper::{Shared, Sleeper},
};

pin_project! {
    /// The future of [`SleepGate::run`](crate::SleepGate::run).
    #[must_use = "the work does nothing unless it is awaited"]
    pub(crate) struct Run<F> {
        #[pin]
        sleeper: Sleeper,
        is_registered: bool,
        #[pin]
        future: F,
    }

    impl<F> PinnedDrop for Run<F> {
        fn drop(this: Pin<&mut Self>) {
            if this.is_registered {
                this.sleeper.unregister();
            }
        }
    }
}

impl<F> Run<F> {
    pub(crate) fn new(shared: Arc<Shared>, future: F) -> Self {
        Self {
            sleeper: Sleeper::new(shared),
            is_registered: false,
            future,
        }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = Result<F::Output, Wake>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The gate comes first, so that a gate that is shut down never polls the future.
        let over = if *this.is_registered {
            this.sleeper.keep_waiting(cx.waker())
        } else {
            *this.is_registered = true;
            this.sleeper.register(cx.waker())
        };
        match over {
            // As in `Sleep`, a loop over runs that end at once must let other tasks run.
            Some(why) => {
                ready!(coop::poll_proceed(cx)).made_progress();
                *this.is_registered = false;
                Poll::Ready(Err(why))
            }
            // The drop of this value unregisters the sleeper.
            None => this.future.poll(cx).map(Ok),
        }
    }
}
