//! Time as an argument: the decisions have no clock, and compare the moments that their caller passes.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in milliseconds of a clock of one machine that never goes back and counts while the machine sleeps (`CLOCK_BOOTTIME`).
///
/// Moments of different machines can't be compared.
///
/// # Examples
///
/// ```
/// use rlm_fleet::Moment;
/// use std::time::Duration;
///
/// let now = Moment::from_millis(5_000);
/// let later = now + Duration::from_secs(2);
/// assert_eq!(later.since(now), Duration::from_secs(2));
/// assert_eq!(now.since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Creates the moment at which the clock shows so many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds that the clock shows at this moment.
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

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}
