//! Whether a live run works, by what its process answers.

use std::time::{Duration, Instant};

use rlm_store::{Project, RunId};

use crate::control::client::ask;
use crate::control::protocol::{Answer, Query, Standing};

/// The longest time since the loop of a run turned; it turns each 5 s.
const STALE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Whether a live run works, by what its process answers.
#[derive(Debug)]
#[non_exhaustive]
pub enum Life {
    /// Its loop turns.
    Turns(Box<Standing>),
    /// It answers, and its loop has not turned for so long.
    Hangs(Box<Standing>, Duration),
    /// It has not answered for so long.
    Silent(Duration),
}

impl Life {
    /// Asks the process that has the run, and waits for `patience` at most. Blocks.
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
                // It has just begun, or its socket is made again within seconds.
                Err(e) if e.is_nobody() && !left.is_zero() => std::thread::park_timeout(POLL),
                Ok(Some(Answer::Busy)) if !left.is_zero() => std::thread::park_timeout(POLL),
                _ => return Self::Silent(patience),
            }
        }
    }

    /// Returns its status, if it answered.
    #[must_use]
    pub fn standing(&self) -> Option<&Standing> {
        match self {
            Self::Turns(standing) | Self::Hangs(standing, _) => Some(standing),
            Self::Silent(_) => None,
        }
    }
}
