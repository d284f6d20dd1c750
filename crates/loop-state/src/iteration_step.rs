//! The step of the current iteration, with the data of each step.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Evidence, ReviewPoint, StopReason, Timestamp};

/// The step of the current iteration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IterationStep {
    /// The next attempt of the current iteration has not begun.
    Ready,
    /// The agent works.
    Turn {
        /// When the turn began.
        since: Timestamp,
    },
    /// A person interrupted the turn; its session is open and waits for a message.
    Interrupted {
        /// When the turn was interrupted.
        since: Timestamp,
    },
    /// A required check runs.
    RequiredCheck {
        /// The index of the required check.
        index: u32,
    },
    /// The check runs.
    Check,
    /// The required checks and the check run before an unfinished iteration is redone: its work may be complete.
    Recheck {
        /// The index of the required check that runs, or the number of required checks if the check runs.
        index: u32,
    },
    /// The leftovers of the attempt are being ended.
    EndingLeftovers {
        /// The next action after that.
        then: AfterLeftovers,
    },
    /// The iteration or the phase is complete, and the run sleeps before the next one.
    Sleeping {
        /// When the next one begins.
        until: Timestamp,
    },
    /// The attempt is unfinished because of a rate limit or a transient failure; the next attempt of the same iteration begins later.
    Waiting {
        /// When the wait began.
        since: Timestamp,
        /// When the next attempt begins.
        until: Timestamp,
        /// The cause of the wait.
        why: WaitCause,
    },
    /// The iteration is complete, and a person paused the run.
    Paused {
        /// When the pause began.
        since: Timestamp,
    },
    /// The iteration or the phase is complete, and the rules require a review.
    Review {
        /// When the review began.
        since: Timestamp,
        /// The subject of the review.
        point: ReviewPoint,
    },
}

impl IterationStep {
    /// Returns whether no turn and no command runs, because the run waits. A stop can end the run at once then.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        matches!(
            self,
            Self::Sleeping { .. }
                | Self::Waiting { .. }
                | Self::Paused { .. }
                | Self::Review { .. }
        )
    }
}

/// Why a run waits, if it doesn't wait for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitCause {
    /// A rate limit.
    RateLimit,
    /// The pause before the next try after a transient failure.
    Retry,
}

/// The scope of a redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RedoScope {
    /// The iteration.
    Iteration,
    /// The phase.
    Phase,
}

/// The next action after the process tree of an attempt has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AfterLeftovers {
    /// The iteration is complete: continue with the next one.
    NextIteration,
    /// The iteration is complete, and this evidence shows that the phase is finished.
    PhaseDone(Evidence),
    /// Redo what a person asked to redo.
    Redo(RedoScope),
    /// End the run. The turn is over, but its checks have not run.
    EndRun(StopReason),
}

/// An attempt that ended before its iteration was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnfinishedAttempt {
    /// The number of the attempt.
    pub attempt: u32,
    /// Why the attempt is unfinished.
    pub cause: UnfinishedCause,
}

/// Why an attempt is unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnfinishedCause {
    /// The process of the loop died: it was killed, it crashed, or the machine went down.
    ProcessDied,
    /// A request or a signal stopped the run.
    Stop,
    /// The run reached its time limit.
    TimeLimit,
    /// The run used up its budget.
    Budget,
    /// A person requested a redo.
    Redo,
    /// The agent can't work until a person fixes something.
    AgentUnusable,
    /// The agent's service refuses requests until a certain time.
    RateLimit,
    /// The agent had a transient failure.
    Transient,
}

impl fmt::Display for UnfinishedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProcessDied => "the loop's process died",
            Self::Stop => "the run was stopped",
            Self::TimeLimit => "the run reached its time limit",
            Self::Budget => "the run used up its budget",
            Self::Redo => "a person restarted it",
            Self::AgentUnusable => "the agent could not work",
            Self::RateLimit => "a rate limit was reached",
            Self::Transient => "the agent had a transient failure",
        })
    }
}
