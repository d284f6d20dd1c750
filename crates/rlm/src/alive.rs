//! Whether a live run works, by what its process answers.

use std::time::{Duration, Instant};

use loop_runner::control::{Answer, Query, Standing, ask};
use rlm_store::Project;
use rlm_store::RunEntry;
use rlm_store::RunId;
use rlm_store::RunState;
use rlm_text::duration;

/// How long ago its loop may have turned; it does each 5 s.
const STALE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// How long one of several runs may take, where a user waits for a list.
pub(crate) const LOOK: Duration = Duration::from_secs(2);

/// Returns whether a process has the run.
pub(crate) fn is_live(run: &RunEntry) -> bool {
    matches!(run.state, RunState::Running | RunState::Paused)
}

/// What the process that has a run says of it: the one judgement of whether it works.
#[derive(Debug)]
pub(crate) enum Life {
    /// Its loop turns.
    Turns(Box<Standing>),
    /// It answers, and its loop has not turned for so long.
    Hangs(Box<Standing>, Duration),
    /// It has not answered for so long.
    Silent(Duration),
}

impl Life {
    /// Asks the process.
    pub(crate) fn of(project: &Project, run: &RunId, patience: Duration) -> Self {
        let by = Instant::now() + patience;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let answer = ask(&project.run_dir(run), Query::Status);
            match answer.and_then(|mut answers| answers.next(left)) {
                Ok(Some(Answer::Status(standing))) => {
                    let age = Duration::from_millis(standing.turned_ms.unwrap_or_default());
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

    /// Returns what it said, if it said anything.
    pub(crate) fn standing(&self) -> Option<&Standing> {
        match self {
            Self::Turns(standing) | Self::Hangs(standing, _) => Some(standing),
            Self::Silent(_) => None,
        }
    }

    /// Says what is wrong with it, if anything is.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Turns(_) => None,
            Self::Hangs(_, age) => {
                let age = duration::show(Duration::from_secs(age.as_secs()));
                Some(format!(
                    "hangs: its loop turned {age} ago for the last time"
                ))
            }
            Self::Silent(patience) => {
                let patience = duration::show(*patience);
                Some(format!(
                    "does not answer within {patience}: it stands still, or hangs"
                ))
            }
        }
    }
}
