//! Reviews, and the results of finished phases.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Evidence, Timestamp, UsageTotal};

/// The point at which a run waits for a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReviewPoint {
    /// A phase is finished.
    Phase,
    /// A batch of iterations is complete.
    Batch,
}

impl fmt::Display for ReviewPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Phase => "phase",
            Self::Batch => "batch",
        })
    }
}

/// A person's decision in a review.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "decision", content = "text", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReviewDecision {
    /// Continue the run.
    Continue,
    /// Revise the work with this text, which becomes a steer. A finished phase runs again from its first iteration; within a phase nothing runs
    /// again, and the next prompt contains the text.
    Revise(String),
    /// Run the phase again from its first iteration, in a fresh session.
    StartOver,
    /// Stop the run; a resume asks for the review again.
    Exit,
}

/// A finished phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FinishedPhase {
    /// The name of the phase.
    pub name: String,
    /// When the phase was finished.
    pub at: Timestamp,
    /// The number of its iterations.
    pub iterations: u32,
    /// Why the phase counts as finished; `None` if all its planned iterations ran.
    pub evidence: Option<Evidence>,
    /// The last message of its agent, which the prompts of the next phase contain.
    pub result: Option<String>,
    /// The usage of the phase.
    #[serde(default, skip_serializing_if = "UsageTotal::is_zero")]
    pub usage: UsageTotal,
    /// The last [`MAX_ERRORS`](crate::MAX_ERRORS) failed iterations.
    pub errors: Vec<IterationFailure>,
}

/// A failed iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IterationFailure {
    /// The number of the iteration.
    pub iteration: u32,
    /// When the iteration was over.
    pub at: Timestamp,
    /// What failed.
    pub what: String,
}
