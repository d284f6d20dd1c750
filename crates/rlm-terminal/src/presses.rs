//! The action that a project fixes for the presses of a scope, instead of the menu.

use serde::Deserialize;

use crate::scope::Scope;

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

impl PressAction {
    /// Whether it needs a person.
    pub(crate) fn asks(self) -> bool {
        matches!(self, Self::Prompt | Self::Steer)
    }
}

/// The action of each scope; a scope whose action is absent leaves its presses to the run, whose action is `default`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PressActions {
    pub(crate) default: Option<PressAction>,
    /// The agent is being started.
    pub(crate) spawn: Option<PressAction>,
    pub(crate) turn: Option<PressAction>,
    /// Gates and the check.
    pub(crate) gate: Option<PressAction>,
    /// The steps between an iteration's work and the next iteration.
    pub(crate) save: Option<PressAction>,
    pub(crate) sleep: Option<PressAction>,
    /// A rate limit is waited for.
    pub(crate) wait: Option<PressAction>,
}

impl PressActions {
    /// Returns the action that is fixed for a scope; for the run that is the default of all.
    pub(crate) fn of(self, scope: Scope) -> Option<PressAction> {
        match scope {
            Scope::Run => self.default,
            Scope::Spawn => self.spawn,
            Scope::Turn => self.turn,
            Scope::Gate => self.gate,
            Scope::Save => self.save,
            Scope::Sleep => self.sleep,
            Scope::Wait => self.wait,
            Scope::Review | Scope::Ask | Scope::Draft | Scope::Editor | Scope::Menu => None,
        }
    }

    /// Whether anything else than the menu was asked for.
    pub(crate) fn is_fixed(self) -> bool {
        self != Self::default()
    }
}
