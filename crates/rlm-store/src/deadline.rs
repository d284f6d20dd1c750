//! The wall clock as the time of a run, and telling what runs by when it has to have ended. Whoever loses patience tells it again.

use std::time::{Duration, SystemTime};

use loop_state::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Returns the time of a run at this time of day.
#[must_use]
pub fn timestamp(time: SystemTime) -> Timestamp {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Has something end.
#[derive(Clone, Debug, Default)]
pub struct Hurry(watch::Sender<Option<Instant>>);

impl Hurry {
    /// Returns what is told, now or later.
    pub fn hurried(&self) -> Hurried {
        Hurried(self.0.subscribe())
    }

    /// Has it end within `budget`, from now. What was told before stands if that is sooner.
    pub fn within(&self, budget: Duration) {
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

/// Is to end when it is told.
#[derive(Clone, Debug)]
pub struct Hurried(watch::Receiver<Option<Instant>>);

impl Hurried {
    /// Waits until it is told by when; `None` when nobody is left who could. Cancel safe.
    pub async fn told(&mut self) -> Option<Instant> {
        let told = self.0.wait_for(Option::is_some).await;
        told.ok().and_then(|by| *by)
    }

    /// Waits until it is told to end sooner than by that time, for ever where nobody does. Cancel safe.
    pub async fn sooner(&mut self, than: Instant) -> Instant {
        let sooner = self.0.wait_for(|by| by.is_some_and(|by| by < than)).await;
        match sooner.ok().and_then(|by| *by) {
            Some(by) => by,
            None => std::future::pending().await,
        }
    }
}

/// Waits until then: for bounded waits of a stop, which a shutdown must not cut short. Waits for work hang on a gate. Cancel safe.
pub async fn until(by: Instant) {
    // There is nothing to wait for but the time.
    let _elapsed = timeout_at(by, std::future::pending::<()>()).await;
}

/// Returns how much is left until then.
pub fn left(by: Instant) -> Duration {
    by.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_dropped_hurries_nobody() {
        let hurry = Hurry::default();
        let mut hurried = hurry.hurried();
        drop(hurry);
        assert_eq!(hurried.told().await, None);
        let never = tokio::time::timeout(Duration::ZERO, hurried.sooner(Instant::now()));
        assert!(never.await.is_err());
    }
}
