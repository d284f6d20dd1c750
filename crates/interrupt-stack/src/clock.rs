//! Where a ladder's time comes from: the system's clock, or one that a test moves.

use std::time::Instant;

/// Tells the time to the ladder.
///
/// `now` is called from several threads, never under a lock of this crate; it must not block.
pub trait Clock: Send + Sync {
    /// Returns the present time. A time that runs backwards does no harm beyond longer waits.
    fn now(&self) -> Instant;
}

/// The operating system's monotonic clock, the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that stands still until it is told to move.
///
/// What became due by an advance happens at the next event or at [`Interrupts::tick`](crate::Interrupts::tick).
#[cfg(feature = "test-util")]
#[derive(Debug)]
pub struct ManualClock {
    now: std::sync::Mutex<Instant>,
}

#[cfg(feature = "test-util")]
impl ManualClock {
    /// Makes a clock that stands at the present time.
    #[expect(
        clippy::new_without_default,
        reason = "a default that reads the time would surprise"
    )]
    pub fn new() -> Self {
        Self {
            now: std::sync::Mutex::new(Instant::now()),
        }
    }

    /// Moves the clock forward.
    ///
    /// # Panics
    ///
    /// Panics when the time would be further away than the platform can say. The clock stands where it stood then.
    pub fn advance(&self, by: std::time::Duration) {
        *self.lock() += by;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Instant> {
        // An advance that panics has changed nothing.
        self.now
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(feature = "test-util")]
impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.lock()
    }
}
