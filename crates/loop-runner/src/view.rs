//! The view of a live run: the saved state, and what only its process knows.

use agent_duplex::PermissionRequest;
use loop_state::{Head, IterationStep};
use serde::{Deserialize, Serialize};

use crate::StopProgress;

/// The current state of a run: its saved state, and its live agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct View {
    /// The state of the run.
    pub head: Head,
    /// Why the run is about to pause or waits, if whoever paused it gave a reason.
    #[serde(default)]
    pub pause_reason: Option<String>,
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

/// When the agent gets a message that a person sends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SteerDelivery {
    /// At once, within the running turn.
    InTurn,
    /// After the running turn, in a turn of its own. If the session can't continue then, with the next prompt.
    AfterTurn,
    /// At once: the message continues the interrupted session.
    ContinuesSession,
    /// With the next prompt.
    NextPrompt,
}

impl AgentView {
    /// Returns when the agent gets a message that a person sends now. `head` is the state of the run. A review is an exception: there the message is
    /// the decision to revise.
    #[must_use]
    pub fn steer_delivery(&self, head: &Head) -> SteerDelivery {
        match head.step {
            _ if head.is_stopping_step => SteerDelivery::NextPrompt,
            IterationStep::Interrupted { .. } => SteerDelivery::ContinuesSession,
            IterationStep::Turn { .. } if self.alive && self.steerable => SteerDelivery::InTurn,
            IterationStep::Turn { .. } if self.alive && self.interruptible => {
                SteerDelivery::AfterTurn
            }
            _ => SteerDelivery::NextPrompt,
        }
    }
}

#[cfg(test)]
mod tests {
    use loop_state::{PhaseRules, Rules, Timestamp};

    use super::*;

    #[test]
    fn delivery_of_a_steer_depends_on_the_agent_and_the_step() {
        let since = Timestamp::from_millis(1);
        let (command, turns, within) = ((false, false), (true, false), (true, true));
        let turn = || IterationStep::Turn { since };
        let interrupted = || IterationStep::Interrupted { since };
        for (agent, alive, step, stopping, delivery) in [
            (command, true, turn(), false, SteerDelivery::NextPrompt),
            (turns, true, turn(), false, SteerDelivery::AfterTurn),
            (within, true, turn(), false, SteerDelivery::InTurn),
            // The agent of this attempt has not started, or is gone.
            (within, false, turn(), false, SteerDelivery::NextPrompt),
            // The run ends the turn.
            (within, true, turn(), true, SteerDelivery::NextPrompt),
            (
                turns,
                true,
                interrupted(),
                false,
                SteerDelivery::ContinuesSession,
            ),
            (
                within,
                true,
                interrupted(),
                false,
                SteerDelivery::ContinuesSession,
            ),
            (within, true, interrupted(), true, SteerDelivery::NextPrompt),
            (
                within,
                true,
                IterationStep::Check,
                false,
                SteerDelivery::NextPrompt,
            ),
            (
                within,
                true,
                IterationStep::Paused { since },
                false,
                SteerDelivery::NextPrompt,
            ),
            (
                within,
                true,
                IterationStep::Sleeping { until: since },
                false,
                SteerDelivery::NextPrompt,
            ),
        ] {
            let (interruptible, steerable) = agent;
            let view = AgentView {
                alive,
                interruptible,
                steerable,
                ..AgentView::default()
            };
            let mut phase = PhaseRules::default();
            phase.limits.max_iterations = Some(1);
            let phases = vec![phase];
            let mut head = Head::new(Rules {
                phases,
                ..Rules::default()
            })
            .unwrap();
            head.is_stopping_step = stopping;
            head.step = step;
            assert_eq!(
                view.steer_delivery(&head),
                delivery,
                "{view:?} {:?}",
                head.step
            );
        }
    }
}
