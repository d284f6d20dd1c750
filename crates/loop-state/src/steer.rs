//! A steer and its progress. Both are saved, so that a crash loses no message of a person.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A message of a person to the agent of a live run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steer {
    /// The number of the steer in the run, from 1.
    pub id: u32,
    /// When the person sent it.
    pub at: Timestamp,
    /// The message.
    pub text: String,
    /// The progress of the steer.
    pub state: SteerState,
}

/// The progress of a steer. A steer is stored until a turn that read it is over, so that a crash loses none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SteerState {
    /// The steer is on disk.
    #[default]
    Recorded,
    /// The agent received it and has not confirmed that it read it.
    Delivered,
    /// The agent has read it.
    Seen,
}
