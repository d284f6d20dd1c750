//! Why a run ends and who requested that: stop reasons, evidence and stop requests, with their texts.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::limit_text;
use crate::{LoopCommand, SpentBudget, Timestamp};

/// Why a run ended. Every end has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The work is done, with this evidence.
    Done(Evidence),
    /// The check passed before the first iteration, so no iteration ran.
    AlreadyDone,
    /// A command that has to pass can't run. This was found before the first iteration.
    FirstCheckNotRun {
        /// The check or required check.
        command: LoopCommand,
        /// Why it can't run, for people.
        why: String,
    },
    /// All planned iterations ran; the run has no other stop condition.
    AllIterationsRan,
    /// The run can't continue, for this reason.
    Failed(String),
    /// All planned iterations ran, and the last one failed.
    LastIterationFailed {
        /// The number of the last iteration.
        iteration: u32,
        /// The failure.
        why: String,
    },
    /// The last allowed iteration ran, and the phase isn't finished.
    IterationLimit(u32),
    /// The run reached its maximum duration.
    TimeLimit(Duration),
    /// A budget is used up. The run can be resumed with a larger one.
    BudgetSpent(SpentBudget),
    /// A rate limit lasts longer than the run may wait. The run can be resumed, but before `until` the agent may still refuse to work.
    RateLimit {
        /// When the agent can work again, as far as it reports that.
        until: Timestamp,
        /// How long the run may wait for rate limits.
        cap: Duration,
    },
    /// Another process uses something that the run needs, such as the agent's session; the text names that process. The run can be resumed after that
    /// process ends.
    InUse(String),
    /// Failures of the same kind occurred too often in a row.
    Stuck {
        /// The kind of the failures.
        streak: Streak,
        /// How often they occurred.
        count: u32,
    },
    /// A person or a signal stopped the run. It can be resumed.
    Stopped(StopCause),
}

impl StopReason {
    /// Returns whether the run ended for good, so that a resume has nothing to do.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Done(_) | Self::AlreadyDone | Self::AllIterationsRan
        )
    }

    /// Returns whether the run was only stopped and can be resumed.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(Evidence::Check) => f.write_str("done: the check passed"),
            Self::Done(Evidence::Promise) => {
                f.write_str("done: the agent promises it; no check confirmed it")
            }
            Self::AlreadyDone => {
                f.write_str("already done: the check passed before the first iteration")
            }
            Self::FirstCheckNotRun { command, why } => {
                let why = why.trim_end().replace('\n', " ");
                match command {
                    LoopCommand::Check => write!(f, "failed: the check can't run: {why}"),
                    LoopCommand::RequiredCheck(index) => {
                        write!(f, "failed: required check {} can't run: {why}", index + 1)
                    }
                }
            }
            Self::AllIterationsRan => f.write_str("finished: all planned iterations ran"),
            Self::Failed(what) => write!(f, "failed: {what}"),
            Self::LastIterationFailed {
                iteration: last,
                why: what,
            } => {
                write!(f, "failed: the last planned iteration ({last}): {what}")
            }
            Self::IterationLimit(limit) => {
                write!(
                    f,
                    "iteration limit ({limit}) reached; the phase isn't finished"
                )
            }
            Self::TimeLimit(limit) => write!(f, "time limit ({}) reached", limit_text(*limit)),
            Self::BudgetSpent(budget) => write!(f, "budget: {budget}"),
            Self::RateLimit { cap, .. } if cap.is_zero() => {
                f.write_str("rate limit reached, and the run doesn't wait for it")
            }
            Self::RateLimit { cap, .. } => {
                write!(
                    f,
                    "rate limit or outage: longer than the maximum wait of {}",
                    limit_text(*cap)
                )
            }
            Self::InUse(what) => write!(f, "in use: {what}"),
            Self::Stuck { streak, count } => write!(f, "stuck: {}", streak.counted(*count)),
            Self::Stopped(cause) => write!(f, "stopped {cause}"),
        }
    }
}

/// Why work counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evidence {
    /// The loop ran the check, and the check passed.
    Check,
    /// Only the agent's completion promise.
    Promise,
}

/// A kind of failure that the run counts in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Streak {
    /// Failed turns.
    Failures,
    /// Iterations with a failed required check.
    RequiredChecks,
    /// Turns that are unfinished because the process of the loop died.
    Crashes,
    /// Turns without progress: no tool ran and nothing changed.
    NoProgress,
    /// Checks that could not run, while no check of this phase ran in the current process.
    CheckNotRun,
}

impl Streak {
    /// Returns the length of the streak as text: `1 crash`, `3 crashes in a row`.
    #[must_use]
    pub fn counted(self, count: u32) -> String {
        let (one, several) = match self {
            Self::Failures => ("failed turn", "failed turns"),
            Self::RequiredChecks => ("failed required check", "failed required checks"),
            Self::Crashes => ("crash", "crashes"),
            Self::NoProgress => ("turn without progress", "turns without progress"),
            Self::CheckNotRun => ("unrunnable check", "unrunnable checks"),
        };
        match count {
            1 => format!("1 {one}"),
            count => format!("{count} {several} in a row"),
        }
    }
}

/// The origin of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopCause {
    /// A person, by a press or a command.
    Person,
    /// SIGTERM, from a scheduler, an operator or a shutdown.
    Terminated,
    /// SIGHUP: the terminal was closed.
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
pub enum StopTiming {
    /// Now: the current turn or command ends.
    #[default]
    Now,
    /// When the iteration is complete.
    #[serde(rename = "iteration")]
    AfterIteration,
}

/// A stop request that the run carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopRequest {
    /// The origin of the stop.
    pub by: StopCause,
    /// When the stop takes effect.
    pub when: StopTiming,
}
