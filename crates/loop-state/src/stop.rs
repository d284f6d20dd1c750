//! Why a run ends and who wanted that: reasons, evidence and stop requests, with the words for people.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Budget, Timestamp};

/// Why a run ended. Every end has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The work is done, and this is the proof.
    Done(Evidence),
    /// All planned iterations were made; nothing else was asked for.
    Planned,
    /// It can't go on.
    Failed(String),
    /// All planned iterations were made, and the last one, with this number, went wrong.
    LastFailed(u32, String),
    /// The last allowed iteration was made, and gates and check have not passed.
    IterationLimit(u32),
    /// The run was active for as long as it may be.
    TimeLimit(Duration),
    /// A budget is used up. It can be resumed with a larger one.
    Budget(Budget),
    /// The agent may not work for longer than the run may wait for that. It can be resumed; with this in the future that may be in vain.
    RateLimit {
        /// When the agent may work again, as far as it says.
        until: Timestamp,
        /// How long the run may wait for rate limits.
        cap: Duration,
    },
    /// Another process has what it needs to go on, such as the agent's session; the text names it. It can be resumed when that one is done.
    Held(String),
    /// The same kind of failure came this often in a row.
    Stuck(Streak, u32),
    /// Somebody or something asked it to stop. It can be resumed.
    Stopped(StopCause),
}

impl StopReason {
    /// Returns whether the run ended for good, so that resuming it would have nothing to do.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Planned)
    }

    /// Returns whether the run was merely stopped and waits to be resumed.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(Evidence::Check) => f.write_str("done: the check passed"),
            Self::Done(Evidence::Claim) => {
                f.write_str("done, as the agent says: no check was there to prove it")
            }
            Self::Planned => f.write_str("planned: all iterations were made"),
            Self::Failed(what) => write!(f, "failed: {what}"),
            Self::LastFailed(last, what) => {
                write!(f, "failed: iteration {last}, the last one planned: {what}")
            }
            Self::IterationLimit(limit) => {
                write!(f, "iteration limit: {limit} made and not done")
            }
            Self::TimeLimit(limit) => write!(f, "time limit: {limit:?} used up"),
            Self::Budget(budget) => write!(f, "budget: {budget}"),
            Self::RateLimit { cap, .. } if cap.is_zero() => {
                f.write_str("rate limit: the agent may not work now, and the run does not wait")
            }
            Self::RateLimit { cap, .. } => {
                write!(
                    f,
                    "rate limit or outage: longer than the {cap:?} that the run may wait"
                )
            }
            Self::Held(what) => write!(f, "held: {what}"),
            Self::Stuck(streak, count) => write!(f, "stuck: {count} {streak} in a row"),
            Self::Stopped(cause) => write!(f, "stopped {cause}"),
        }
    }
}

/// The proof that work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evidence {
    /// The loop ran the check itself and it passed.
    Check,
    /// The agent's word, and no more.
    Claim,
}

/// A kind of failure that is counted in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Streak {
    /// Turns that failed.
    Failures,
    /// Iterations whose gates failed.
    Gates,
    /// Turns that were cut because the loop's process died.
    Crashes,
    /// Turns in which no tool ran and nothing changed.
    Idle,
    /// Checks that could not be run, none that could having come before.
    Unrun,
}

impl fmt::Display for Streak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failures => "failed turns",
            Self::Gates => "failed gates",
            Self::Crashes => "crashes",
            Self::Idle => "turns without any work",
            Self::Unrun => "checks that could not be run",
        })
    }
}

/// Who asked for a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopCause {
    /// A person: a press, a command.
    Person,
    /// SIGTERM: a scheduler, an operator, a shutdown.
    Terminated,
    /// SIGHUP: the terminal went away.
    HungUp,
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Person => "by a person",
            Self::Terminated => "by SIGTERM",
            Self::HungUp => "by SIGHUP",
        })
    }
}

/// When a stop takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At once: what runs is ended.
    #[default]
    Now,
    /// When the iteration is complete.
    #[serde(rename = "iteration")]
    AfterIteration,
}

/// A wish to stop that is being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopRequest {
    /// Who asked.
    pub by: StopCause,
    /// When it takes effect.
    pub when: When,
}
