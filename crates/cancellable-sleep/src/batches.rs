//! Waking a crowd: all at once or in batches, with foreign wakers that may panic, from a token that anybody may cancel.

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

use crate::seat::{Asleep, Place, Roster};

thread_local! {
    /// Set while this thread cancels a token of which the sleepers are to be woken later: those of the gate and of the gates below
    /// it, which only the token knows, gather here.
    static ASIDE: RefCell<Option<Vec<Asleep>>> = const { RefCell::new(None) };
}

/// The token of a gate was cancelled, by whomever.
impl task::Wake for Roster {
    fn wake(self: Arc<Self>) {
        let mut asleep = Some(self.ring());
        // A thread that is about to end has no such list any more, and doesn't need one.
        let _ = ASIDE.try_with(|aside| {
            if let Some(aside) = &mut *aside.borrow_mut() {
                aside.extend(asleep.take());
            }
        });
        asleep.into_iter().for_each(wake_all);
    }
}

/// Wakes everybody, and contains a waker that panics: the others have a right to be woken, and the panic hook has reported it.
pub(crate) fn wake_all(asleep: Asleep) {
    asleep.into_iter().for_each(wake);
}

fn wake((_, waker): (Place, Waker)) {
    let _contained = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Cancels the token of a gate. It may have waiters that are no sleepers, whose wakers are not ours to contain: where one panics
/// before the roster heard of it, the gate's own sleepers are woken all the same.
pub(crate) fn cancel(token: &CancellationToken, roster: &Roster) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| token.cancel())) {
        wake_all(roster.ring());
        resume_unwind(panic);
    }
}

/// Cancels the token of a gate; the sleepers are woken by the future, or by its drop.
pub(crate) fn cancel_in_batches(
    token: &CancellationToken,
    roster: &Roster,
    batch: NonZeroUsize,
) -> Batches {
    let outer = ASIDE.replace(Some(Vec::new()));
    let cancelled = catch_unwind(AssertUnwindSafe(|| cancel(token, roster)));
    let batches = Batches {
        batch,
        asleep: ASIDE
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

pub(crate) struct Batches {
    batch: NonZeroUsize,
    asleep: Flatten<vec::IntoIter<Asleep>>,
}

impl Future for Batches {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let batch = self.batch.get();
        if self.asleep.by_ref().take(batch).map(wake).count() < batch {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.asleep.by_ref().for_each(wake);
    }
}
