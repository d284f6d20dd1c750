//! A steer and how far it has come, which is kept so that no crash loses what a person said.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A person's message into the running loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steer {
    /// Its number in the run, from 1.
    pub id: u32,
    /// When it was said.
    pub at: Timestamp,
    /// What it says.
    pub text: String,
    /// How far it has come.
    pub state: SteerState,
}

/// How far a steer has come. It is kept until a turn that saw it is over, so that a crash loses none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SteerState {
    /// It is on disk.
    #[default]
    Recorded,
    /// The agent was given it and has not said that it looked.
    Delivered,
    /// The agent has it before its eyes.
    Seen,
}
