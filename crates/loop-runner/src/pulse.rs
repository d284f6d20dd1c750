//! When the loop of a run turned last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// When the loop turned last, for those who ask through the control socket.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    since: Instant,
    turned: Arc<AtomicU64>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            turned: Arc::default(),
        }
    }
}

impl Pulse {
    pub(crate) fn turn(&self) {
        self.turned.store(self.now(), Ordering::Relaxed);
    }

    /// Returns how long ago that was.
    pub(crate) fn age(&self) -> Duration {
        let turned = self.turned.load(Ordering::Relaxed);
        Duration::from_millis(self.now().saturating_sub(turned))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
