//! Time as an argument: the machine has no clock and compares the times of its inputs.

use std::ops::Add;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since the Unix epoch, by the caller's clock.
///
/// The machine only compares and adds times. A clock that goes backwards delays deadlines and has no other effect. A [`SystemTime`] can be converted
/// to a timestamp and back.
///
/// # Examples
///
/// ```
/// use loop_state::Timestamp;
/// use std::time::{Duration, SystemTime};
///
/// let now: Timestamp = SystemTime::now().into();
/// let later = now + Duration::from_secs(2);
/// assert_eq!(later.as_millis(), now.as_millis() + 2000);
/// assert!(SystemTime::from(later) > SystemTime::now());
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(u64);

/// The last millisecond of the year 9999, which every platform can represent.
const YEAR_9999: Duration = Duration::from_millis(253_402_300_799_999);

impl Timestamp {
    /// Creates the time of so many milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time between `earlier` and `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

impl From<SystemTime> for Timestamp {
    /// Converts a time, rounded down to a millisecond. A time before the Unix epoch becomes 0.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        Self::default() + since.unwrap_or_default()
    }
}

impl From<Timestamp> for SystemTime {
    /// Converts a time. A time that the platform can't represent becomes the end of the year 9999; Linux and macOS can represent each one.
    fn from(time: Timestamp) -> Self {
        let since = Duration::from_millis(time.0);
        let known = Self::UNIX_EPOCH.checked_add(since);
        known.unwrap_or_else(|| Self::UNIX_EPOCH + YEAR_9999)
    }
}

/// Formats a limit in its largest whole unit: `2h`, `90m`, `45s`.
pub(crate) fn limit_text(limit: Duration) -> String {
    match limit.as_secs() {
        seconds if limit.subsec_nanos() > 0 || seconds == 0 => format!("{limit:?}"),
        seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timestamp_is_the_same_after_a_conversion_to_system_time_and_back(millis in 0..=YEAR_9999.as_millis() as u64, micros in 0..1000_u64) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis) + Duration::from_micros(micros);
            let stamp = Timestamp::from(time);
            prop_assert_eq!(stamp, Timestamp::from_millis(millis));
            prop_assert_eq!(Timestamp::from(SystemTime::from(stamp)).as_millis(), millis);
        }
    }

    #[test]
    fn times_outside_of_the_range_become_the_nearest_ones() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Timestamp::from(before), Timestamp(0));
        let last = SystemTime::from(Timestamp(u64::MAX));
        assert!(last >= SystemTime::UNIX_EPOCH + YEAR_9999);
        assert!(Timestamp::from(last) >= Timestamp(YEAR_9999.as_millis() as u64));
    }

    #[test]
    fn limit_is_shown_in_its_largest_whole_unit() {
        let shown = [0, 500, 1000, 90_000, 300_000, 5_400_000, 86_400_000]
            .map(|millis| limit_text(Duration::from_millis(millis)));
        assert_eq!(shown, ["0ns", "500ms", "1s", "90s", "5m", "90m", "24h"]);
    }
}
