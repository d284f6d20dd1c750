//! Time as an argument: the machine has no clock and compares the times of its inputs.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since the Unix epoch, by the caller's clock.
///
/// The machine only compares and adds times. A clock that goes backwards delays deadlines and has no other effect.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
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

    #[test]
    fn limit_is_shown_in_its_largest_whole_unit() {
        let shown = [0, 500, 1000, 90_000, 300_000, 5_400_000, 86_400_000]
            .map(|millis| limit_text(Duration::from_millis(millis)));
        assert_eq!(shown, ["0ns", "500ms", "1s", "90s", "5m", "90m", "24h"]);
    }
}
