//! The nested press scopes of a run, and the meaning of a press of Ctrl-C in each. A scope that declines a press passes it to the scope around it.

use loop_state::IterationStep;
use serde::Deserialize;

use crate::run_snapshot::RunSnapshot;

/// A part of the run, or an open prompt, that answers presses while it lasts. Of two scopes that are open together, the later variant is the inner
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The whole run.
    Run,
    /// The agent starts.
    Spawn,
    Turn,
    /// The required checks and the check.
    RequiredCheck,
    /// The run ends the leftovers of an attempt, and saves.
    Save,
    Sleep,
    /// The run waits because of a rate limit or a transient failure.
    Wait,
    /// A phase or a batch waits for a review.
    Review,
    /// A permission request of the agent is open.
    PermissionRequest,
    /// A text that is being written.
    Draft,
    Editor,
    /// The menu that a press opened.
    Menu,
}

/// Whether a person can be asked on the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskAbility {
    Here,
    /// There is no terminal, or it belongs to another program now.
    Nowhere,
    /// There is a terminal, but it can't be used.
    Broken,
}

/// The meaning of a press in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PressMeaning {
    /// The scope around this one decides; a press that the run declines is a stop.
    Decline,
    Runs(PressAction),
    /// The menu opens, and a draft is kept.
    Menu,
    /// Only a message is printed, because the editor has the screen. The press gets no answer, so it counts during the cooldown.
    Note,
    /// The menu can't be shown. The press gets no answer, so it counts during the cooldown.
    CannotAsk,
    /// The press has the effect of a second press: it saves and stops.
    Escalate,
}

impl Scope {
    /// Returns the scope of the run's current step, if the step has a scope.
    pub(crate) fn of_step(snapshot: RunSnapshot<'_>) -> Option<Self> {
        Some(match snapshot.head.step {
            IterationStep::Ready => Self::Spawn,
            IterationStep::Turn { .. } if !snapshot.agent.alive => Self::Spawn,
            IterationStep::Turn { .. } => Self::Turn,
            IterationStep::RequiredCheck { .. }
            | IterationStep::Check
            | IterationStep::Recheck { .. } => Self::RequiredCheck,
            IterationStep::EndingLeftovers { .. } => Self::Save,
            IterationStep::Sleeping { .. } => Self::Sleep,
            IterationStep::Waiting { .. } => Self::Wait,
            _ => return None,
        })
    }

    /// Returns the name of the scope's handler in `interrupt-stack`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Spawn => "spawn",
            Self::Turn => "turn",
            Self::RequiredCheck => "gate",
            Self::Save => "save",
            Self::Sleep => "sleep",
            Self::Wait => "wait",
            Self::Review => "review",
            Self::PermissionRequest => "ask",
            Self::Draft => "draft",
            Self::Editor => "editor",
            Self::Menu => "menu",
        }
    }

    /// Returns the meaning of a press in this scope. `prompting` is the open prompt, and `own` is the action that is configured for the scope.
    ///
    /// A prompt that is not on the screen declines the press. In a prompt on the screen a press opens the menu. In the menu it stops the run, and in
    /// the editor it only prints a message. A configured action applies only if no open prompt takes the press.
    pub(crate) fn press_meaning(
        self,
        prompting: Option<Self>,
        own: Option<PressAction>,
        asking: AskAbility,
    ) -> PressMeaning {
        let is_shown = prompting == Some(self);
        match self {
            Self::Menu if is_shown => PressMeaning::Escalate,
            Self::Editor if is_shown => PressMeaning::Note,
            Self::Draft | Self::PermissionRequest | Self::Review
                if is_shown && asking == AskAbility::Here =>
            {
                PressMeaning::Menu
            }
            Self::Menu | Self::Editor | Self::Draft | Self::PermissionRequest | Self::Review => {
                PressMeaning::Decline
            }
            // The press came before the editor had the screen.
            _ if prompting == Some(Self::Editor) => PressMeaning::Note,
            Self::Run => match own.unwrap_or_default() {
                action if !action.asks() || asking == AskAbility::Here => {
                    PressMeaning::Runs(action)
                }
                _ if asking == AskAbility::Broken => PressMeaning::CannotAsk,
                _ => PressMeaning::Decline,
            },
            _ => match own {
                None => PressMeaning::Decline,
                Some(action) if !action.asks() || asking == AskAbility::Here => {
                    PressMeaning::Runs(action)
                }
                Some(_) if asking == AskAbility::Broken => PressMeaning::CannotAsk,
                // The action of the run doesn't apply here: without a person, a press is a stop.
                Some(_) => PressMeaning::Escalate,
            },
        }
    }
}

/// The action of a first press.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PressAction {
    /// Opens the menu; a stop if no person can be asked.
    #[default]
    Prompt,
    /// Prints a message; the run continues.
    Continue,
    /// Opens `steer>`; a stop if no person can be asked.
    Steer,
    /// Saves and stops.
    Stop,
    /// Aborts the run.
    Abort,
}

