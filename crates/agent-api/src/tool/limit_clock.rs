//! The clock of a time limit, which can be paused: while a person has frozen the agent, the time of a call does not count.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The clock of a time limit, which can be paused.
#[derive(Debug)]
pub(super) struct LimitClock {
    left: Duration,
    /// The time since which the clock runs; `None` while it is paused.
    since: Option<Instant>,
}

impl LimitClock {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            left: limit,
            since: Some(Instant::now()),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.since.is_none()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + self.left)
    }

    pub(super) fn pause(&mut self, is_paused: bool) {
        match self.since {
            Some(since) if is_paused => {
                self.left = self.left.saturating_sub(since.elapsed());
                self.since = None;
            }
            None if !is_paused => self.since = Some(Instant::now()),
            _ => {}
        }
    }
}

/// Waits for a result, until the clock ends. While a person has frozen the agent, the time does not count. `None` means that the time is over.
pub(super) async fn within_limit<T>(
    clock: &mut LimitClock,
    mut frozen: watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut is_watched = true;
    loop {
        clock.pause(*frozen.borrow_and_update());
        let event = async {
            tokio::select! {
                biased;
                done = &mut work => Some(done),
                changed = frozen.changed(), if is_watched => {
                    is_watched = changed.is_ok();
                    None
                }
            }
        };
        let event = match clock.deadline() {
            None => event.await,
            Some(deadline) => tokio::time::timeout_at(deadline, event).await.ok()?,
        };
        if event.is_some() {
            return event;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a12_time_does_not_count_while_the_clock_is_paused() {
        let mut clock = LimitClock::new(Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(4)).await;
        clock.pause(true);
        clock.pause(true);
        assert_eq!(clock.deadline(), None);
        tokio::time::advance(Duration::from_secs(100)).await;
        clock.pause(false);
        clock.pause(false);
        assert_eq!(
            clock.deadline(),
            Some(Instant::now() + Duration::from_secs(6))
        );
    }
}
