//! What a press means in each scope of a run, where the project says something else than the menu.

use loop_state::Step;
use serde::Deserialize;

use crate::scene::Scene;

/// What a first press does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PressAction {
    /// The menu; a stop where nobody can be asked.
    #[default]
    Prompt,
    /// Nothing, but it is said.
    Continue,
    /// Asks what to tell the agent; a stop where nobody can be asked.
    Steer,
    /// Saves and stops.
    Stop,
    /// Ends at once.
    Abort,
}

/// The action of each scope; what is absent is that of `default`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PressActions {
    default: Option<PressAction>,
    /// The agent is being started.
    spawn: Option<PressAction>,
    turn: Option<PressAction>,
    /// Gates and the check.
    gate: Option<PressAction>,
    /// What comes between an iteration's work and the next one.
    save: Option<PressAction>,
    sleep: Option<PressAction>,
    /// A rate limit is waited for.
    wait: Option<PressAction>,
}

impl PressActions {
    /// Returns what a press means now.
    pub(crate) fn of(self, scene: Scene<'_>) -> PressAction {
        let scope = match scene.head.step {
            Step::Ready => self.spawn,
            Step::Turn { .. } if !scene.agent.alive => self.spawn,
            Step::Turn { .. } => self.turn,
            Step::Gate { .. } | Step::Check | Step::Recheck { .. } => self.gate,
            Step::Settling { .. } => self.save,
            Step::Sleeping { .. } => self.sleep,
            Step::Waiting { .. } => self.wait,
            _ => None,
        };
        scope.or(self.default).unwrap_or_default()
    }

    /// Whether anything else than the menu was asked for.
    pub(crate) fn is_fixed(self) -> bool {
        self != Self::default()
    }
}
