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

/// What a sleeper that has entered finds at its place.
pub(crate) enum Found {
    /// The very waker that it brings.
    Same,
    /// Another waker, which it has replaced.
    Other,
    /// Nothing: a ring has taken its waker.
    Rung,
}

impl Roster {
    pub(crate) fn enter(&self, place: Place, waker: Waker) {
        let before = self.lock().insert(place, waker);
        debug_assert!(before.is_none(), "two sleepers at one address");
    }

    /// Sees to it that `waker` is the one that a ring calls.
    pub(crate) fn stay(&self, place: Place, waker: &Waker) -> Found {
        match self.lock().get(&place) {
            None => return Found::Rung,
            Some(known) if known.will_wake(waker) => return Found::Same,
            Some(_) => {}
        }
        let mut other = waker.clone();
        match self.lock().entry(place) {
            Entry::Vacant(_) => return Found::Rung,
            Entry::Occupied(mut known) => std::mem::swap(known.get_mut(), &mut other),
        }
        Found::Other // whose drop comes after the lock's
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
