//! The waits of a stop, with their deadlines.

use std::fmt;
use std::time::Duration;

use loop_state::{LoopCommand, Timestamp};
use serde::{Deserialize, Serialize};

/// The part of a run that a stop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Awaited {
    /// The run is saving its state.
    Save,
    /// The agent and its processes have to end.
    Agent {
        /// The process id of the agent, if it is known.
        pid: Option<u32>,
    },
    /// A required check has to end.
    RequiredCheck {
        /// The number of the check, from 1.
        required_check: u32,
    },
    /// The check has to end.
    Check,
    /// The commit of an iteration's work has to end.
    Commit,
    /// Processes that were retained for later attempts have to end.
    Leftovers,
    /// The git processes have to end.
    Git,
    /// The last notifications have to be acknowledged.
    Notify,
}

impl From<LoopCommand> for Awaited {
    fn from(command: LoopCommand) -> Self {
        match command {
            LoopCommand::RequiredCheck(index) => Self::RequiredCheck {
                required_check: index + 1,
            },
            LoopCommand::Check => Self::Check,
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Save => f.write_str("the save"),
            Self::Agent { pid: Some(pid) } => write!(f, "the agent (pid {pid})"),
            Self::Agent { pid: None } => f.write_str("the agent"),
            Self::RequiredCheck { required_check } => write!(f, "required check {required_check}"),
            Self::Check => f.write_str("the check"),
            Self::Commit => f.write_str("the commit"),
            Self::Leftovers => f.write_str("the processes retained for later attempts"),
            Self::Git => f.write_str("git"),
            Self::Notify => f.write_str("the last notifications"),
        }
    }
}

/// The progress of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StopProgress {
    /// The part that the stop waits for; `None` if it waits for none.
    pub awaited: Option<Awaited>,
    /// The time at which the stop began.
    pub since: Timestamp,
    /// The deadline of the stop: everything that still runs then is killed.
    pub until: Timestamp,
}

impl StopProgress {
    /// Returns the current progress of the stop. The deadline of a stop only moves earlier.
    pub(crate) fn now(
        before: Option<Self>,
        until: Timestamp,
        awaited: Option<Awaited>,
        now: Timestamp,
    ) -> Self {
        Self {
            awaited,
            since: before.map_or(now, |before| before.since),
            until: before.map_or(until, |before| before.until.min(until)),
        }
    }

    /// Returns the time until the deadline, in whole seconds, rounded up.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Duration {
        let millis = self.until.since(now).as_millis();
        Duration::from_secs(u64::try_from(millis.div_ceil(1000)).unwrap_or(u64::MAX))
    }
}
