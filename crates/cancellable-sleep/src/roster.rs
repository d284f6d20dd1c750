//! Who sleeps now: the one list under the one lock, from which a wake is counted and told exactly once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};

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
pub(crate) struct Place(pub(crate) usize);

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
