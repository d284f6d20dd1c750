//! The times of a hand-over. They are in one module so that a reader can compare them.

use std::time::Duration;

/// The time of a whole hand-over: from SIGTERM until the worker has given the run back.
pub const HANDOVER: Duration = Duration::from_secs(2);
/// The time that a run has to stop in a hand-over; after it, the run's process is killed.
pub const HANDOVER_STOP: Duration = Duration::from_millis(1500);
