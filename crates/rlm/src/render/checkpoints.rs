//! What is saved of runs, for `rlm checkpoints`. The text and the JSON say the same.

mod export;
mod fork;
mod import;
mod list;
mod show;
mod verify;

use std::time::{Duration, SystemTime};

use loop_state::Timestamp;

pub(crate) use export::Export;
pub(crate) use fork::Fork;
pub(crate) use import::Import;
pub(crate) use list::{List, cut_words};
pub(crate) use show::Shown;
pub(crate) use verify::Verified;

/// How long ago something was, in whole seconds; what lies in the future of this clock is new.
fn age(at: Timestamp, now: jiff::Timestamp) -> u64 {
    let now = Timestamp(u64::try_from(now.as_millisecond()).unwrap_or(0));
    now.since(at).as_secs()
}

fn stamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}

fn ago(seconds: u64) -> String {
    format!(
        "{} ago",
        rlm_text::duration::show(Duration::from_secs(seconds))
    )
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes.div_ceil(1_048_576)),
    }
}

#[cfg(test)]
mod tests;
