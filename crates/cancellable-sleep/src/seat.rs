//! One sleeper's place at the gate, apart from its timer, so that tasks and threads enter and leave by the same rules.

use std::{marker::PhantomPinned, pin::Pin, sync::Arc, task::Waker};

use crate::{Wake, gate::Shared, roster::Place};

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
