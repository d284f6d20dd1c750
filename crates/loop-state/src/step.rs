//! Where in its iteration a run can stand, and what each of these places has to remember.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Evidence, Occasion, StopReason, Timestamp};

/// Where in its iteration a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The present iteration's next attempt is still to begin.
    Ready,
    /// The agent works.
    Turn {
        /// Since when.
        since: Timestamp,
    },
    /// A person interrupted the turn; its session is open and waits for a word.
    Interrupted {
        /// Since when.
        since: Timestamp,
    },
    /// A gate runs.
    Gate {
        /// Its index.
        index: u32,
    },
    /// The check runs.
    Check,
    /// Gates and check run before a cut iteration is done again: its work may have been finished.
    Recheck {
        /// The gate that runs, or the number of gates when it is the check.
        gate: u32,
    },
    /// What the attempt left running is being ended.
    Settling {
        /// What comes after that.
        then: Then,
    },
    /// The iteration, or the phase, is complete and the next one is waited for.
    Sleeping {
        /// When it begins.
        until: Timestamp,
    },
    /// The attempt was cut by something that time mends; the next one of the same iteration is waited for.
    Waiting {
        /// Since when.
        since: Timestamp,
        /// When it begins.
        until: Timestamp,
        /// What for.
        why: Wait,
    },
    /// The iteration is complete and a person wants the next one to wait.
    Paused {
        /// Since when.
        since: Timestamp,
    },
    /// The iteration, or the phase, is complete and the run's rules ask for a person's word.
    Review {
        /// Since when.
        since: Timestamp,
        /// What is over.
        of: Occasion,
    },
}

impl Step {
    /// Returns whether nothing runs that would have to be ended first.
    pub(crate) fn is_rest(&self) -> bool {
        matches!(
            self,
            Self::Sleeping { .. }
                | Self::Waiting { .. }
                | Self::Paused { .. }
                | Self::Review { .. }
        )
    }
}

/// What a run waits for, that comes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wait {
    /// The end of a rate limit.
    Limit,
    /// Another try, after a failure that may not come again.
    Retry,
}

/// What a person wants done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// The iteration.
    Iteration,
    /// The phase.
    Phase,
}

/// What follows when the tree of an attempt is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The iteration is complete.
    Next,
    /// The iteration is complete and this shows that the phase is done.
    Done(Evidence),
    /// What a person wants done again.
    Again(Again),
    /// The run ends, with the iteration's turn made but not judged.
    End(StopReason),
}

/// An attempt that did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cut {
    /// Its number.
    pub attempt: u32,
    /// What cut it.
    pub cause: CutCause,
}

/// What cuts an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CutCause {
    /// The loop's process died: killed, crashed, machine gone.
    Crash,
    /// The run was asked to stop.
    Stop,
    /// The run's time was used up.
    TimeLimit,
    /// The run's budget was used up.
    Budget,
    /// A person wanted it done again.
    Restart,
    /// The agent can't work before a person has mended something.
    Agent,
    /// The agent may not work before a certain time.
    RateLimit,
    /// The agent failed in a way that may not come again.
    Transient,
}

impl fmt::Display for CutCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crash => "the loop's process died",
            Self::Stop => "the run was stopped",
            Self::TimeLimit => "the run's time was used up",
            Self::Budget => "the run's budget was used up",
            Self::Restart => "a person restarted it",
            Self::Agent => "the agent could not work",
            Self::RateLimit => "a rate limit was reached",
            Self::Transient => "the agent had a transient failure",
        })
    }
}
