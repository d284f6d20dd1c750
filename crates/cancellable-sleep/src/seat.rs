//! The sleepers at a gate: each task or thread that sleeps has a seat, and the roster contains the wakers of all sleepers. Tasks and threads enter
//! and leave by the same rules, and each wake-up is counted and reported exactly once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    marker::PhantomPinned,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::wall::WallClock;

/// The reason why a sleep ended.
///
/// There are exactly these three reasons, so a `match` needs no catch-all arm. `{:?}` is good enough for a log, but its text may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the reason shows whether the time was up or the gate was shut down"]
pub enum Wake {
    /// The time was up.
    Elapsed,
    /// [`SleepGate::wake_all`](crate::SleepGate::wake_all) ended the sleep early; the gate is still open.
    Kicked,
    /// The gate was shut down, before or during the sleep. Every later sleep returns this at once.
    Shutdown,
}

/// The data that a gate and its sleepers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) token: CancellationToken,
    pub(crate) roster: Arc<Roster>,
    pub(crate) wall: WallClock,
    /// Listens to the token for all sleepers at once, with the roster as its waker; dropped, it listens no more.
    pub(crate) _ear: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// One sleeper at a gate: a task or a thread.
///
/// The address of the pinned seat identifies the sleeper, from [`enter`](Self::enter) until the sleep ends or [`leave`](Self::leave).
///
/// A shutdown cancels the token before it takes the wakers. So a sleeper checks the token after it has stored its waker, and after it
/// has found its waker gone.
#[derive(Debug)]
pub(crate) struct Seat {
    shared: Arc<Shared>,
    _pinned: PhantomPinned,
}

impl Seat {
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
    pub(crate) fn enter(self: Pin<&mut Self>, waker: &Waker) -> Option<Wake> {
        self.shared.roster.enter(self.place(), waker.clone());
        self.leave_if_shut()
    }

    /// Continues the sleep with this waker. Returns the reason if `ring` has ended the sleep.
    pub(crate) fn stay(self: Pin<&mut Self>, waker: &Waker) -> Option<Wake> {
        match self.shared.roster.stay(self.place(), waker) {
            true => self.leave_if_shut(),
            false => Some(self.unless_shut(Wake::Kicked)),
        }
    }

    /// Ends a sleep whose time is up. Returns [`Wake::Elapsed`], unless `ring` has counted the sleep already.
    pub(crate) fn elapse(self: Pin<&mut Self>) -> Wake {
        let present = self.leave();
        self.unless_shut(if present { Wake::Elapsed } else { Wake::Kicked })
    }

    fn leave_if_shut(&self) -> Option<Wake> {
        self.shared.token.is_cancelled().then(|| {
            self.leave();
            Wake::Shutdown
        })
    }

    /// Removes the sleeper from the roster. Returns whether it was there.
    pub(crate) fn leave(&self) -> bool {
        self.shared.roster.leave(self.place())
    }

    fn unless_shut(&self, why: Wake) -> Wake {
        if self.shared.token.is_cancelled() {
            Wake::Shutdown
        } else {
            why
        }
    }

    fn place(&self) -> Place {
        Place(std::ptr::from_ref(self).addr())
    }
}

/// The wakers of all present sleepers.
///
/// `ring` takes all wakers, so their number is the number of sleeps that it ends. A sleeper notices this because its waker is gone.
/// Wakers are foreign code: they are cloned, dropped and called outside of the lock.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<Asleep>);

/// The wakers in the order of their memory addresses. Waking many tasks in this order is twice as fast as in any other.
pub(crate) type Asleep = BTreeMap<Place, Waker>;

/// The id of a sleeper: the address of its pinned seat, which needs no extra memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(usize);

impl Roster {
    pub(crate) fn enter(&self, place: Place, waker: Waker) {
        let before = self.lock().insert(place, waker);
        debug_assert!(before.is_none(), "two sleepers at one address");
    }

    /// Stores `waker` for the next `ring`. Returns `false` if `ring` has taken the sleeper's waker already.
    pub(crate) fn stay(&self, place: Place, waker: &Waker) -> bool {
        match self.lock().get(&place) {
            None => return false,
            Some(known) if known.will_wake(waker) => return true,
            Some(_) => {}
        }
        let mut other = waker.clone();
        match self.lock().entry(place) {
            Entry::Vacant(_) => return false,
            Entry::Occupied(mut known) => std::mem::swap(known.get_mut(), &mut other),
        }
        true // `other` is dropped after the lock
    }

    /// Removes a sleeper. Returns `false` if `ring` has taken its waker. Both happen in one step, so `ring` never counts a sleep that
    /// elapses.
    pub(crate) fn leave(&self, place: Place) -> bool {
        let waker = self.lock().remove(&place); // dropped after the lock
        waker.is_some()
    }

    /// Takes the wakers of all present sleepers; the caller must call them.
    pub(crate) fn ring(&self) -> Asleep {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Asleep> {
        // Nothing under this lock can panic half-way, so a poisoned value is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
