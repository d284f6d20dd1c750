//! Tests of the ladder: as a state machine, with its threads, and in real processes with real signals.

#![expect(
    clippy::unwrap_used,
    reason = "in test helpers, a panic is a failed test"
)]

mod audited;
mod child;
mod detached;
#[cfg(feature = "driver")]
mod driver;
mod effort;
#[cfg(all(feature = "signals", feature = "tokio-util"))]
mod examples;
mod explore;
mod hello;
mod ladder;
mod model;
#[cfg(target_os = "linux")]
mod namespace;
mod probe;
mod process;
mod terminal;
#[cfg(feature = "tracing")]
mod traced;
mod waits;
mod x103;
mod x104;

use std::time::{Duration, Instant};

/// The time limit of a wait: more than ten times as long as any wait here takes.
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

/// Waits for longer than the debounce, so that the next signal is a new press.
fn apart() {
    pass(Duration::from_millis(70));
}

fn pass(time: Duration) {
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    assert!(never.recv_timeout(time).is_err());
}
