//! Ages and sizes of saves.

use std::time::{Duration, SystemTime};

use loop_state::Timestamp;

/// How long ago something was, in whole seconds; what lies in the future of this clock is new.
pub(super) fn age(at: Timestamp, now: jiff::Timestamp) -> u64 {
    let now = Timestamp(u64::try_from(now.as_millisecond()).unwrap_or(0));
    now.since(at).as_secs()
}

pub(super) fn stamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn ago(seconds: u64) -> String {
    format!(
        "{} ago",
        rlm_text::duration::show(Duration::from_secs(seconds))
    )
}

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes.div_ceil(1_048_576)),
    }
}
