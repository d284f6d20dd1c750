//! The machine's step as one word for those who look on, where something is done and not waited for.

use loop_state::{Head, Step, Then};
use serde::{Deserialize, Serialize};

/// What is done in a run, where nothing is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Doing {
    /// Something begins.
    Begin,
    /// The agent has its turn.
    Turn,
    /// A gate runs.
    Gate(u32),
    /// The check runs.
    Check,
    /// What an attempt left is ended.
    End,
    /// The same of an iteration that is complete, and its work is committed, where that is wished for.
    Finish,
}

impl Doing {
    /// Returns what is done in a run that stands so.
    #[must_use]
    pub fn of(head: &Head) -> Option<Self> {
        Some(match head.step {
            Step::Turn { .. } => Self::Turn,
            Step::Gate { index } => Self::Gate(index),
            Step::Recheck { gate } if gate < head.phase_rules().gates => Self::Gate(gate),
            Step::Recheck { .. } | Step::Check => Self::Check,
            Step::Settling {
                then: Then::Next | Then::Done(_),
            } => Self::Finish,
            Step::Settling { .. } => Self::End,
            Step::Sleeping { .. }
            | Step::Waiting { .. }
            | Step::Interrupted { .. }
            | Step::Paused { .. }
            | Step::Review { .. } => return None,
            _ => Self::Begin,
        })
    }
}
