//! Waiting with a deadline: the only way in which this package waits.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Polls until `poll` returns a value, or `deadline` (from now) has passed: then returns `None`.
pub fn poll_until<T>(deadline: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    let mut pause = FIRST_PAUSE;
    loop {
        let last = Instant::now() >= end;
        if let Some(value) = poll() {
            return Some(value);
        }
        if last {
            return None;
        }
        thread::park_timeout(pause.min(end.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Polls until `poll` returns a value.
///
/// The error names the awaited value by `what`, which is formatted only after the deadline, so it can inspect the state of the system.
///
/// # Panics
///
/// If `deadline` has passed without a value.
#[track_caller]
pub fn wait_for<T>(what: impl Display, deadline: Duration, poll: impl FnMut() -> Option<T>) -> T {
    match poll_until(deadline, poll) {
        Some(value) => value,
        None => panic!("timed out after {deadline:?} waiting for {what}"),
    }
}
