//! The view of a live run: the saved state, and what only its process knows.

use agent_duplex::PermissionRequest;
use loop_state::Head;
use serde::{Deserialize, Serialize};

use crate::StopProgress;

/// The current state of a run: its saved state, and its live agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct View {
    /// The state of the run.
    pub head: Head,
    /// The agent of the current attempt.
    pub agent: AgentView,
    /// The current stop, if there is one.
    pub shutdown: Option<StopProgress>,
}

/// The agent of the current attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentView {
    /// Whether the agent runs.
    pub alive: bool,
    /// The number of background tasks that the ended turn still waits for. `None` if it waits for none, or the agent works again.
    pub awaited_tasks: Option<u32>,
    /// Whether the turn can be ended so that the conversation continues.
    pub interruptible: bool,
    /// Whether the agent can be interrupted and steered within a turn.
    pub steerable: bool,
    /// The running tools, one line each. The texts come from the model and can contain anything.
    pub tools: Vec<String>,
    /// The permission requests without an answer.
    pub permission_requests: Vec<PermissionRequest>,
}
