//! The time of day, for sleeps that are correct after a suspend or a jump of the clock: its source, and the next time to check it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The longest time between two checks of the wall clock. Timers stop while the machine is suspended and don't notice a change of
/// the clock, so this interval limits how late a sleep can end.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns how long to sleep before the next check of the wall clock; `None` if the time is up.
pub(crate) fn next_check(now: SystemTime, deadline: SystemTime) -> Option<Duration> {
    let left = deadline.duration_since(now).ok()?;
    (!left.is_zero()).then_some(left.min(CHECK_INTERVAL))
}

/// The source of the time of day; by default the system.
#[derive(Clone, Default)]
pub(crate) struct WallClock(Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>);

impl WallClock {
    pub(crate) fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(now)))
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.0.as_ref().map_or_else(SystemTime::now, |now| now())
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Given" } else { "System" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    proptest! {
        /// A sleep ends at the first check at or after the deadline, never before it, and checks the clock at least once a second.
        #[test]
        fn nap_ends_at_the_deadline_or_the_next_check(now in 0..100_000_u64, deadline in 0..100_000_u64) {
            match next_check(at(now), at(deadline)) {
                None => prop_assert!(now >= deadline),
                Some(nap) => {
                    prop_assert!(!nap.is_zero() && nap <= CHECK_INTERVAL);
                    prop_assert!(nap == CHECK_INTERVAL || at(now) + nap == at(deadline));
                }
            }
        }
    }
}
