//! The clock of a ladder: the system clock, or a clock that a test moves.

use std::time::Instant;

/// The source of a ladder's time.
///
/// Several threads call `now`, none of them while it holds a lock of this crate. `now` must not block.
pub trait Clock: Send + Sync {
    /// Returns the current time. A clock that runs backwards only makes waits longer.
    fn now(&self) -> Instant;
}

/// The operating system's monotonic clock, the default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that changes only when a test advances it.
///
/// Deadlines that become due by an advance take effect at the next event or at [`Interrupts::tick`](crate::Interrupts::tick).
#[cfg(feature = "test-util")]
#[derive(Debug)]
pub struct ManualClock {
    now: std::sync::Mutex<Instant>,
}

#[cfg(feature = "test-util")]
impl ManualClock {
    /// Creates a clock that shows the current time.
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
    /// Panics if the platform can't represent the new time. The clock is then unchanged.
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
