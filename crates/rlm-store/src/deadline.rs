//! The wall clock as the time of a run, and shared deadlines that can only move earlier.

use std::time::{Duration, SystemTime};

use loop_state::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Converts a time of day to the time of a run.
#[must_use]
pub fn timestamp(time: SystemTime) -> Timestamp {
    time.into()
}

/// A shared deadline that can only move earlier.
#[derive(Clone, Debug, Default)]
pub struct Deadline(watch::Sender<Option<Instant>>);

impl Deadline {
    /// Returns a receiver of the deadline; it also gets the current value.
    pub fn subscribe(&self) -> DeadlineReceiver {
        DeadlineReceiver(self.0.subscribe())
    }

    /// Moves the deadline to `budget` from now, unless it is already earlier.
    pub fn tighten_to(&self, budget: Duration) {
        let by = Instant::now() + budget;
        self.0.send_if_modified(|before| {
            let sooner = before.is_none_or(|before| by < before);
            if sooner {
                *before = Some(by);
            }
            sooner
        });
    }
}

/// A receiver of a shared deadline.
#[derive(Clone, Debug)]
pub struct DeadlineReceiver(watch::Receiver<Option<Instant>>);

impl DeadlineReceiver {
    /// Waits until a deadline is set; `None` if all senders are dropped. Cancel safe.
    pub async fn wait_for_deadline(&mut self) -> Option<Instant> {
        let deadline = self.0.wait_for(Option::is_some).await;
        deadline.ok().and_then(|by| *by)
    }

    /// Waits until the deadline is earlier than `than`; forever if all senders are dropped. Cancel safe.
    pub async fn earlier_than(&mut self, than: Instant) -> Instant {
        let sooner = self.0.wait_for(|by| by.is_some_and(|by| by < than)).await;
        match sooner.ok().and_then(|by| *by) {
            Some(by) => by,
            None => std::future::pending().await,
        }
    }
}

/// Waits until `by`. A stop uses this for its bounded waits, because a shutdown must not shorten them; all other waits use a sleep gate. Cancel safe.
pub async fn sleep_until(by: Instant) {
    // Only the time can end this wait.
    let _elapsed = timeout_at(by, std::future::pending::<()>()).await;
}

/// Returns the time that is left until `by`.
pub fn remaining(by: Instant) -> Duration {
    by.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropped_deadline_ends_nothing() {
        let deadline = Deadline::default();
        let mut receiver = deadline.subscribe();
        drop(deadline);
        assert_eq!(receiver.wait_for_deadline().await, None);
        let never = tokio::time::timeout(Duration::ZERO, receiver.earlier_than(Instant::now()));
        assert!(never.await.is_err());
    }
}