impl PressAction {
    /// Whether the action needs a person.
    pub(crate) fn asks(self) -> bool {
        matches!(self, Self::Prompt | Self::Steer)
    }
}

/// The actions of the press scopes. A scope without an action passes its presses to the run, whose action is `default`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PressActions {
    pub(crate) default: Option<PressAction>,
    /// The agent starts.
    pub(crate) spawn: Option<PressAction>,
    pub(crate) turn: Option<PressAction>,
    /// The required checks and the check.
    pub(crate) gate: Option<PressAction>,
    /// The run ends the leftovers of an attempt, and saves.
    pub(crate) save: Option<PressAction>,
    pub(crate) sleep: Option<PressAction>,
    /// The run waits because of a rate limit or a transient failure.
    pub(crate) wait: Option<PressAction>,
}

impl PressActions {
    /// Returns the action that is configured for a scope; for the run, the default action.
    pub(crate) fn action_in(self, scope: Scope) -> Option<PressAction> {
        match scope {
            Scope::Run => self.default,
            Scope::Spawn => self.spawn,
            Scope::Turn => self.turn,
            Scope::RequiredCheck => self.gate,
            Scope::Save => self.save,
            Scope::Sleep => self.sleep,
            Scope::Wait => self.wait,
            Scope::Review
            | Scope::PermissionRequest
            | Scope::Draft
            | Scope::Editor
            | Scope::Menu => None,
        }
    }

    /// Whether any action is configured.
    pub(crate) fn is_configured(self) -> bool {
        self != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AskAbility::{Broken, Here, Nowhere};

    const PROMPTS: [Scope; 5] = [
        Scope::Review,
        Scope::PermissionRequest,
        Scope::Draft,
        Scope::Editor,
        Scope::Menu,
    ];
    const STEPS: [Scope; 6] = [
        Scope::Spawn,
        Scope::Turn,
        Scope::RequiredCheck,
        Scope::Save,
        Scope::Sleep,
        Scope::Wait,
    ];
    const ACTIONS: [PressAction; 5] = [
        PressAction::Prompt,
        PressAction::Continue,
        PressAction::Steer,
        PressAction::Stop,
        PressAction::Abort,
    ];

    fn prompting() -> impl Iterator<Item = Option<Scope>> {
        PROMPTS.into_iter().map(Some).chain([None])
    }

    #[test]
    fn j48a_step_setting_wins_and_the_default_applies_otherwise() {
        let others = prompting().filter(|it| *it != Some(Scope::Editor));
        for (scope, prompting) in others.flat_map(|it| STEPS.map(|step| (step, it))) {
            for asking in [Here, Nowhere, Broken] {
                assert_eq!(
                    scope.press_meaning(prompting, None, asking),
                    PressMeaning::Decline
                );
                for action in ACTIONS {
                    let meaning = match (action.asks(), asking) {
                        (true, Nowhere) => PressMeaning::Escalate,
                        (true, Broken) => PressMeaning::CannotAsk,
                        _ => PressMeaning::Runs(action),
                    };
                    assert_eq!(
                        scope.press_meaning(prompting, Some(action), asking),
                        meaning
                    );
                }
            }
        }
    }

    #[test]
    fn j40a_j40b_j48b_absent_person_is_not_asked() {
        let run = |action, asking| Scope::Run.press_meaning(None, action, asking);
        assert_eq!(run(None, Here), PressMeaning::Runs(PressAction::Prompt));
        for asking in [Here, Nowhere, Broken] {
            for action in ACTIONS {
                let meaning = match (action.asks(), asking) {
                    (true, Nowhere) => PressMeaning::Decline,
                    (true, Broken) => PressMeaning::CannotAsk,
                    _ => PressMeaning::Runs(action),
                };
                assert_eq!(run(Some(action), asking), meaning);
            }
        }
    }

    #[test]
    fn j39a_x132a_open_prompt_leads_to_menu_then_stop() {
        for (scope, prompting) in PROMPTS
            .into_iter()
            .flat_map(|it| prompting().map(move |p| (it, p)))
        {
            for asking in [Here, Nowhere, Broken] {
                let meaning = match (scope, asking) {
                    _ if prompting != Some(scope) => PressMeaning::Decline,
                    (Scope::Menu, _) => PressMeaning::Escalate,
                    (Scope::Editor, _) => PressMeaning::Note,
                    (_, Here) => PressMeaning::Menu,
                    _ => PressMeaning::Decline,
                };
                let actions = ACTIONS.into_iter().map(Some).chain([None]);
                for action in actions {
                    assert_eq!(scope.press_meaning(prompting, action, asking), meaning);
                }
            }
        }
        for scope in STEPS.into_iter().chain([Scope::Run]) {
            let late = scope.press_meaning(Some(Scope::Editor), Some(PressAction::Stop), Here);
            assert_eq!(late, PressMeaning::Note, "the press came before the editor");
        }
    }
}
