//! What others see of a live run: the saved state, and what is true only of its process.

use agent_duplex::Ask;
use loop_state::Head;
use serde::{Deserialize, Serialize};

use crate::Shutdown;

/// What a run looks like now: what is saved of it, and what is true of its live agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct View {
    /// The state of the run.
    pub head: Head,
    /// The agent of the present attempt.
    pub agent: AgentView,
    /// The stop that is under way, if one is.
    pub shutdown: Option<Shutdown>,
}

/// The agent of the present attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentView {
    /// Whether it runs.
    pub alive: bool,
    /// How many tasks in the background are waited for before the turn that is over counts; `None` when none is, or it does something else now.
    pub held_for: Option<u32>,
    /// Whether its turn can be ended and its conversation gone on with.
    pub interruptible: bool,
    /// Whether it can be interrupted and steered within a turn.
    pub steerable: bool,
    /// What its tools do now, each on one line. Comes from the model; it may hold anything.
    pub tools: Vec<String>,
    /// What it asks and nobody has answered.
    pub asks: Vec<Ask>,
}
