//! Wakes many sleepers at once or in batches. Wakers are foreign code and may panic, and any holder of the token can cancel it.

use std::{
    cell::RefCell,
    iter::Flatten,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::Arc,
    task::{self, Context, Poll, Waker},
    vec,
};

use tokio_util::sync::CancellationToken;

use crate::sleeper::{SleeperId, Sleepers, Wakers};

thread_local! {
    /// `Some` while this thread cancels a token and must not wake the sleepers yet. It collects the wakers of the gate and of its child
    /// gates, because only the token knows the child gates.
    static DEFERRED_WAKERS: RefCell<Option<Vec<Wakers>>> = const { RefCell::new(None) };
}

/// Wakes the sleepers when the token of the gate is cancelled.
impl task::Wake for Sleepers {
    fn wake(self: Arc<Self>) {
        let mut asleep = Some(self.take_wakers());
        // A thread that is ending has no such list any more, and needs none.
        let _ = DEFERRED_WAKERS.try_with(|aside| {
            if let Some(aside) = &mut *aside.borrow_mut() {
                aside.extend(asleep.take());
            }
        });
        asleep.into_iter().for_each(wake_all);
    }
}

/// Wakes all sleepers. Catches the panic of a waker, so that the others are woken too; the panic hook has reported it.
pub(crate) fn wake_all(asleep: Wakers) {
    asleep.into_iter().for_each(wake);
}

fn wake((_, waker): (SleeperId, Waker)) {
    let _contained = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Cancels the token of a gate. The token may have other waiters, whose panics this crate must not hide. If one panics before the gate's
/// sleepers are woken, this function wakes the sleepers and then passes the panic on.
pub(crate) fn cancel(token: &CancellationToken, sleepers: &Sleepers) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| token.cancel())) {
        wake_all(sleepers.take_wakers());
        resume_unwind(panic);
    }
}

/// Cancels the token of a gate. The returned future, or its drop, wakes the sleepers.
pub(crate) fn cancel_in_batches(
    token: &CancellationToken,
    sleepers: &Sleepers,
    batch: NonZeroUsize,
) -> CancelInBatches {
    let outer = DEFERRED_WAKERS.replace(Some(Vec::new()));
    let cancelled = catch_unwind(AssertUnwindSafe(|| cancel(token, sleepers)));
    let batches = CancelInBatches {
        batch,
        wakers: DEFERRED_WAKERS
            .replace(outer)
            .unwrap_or_default()
            .into_iter()
            .flatten(),
    };
    match cancelled {
        Ok(()) => batches,
        Err(panic) => {
            drop(batches);
            resume_unwind(panic)
        }
    }
}

pub(crate) struct CancelInBatches {
    batch: NonZeroUsize,
    wakers: Flatten<vec::IntoIter<Wakers>>,
}

impl Future for CancelInBatches {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let batch = self.batch.get();
        if self.wakers.by_ref().take(batch).map(wake).count() < batch {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for CancelInBatches {
    fn drop(&mut self) {
        self.wakers.by_ref().for_each(wake);
    }
}
