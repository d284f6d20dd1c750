//! Whether a live run works, by the responses of its process.

use std::time::{Duration, Instant};

use rlm_store::{Project, RunId};

use crate::control::client::ask;
use crate::control::protocol::{Answer, Query, Standing};

/// The longest time since the last turn of a run's loop; it turns each 5 s.
const STALE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Whether a live run works, by the responses of its process.
#[derive(Debug)]
#[non_exhaustive]
pub enum Life {
    /// The process responds, and its loop turns.
    Turns(Box<Standing>),
    /// The process responds, and its loop has not turned for this time.
    Hangs(Box<Standing>, Duration),
    /// The process has not responded for this time.
    Silent(Duration),
}

impl Life {
    /// Sends a request to the process that works on the run, and waits for `patience` at most. Blocks.
    #[must_use]
    pub fn of(project: &Project, run: &RunId, patience: Duration) -> Self {
        let by = Instant::now() + patience;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let answer = ask(&project.run_dir(run), Query::Status);
            match answer.and_then(|mut answers| answers.next(left)) {
                Ok(Some(Answer::Status(standing))) => {
                    let age = Duration::from_millis(standing.turned_ms);
                    return match age > STALE {
                        true => Self::Hangs(standing, age),
                        false => Self::Turns(standing),
                    };
                }
                // The run has just begun, or will create its socket again within seconds.
                Err(e) if e.is_nobody() && !left.is_zero() => std::thread::park_timeout(POLL),
                Ok(Some(Answer::Busy)) if !left.is_zero() => std::thread::park_timeout(POLL),
                _ => return Self::Silent(patience),
            }
        }
    }

    /// Returns the status, if the process responded.
    #[must_use]
    pub fn standing(&self) -> Option<&Standing> {
        match self {
            Self::Turns(standing) | Self::Hangs(standing, _) => Some(standing),
            Self::Silent(_) => None,
        }
    }
}
