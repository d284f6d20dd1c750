//! The clock of the decisions. It is separate so that only one place reads it.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::Moment;

/// The clock that counts while the machine sleeps.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Returns the present moment, on the clock that counts while the machine sleeps.
///
/// # Platform
/// Outside Linux the clock stops while the machine sleeps, so a lease can end unnoticed. Workers need Linux.
#[must_use]
pub fn now() -> Moment {
    let now = Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default();
    Moment::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the milliseconds since 1970 by the clock of this machine, for people.
pub(super) fn wall_clock_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
