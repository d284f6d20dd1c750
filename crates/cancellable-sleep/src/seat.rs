//! Who sleeps at a gate: each sleeper has a seat, whatever it sleeps on, and the roster lists the wakers of all who sleep now. Tasks and threads enter
//! and leave by the same rules, and a wake is counted and told exactly once.

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
/// There are exactly these three, so a `match` on it needs no catch-all arm. `{:?}` is good enough for a log; its words are no
/// promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a sleep that ended by shutdown must not be taken for one that elapsed"]
pub enum Wake {
    /// The time was up.
    Elapsed,
    /// [`SleepGate::wake_all`](crate::SleepGate::wake_all) cut the sleep short; the gate is still open.
    Kicked,
    /// The gate was shut down, before or during the sleep. Every later sleep ends like this at once.
    Shutdown,
}

/// What a gate and its sleepers have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) token: CancellationToken,
    pub(crate) roster: Arc<Roster>,
    pub(crate) wall: WallClock,
    /// Listens to the token for all sleepers at once, with the roster as its waker; dropped, it listens no more.
    pub(crate) _ear: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// One sleep at a gate, whatever it sleeps on.
///
/// It is known by its address, from [`enter`](Self::enter), which needs it pinned, until an answer or [`leave`](Self::leave).
///
/// Whoever shuts the gate says so before it rings. So the gate is asked after a waker was left, and after one was found gone.
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

    /// Begins to sleep with this waker, unless the gate is shut.
    pub(crate) fn enter(self: Pin<&mut Self>, waker: &Waker) -> Option<Wake> {
        self.shared.roster.enter(self.place(), waker.clone());
        self.leave_if_shut()
    }

    /// Sleeps on with this waker, unless a ring has ended the sleep.
    pub(crate) fn stay(self: Pin<&mut Self>, waker: &Waker) -> Option<Wake> {
        match self.shared.roster.stay(self.place(), waker) {
            true => self.leave_if_shut(),
            false => Some(self.unless_shut(Wake::Kicked)),
        }
    }

    /// Ends a sleep whose time is up, unless a ring has counted it already.
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

    /// Takes a sleeper off the roster that is dropped; says whether it was there.
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

/// The wakers of those who sleep now.
///
/// A ring takes them all, so their number is the number of sleepers that it ended, and a sleeper learns of it by finding its waker
/// gone. Wakers are foreign code: they are cloned, dropped and called outside the lock.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<Asleep>);

/// In the order of memory: a crowd is woken in the order in which its tasks lie there, which is twice as fast as any other.
pub(crate) type Asleep = BTreeMap<Place, Waker>;

/// Which sleeper it is: the address of its pinned seat, which costs a sleep no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(usize);

impl Roster {
    pub(crate) fn enter(&self, place: Place, waker: Waker) {
        let before = self.lock().insert(place, waker);
        debug_assert!(before.is_none(), "two sleepers at one address");
    }

    /// Sees to it that `waker` is the one that a ring calls. Says `false` where a ring has called already.
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
        true // and the drop of the other comes after the lock's
    }

    /// Gives the place up. Says `false` where a ring called: in one step, so that no ring counts a sleeper that elapses.
    pub(crate) fn leave(&self, place: Place) -> bool {
        let waker = self.lock().remove(&place); // whose drop comes after the lock's
        waker.is_some()
    }

    /// Takes the wakers of all who sleep, for the caller to call.
    pub(crate) fn ring(&self) -> Asleep {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Asleep> {
        // Nothing under this lock can panic half-way, so a poisoned value is still a true one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
