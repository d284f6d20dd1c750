use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, futures::Notified};

/// Wakes everybody who is present, and counts them exactly.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    present: Mutex<Present>,
    ring: Notify,
}

#[derive(Debug, Default)]
struct Present {
    /// How many kicks there were.
    kicks: u64,
    /// How many sleepers have entered since the last one and have not left.
    sleepers: usize,
}

impl Bell {
    pub(crate) fn enter(&self) -> Sleeper<'_> {
        let mut present = self.present();
        present.sleepers += 1;
        Sleeper {
            bell: self,
            kicks: present.kicks,
        }
    }

    pub(crate) fn kick(&self) -> usize {
        let mut present = self.present();
        present.kicks += 1;
        let woken = std::mem::take(&mut present.sleepers);
        drop(present); // wakers run in `notify_waiters`
        self.ring.notify_waiters();
        woken
    }

    /// Takes a sleeper off the count, unless a kick has done so. Says whether it was one.
    fn leave(&self, kicks: u64) -> bool {
        let mut present = self.present();
        let kicked = present.kicks != kicks;
        if !kicked {
            present.sleepers -= 1;
        }
        kicked
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        // Nothing under this lock can panic half-way, so a poisoned value is still a true one.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One sleep in progress; dropping it takes it off the count.
#[derive(Debug)]
pub(crate) struct Sleeper<'a> {
    bell: &'a Bell,
    kicks: u64,
}

impl<'a> Sleeper<'a> {
    pub(crate) fn was_kicked(&self) -> bool {
        self.bell.present().kicks != self.kicks
    }

    /// Starts to listen. Every ring after this call is heard, polled or not; it may also be the ring of a kick from before this sleep.
    pub(crate) fn listen(&self) -> Notified<'a> {
        self.bell.ring.notified()
    }

    /// Leaves, and says whether a kick came before: in one step, so that no kick counts a sleeper that elapses.
    pub(crate) fn leave(self) -> bool {
        let kicked = self.bell.leave(self.kicks);
        std::mem::forget(self);
        kicked
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.bell.leave(self.kicks);
    }
}
