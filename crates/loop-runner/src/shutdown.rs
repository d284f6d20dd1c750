//! The waits of a run that is being stopped, with their deadlines.

use std::fmt;
use std::time::Duration;

use loop_state::{Command, Timestamp};
use serde::{Deserialize, Serialize};

/// The part of a run that has to end before the run has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Awaited {
    /// The state of the run is being saved.
    Save,
    /// The agent has to end, with all that it started.
    Agent {
        /// The process id of the agent, where it is known.
        pid: Option<u32>,
    },
    /// A required check has to end.
    Gate {
        /// The number of the check, from 1.
        gate: u32,
    },
    /// The check has to end.
    Check,
    /// The commit of an iteration's work has to end.
    Commit,
    /// Processes that were kept running for later attempts have to end.
    Leftovers,
    /// Git, which looks at the working tree, has to end.
    Git,
    /// The notify command has to end.
    Notify,
}

impl From<Command> for Awaited {
    fn from(command: Command) -> Self {
        match command {
            Command::Gate(index) => Self::Gate { gate: index + 1 },
            Command::Check => Self::Check,
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Save => f.write_str("the save"),
            Self::Agent { pid: Some(pid) } => write!(f, "the agent (pid {pid})"),
            Self::Agent { pid: None } => f.write_str("the agent"),
            Self::Gate { gate } => write!(f, "gate {gate}"),
            Self::Check => f.write_str("the check"),
            Self::Commit => f.write_str("the commit"),
            Self::Leftovers => f.write_str("the processes kept for later attempts"),
            Self::Git => f.write_str("git"),
            Self::Notify => f.write_str("the notify command"),
        }
    }
}

/// A stop that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Shutdown {
    /// What is waited for; `None` where nothing is.
    pub awaited: Option<Awaited>,
    /// The time at which the stop began.
    pub since: Timestamp,
    /// The bound: what still runs then is killed.
    pub until: Timestamp,
}

impl Shutdown {
    /// Returns the stop as it is now. The bound of a stop only moves earlier.
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

    /// Returns the time until the bound, in whole seconds, rounded up.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Duration {
        let millis = self.until.since(now).as_millis();
        Duration::from_secs(u64::try_from(millis.div_ceil(1000)).unwrap_or(u64::MAX))
    }
}
