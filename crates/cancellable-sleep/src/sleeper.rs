//! The sleepers at a gate: each task or thread that sleeps is a [`Sleeper`], and [`Sleepers`] has the wakers of all of them. Tasks and threads
//! register and unregister by the same rules, and each wake-up is counted and reported exactly once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    marker::PhantomPinned,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::wall_clock::WallClock;

/// The reason why a sleep ended, or why a gate ended the work of [`SleepGate::run`](crate::SleepGate::run).
///
/// There are exactly these three reasons, so a `match` needs no catch-all arm. `{:?}` is good enough for a log, but its text may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the reason shows whether the time was up or the gate was shut down"]
pub enum Wake {
    /// The time was up.
    Elapsed,
    /// [`SleepGate::wake_all`](crate::SleepGate::wake_all) woke the sleep before its time; the gate is still open.
    Woken,
    /// The gate was shut down, before or during the sleep. Every later sleep returns this at once.
    Shutdown,
}

/// The data that a gate and its sleepers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) token: CancellationToken,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) wall: WallClock,
    /// Waits for the token on behalf of all sleepers, with `sleepers` as its waker. Dropping it ends this wait.
    pub(crate) _cancellation: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// One sleeper at a gate: a task or a thread.
///
/// The address of the pinned value identifies the sleeper, from [`register`](Self::register) until the sleep ends or
/// [`unregister`](Self::unregister).
///
/// A shutdown cancels the token before it takes the wakers. So a sleeper checks the token after it has stored its waker, and after it
/// has found its waker gone.
#[derive(Debug)]
pub(crate) struct Sleeper {
    shared: Arc<Shared>,
    _pinned: PhantomPinned,
}

impl Sleeper {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            _pinned: PhantomPinned,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Begins a sleep with this waker. Returns the reason if the gate is shut down.
    pub(crate) fn register(self: Pin<&mut Self>, waker: &Waker) -> Option<Wake> {
        self.shared.sleepers.register(self.id(), waker.clone());
        self.unregister_if_shut()
    }

    /// Continues the sleep with this waker. Returns the reason if [`Sleepers::take_wakers`] has ended the sleep.
    pub(crate) fn keep_waiting(self: Pin<&mut Self>, waker: &Waker) -> Option<Wake> {
        match self.shared.sleepers.keep_waiting(self.id(), waker) {
            true => self.unregister_if_shut(),
            false => Some(self.unless_shut(Wake::Woken)),
        }
    }

    /// Ends a sleep whose time is up. Returns [`Wake::Elapsed`], unless [`Sleepers::take_wakers`] has counted the sleep already.
    pub(crate) fn elapse(self: Pin<&mut Self>) -> Wake {
        let present = self.unregister();
        self.unless_shut(if present { Wake::Elapsed } else { Wake::Woken })
    }

    fn unregister_if_shut(&self) -> Option<Wake> {
        self.shared.token.is_cancelled().then(|| {
            self.unregister();
            Wake::Shutdown
        })
    }

    /// Removes the sleeper from the gate's sleepers. Returns whether it was there.
    pub(crate) fn unregister(&self) -> bool {
        self.shared.sleepers.unregister(self.id())
    }

    fn unless_shut(&self, why: Wake) -> Wake {
        if self.shared.token.is_cancelled() {
            Wake::Shutdown
        } else {
            why
        }
    }

    fn id(&self) -> SleeperId {
        SleeperId(std::ptr::from_ref(self).addr())
    }
}

/// The wakers of all present sleepers.
///
/// [`take_wakers`](Self::take_wakers) takes all wakers, so their number is the number of sleeps that it ends. A sleeper notices this because its
/// waker is gone. Wakers are foreign code: they are cloned, dropped and called outside of the lock.
#[derive(Debug, Default)]
pub(crate) struct Sleepers(Mutex<Wakers>);

/// The wakers in the order of the memory addresses of their sleepers. Waking many tasks in this order is twice as fast as in any other.
pub(crate) type Wakers = BTreeMap<SleeperId, Waker>;

/// The id of a sleeper: the address of its pinned [`Sleeper`], which needs no extra memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SleeperId(usize);

impl Sleepers {
    pub(crate) fn register(&self, id: SleeperId, waker: Waker) {
        let before = self.lock().insert(id, waker);
        debug_assert!(before.is_none(), "two sleepers at one address");
    }

    /// Stores `waker` for the next [`take_wakers`](Self::take_wakers). Returns `false` if `take_wakers` has already taken the
    /// waker of this sleeper.
    pub(crate) fn keep_waiting(&self, id: SleeperId, waker: &Waker) -> bool {
        match self.lock().get(&id) {
            None => return false,
            Some(known) if known.will_wake(waker) => return true,
            Some(_) => {}
        }
        let mut other = waker.clone();
        match self.lock().entry(id) {
            Entry::Vacant(_) => return false,
            Entry::Occupied(mut known) => std::mem::swap(known.get_mut(), &mut other),
        }
        true // `other` is dropped after the lock
    }

    /// Removes a sleeper. Returns `false` if [`take_wakers`](Self::take_wakers) has taken its waker. The check and the removal are one step,
    /// so an elapsed sleep is never counted as woken.
    pub(crate) fn unregister(&self, id: SleeperId) -> bool {
        let waker = self.lock().remove(&id); // dropped after the lock
        waker.is_some()
    }

    /// Takes the wakers of all present sleepers; the caller must call them.
    pub(crate) fn take_wakers(&self) -> Wakers {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Wakers> {
        // Nothing under this lock can panic half-way, so a poisoned value is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
