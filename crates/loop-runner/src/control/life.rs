//! Whether a live run works, by the responses of its process.

use std::time::{Duration, Instant};

use rlm_store::{Project, RunId};

use crate::control::client::ask;
use crate::control::protocol::{ControlQuery, Response, Status};

/// The longest time since the last turn of a run's loop; it turns each 5 s.
const STALE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Whether a live run works, by the responses of its process.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessHealth {
    /// The process responds, and its loop turns.
    Responding(Box<Status>),
    /// The process responds, and its loop has not turned for this time.
    LoopStuck(Box<Status>, Duration),
    /// The process has not responded for this time.
    Unresponsive(Duration),
}

impl ProcessHealth {
    /// Sends a request to the process that works on the run, and waits for `patience` at most. Blocks.
    #[must_use]
    pub fn of(project: &Project, run: &RunId, patience: Duration) -> Self {
        let by = Instant::now() + patience;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let answer = ask(&project.run_dir(run), ControlQuery::Status);
            match answer.and_then(|mut answers| answers.next(left)) {
                Ok(Some(Response::Status(standing))) => {
                    let age = Duration::from_millis(standing.last_tick_ms);
                    return match age > STALE {
                        true => Self::LoopStuck(standing, age),
                        false => Self::Responding(standing),
                    };
                }
                // The run has just begun, or will create its socket again within seconds.
                Err(e) if e.is_not_running() && !left.is_zero() => std::thread::park_timeout(POLL),
                Ok(Some(Response::Busy)) if !left.is_zero() => std::thread::park_timeout(POLL),
                _ => return Self::Unresponsive(patience),
            }
        }
    }

    /// Returns the status, if the process responded.
    #[must_use]
    pub fn standing(&self) -> Option<&Status> {
        match self {
            Self::Responding(standing) | Self::LoopStuck(standing, _) => Some(standing),
            Self::Unresponsive(_) => None,
        }
    }
}
