//! The wall clock as the time of a run.

use std::time::SystemTime;

use loop_state::Timestamp;

/// Returns the time of a run at this time of day.
#[must_use]
pub fn timestamp(time: SystemTime) -> Timestamp {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
