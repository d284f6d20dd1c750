//! Between the phases of a run: the results of finished phases, and the reviews.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Evidence, Timestamp, Usage};

/// What a run waits for a person's word at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Occasion {
    /// A phase is over.
    Phase,
    /// A batch of iterations is over.
    Batch,
}

impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Phase => "phase",
            Self::Batch => "batch",
        })
    }
}

/// A person's word on what was done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "verdict", content = "text", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It is good: the run goes on.
    Continue,
    /// It is to be done with this in mind, which becomes a steer. A phase that is over is run again, from its first iteration; within a phase
    /// there is nothing to run again, and its next prompt has the text.
    Revise(String),
    /// The phase is run again from its first iteration, in a fresh session.
    StartOver,
    /// The run is stopped; a resume comes back to the question.
    Exit,
}

/// A phase that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finished {
    /// Its name.
    pub name: String,
    /// When it was over.
    pub at: Timestamp,
    /// How many iterations it took.
    pub iterations: u32,
    /// The proof that it is done; `None` when all its planned iterations were made.
    pub evidence: Option<Evidence>,
    /// What its agent said last; the prompts of the next phase have it.
    pub result: Option<String>,
    /// What it used.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
    /// The last [`MAX_ERRORS`](crate::MAX_ERRORS) of its iterations that went wrong.
    pub errors: Vec<Failure>,
}

/// An iteration that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// Its number.
    pub iteration: u32,
    /// When it was over.
    pub at: Timestamp,
    /// What went wrong.
    pub what: String,
}
