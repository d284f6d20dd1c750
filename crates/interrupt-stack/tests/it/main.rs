//! The ladder as a machine, with its threads, and in real processes under real signals.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, where a panic is a failed test"
)]

mod detached;
mod explore;
mod ladder;
mod model;
mod probe;
mod process;

use std::time::{Duration, Instant};

/// Ten times and more what anything here takes.
const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds.
#[track_caller]
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
