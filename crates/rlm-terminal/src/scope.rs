//! The press scopes of a run, each nested in the one before it, and the meaning of a press of Ctrl-C in each. A scope that declines a press passes it
//! to the scope around it.

use loop_state::Step;
use serde::Deserialize;

use crate::scene::Scene;

/// A part of the run, or an open prompt, that answers presses while it lasts. Later variants are nested deeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The whole run.
    Run,
    /// The agent starts.
    Spawn,
    Turn,
    /// The required checks and the check.
    Gate,
    /// The steps between an iteration's work and the next iteration.
    Save,
    Sleep,
    /// The run waits for a rate limit.
    Wait,
    /// A phase or a batch waits for a review.
    Review,
    /// A permission request of the agent is open.
    Ask,
    /// A text that is being written.
    Draft,
    Editor,
    /// The menu that a press opened.
    Menu,
}

/// Whether a person can be asked on the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    Here,
    /// There is no terminal, or it belongs to another program now.
    Nowhere,
    /// There is a terminal, but it can't be used.
    Broken,
}

/// The meaning of a press in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The scope around this one decides; a press that the run declines is a stop.
    Declined,
    Does(PressAction),
    /// The menu opens, and a draft is kept.
    Menu,
    /// A message only, because the editor has the screen. The press stays counted.
    Noted,
    /// The menu can't be shown. The press stays counted.
    Unasked,
    /// The press has the effect of a second press: it saves and stops.
    Escalates,
}

impl Scope {
    /// Returns the scope of the run's current step, if the step has a scope.
    pub(crate) fn of_step(scene: Scene<'_>) -> Option<Self> {
        Some(match scene.head.step {
            Step::Ready => Self::Spawn,
            Step::Turn { .. } if !scene.agent.alive => Self::Spawn,
            Step::Turn { .. } => Self::Turn,
            Step::Gate { .. } | Step::Check | Step::Recheck { .. } => Self::Gate,
            Step::Settling { .. } => Self::Save,
            Step::Sleeping { .. } => Self::Sleep,
            Step::Waiting { .. } => Self::Wait,
            _ => return None,
        })
    }

    /// Returns the name of the scope's handler in `interrupt-stack`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Spawn => "spawn",
            Self::Turn => "turn",
            Self::Gate => "gate",
            Self::Save => "save",
            Self::Sleep => "sleep",
            Self::Wait => "wait",
            Self::Review => "review",
            Self::Ask => "ask",
            Self::Draft => "draft",
            Self::Editor => "editor",
            Self::Menu => "menu",
        }
    }

    /// Returns the meaning of a press in this scope. `prompting` is the open prompt, and `own` is the action that is fixed for the scope.
    ///
    /// A prompt that is not on the screen declines the press. In a prompt on the screen a press opens the menu, and a press in the menu stops the
    /// run; fixed actions count only while nothing prompts.
    pub(crate) fn meets(
        self,
        prompting: Option<Self>,
        own: Option<PressAction>,
        asking: Asking,
    ) -> Meaning {
        let is_shown = prompting == Some(self);
        match self {
            Self::Menu if is_shown => Meaning::Escalates,
            Self::Editor if is_shown => Meaning::Noted,
            Self::Draft | Self::Ask | Self::Review if is_shown && asking == Asking::Here => {
                Meaning::Menu
            }
            Self::Menu | Self::Editor | Self::Draft | Self::Ask | Self::Review => Meaning::Declined,
            // The press came before the editor had the screen.
            _ if prompting == Some(Self::Editor) => Meaning::Noted,
            Self::Run => match own.unwrap_or_default() {
                action if !action.asks() || asking == Asking::Here => Meaning::Does(action),
                _ if asking == Asking::Broken => Meaning::Unasked,
                _ => Meaning::Declined,
            },
            _ => match own {
                None => Meaning::Declined,
                Some(action) if !action.asks() || asking == Asking::Here => Meaning::Does(action),
                Some(_) if asking == Asking::Broken => Meaning::Unasked,
                // The run's action doesn't count here: without a person, a press is a stop.
                Some(_) => Meaning::Escalates,
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
    /// Whether it needs a person.
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
    /// The steps between an iteration's work and the next iteration.
    pub(crate) save: Option<PressAction>,
    pub(crate) sleep: Option<PressAction>,
    /// The run waits for a rate limit.
    pub(crate) wait: Option<PressAction>,
}

impl PressActions {
    /// Returns the action that is fixed for a scope; for the run, the default action.
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

    /// Whether any action is fixed.
    pub(crate) fn is_fixed(self) -> bool {
        self != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Asking::{Broken, Here, Nowhere};

    const PROMPTS: [Scope; 5] = [
        Scope::Review,
        Scope::Ask,
        Scope::Draft,
        Scope::Editor,
        Scope::Menu,
    ];
    const STEPS: [Scope; 6] = [
        Scope::Spawn,
        Scope::Turn,
        Scope::Gate,
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
    fn j48a_a_step_does_what_is_fixed_for_it_and_leaves_the_rest_to_the_run() {
        let others = prompting().filter(|it| *it != Some(Scope::Editor));
        for (scope, prompting) in others.flat_map(|it| STEPS.map(|step| (step, it))) {
            for asking in [Here, Nowhere, Broken] {
                assert_eq!(scope.meets(prompting, None, asking), Meaning::Declined);
                for action in ACTIONS {
                    let meaning = match (action.asks(), asking) {
                        (true, Nowhere) => Meaning::Escalates,
                        (true, Broken) => Meaning::Unasked,
                        _ => Meaning::Does(action),
                    };
                    assert_eq!(scope.meets(prompting, Some(action), asking), meaning);
                }
            }
        }
    }

    #[test]
    fn j40a_j40b_j48b_the_run_answers_all_that_it_can_and_asks_nobody_who_is_not_there() {
        let run = |action, asking| Scope::Run.meets(None, action, asking);
        assert_eq!(run(None, Here), Meaning::Does(PressAction::Prompt));
        for asking in [Here, Nowhere, Broken] {
            for action in ACTIONS {
                let meaning = match (action.asks(), asking) {
                    (true, Nowhere) => Meaning::Declined,
                    (true, Broken) => Meaning::Unasked,
                    _ => Meaning::Does(action),
                };
                assert_eq!(run(Some(action), asking), meaning);
            }
        }
    }

    #[test]
    fn j39a_x132a_what_prompts_leads_to_the_menu_and_out_and_is_passed_where_it_is_not_seen() {
        for (scope, prompting) in PROMPTS
            .into_iter()
            .flat_map(|it| prompting().map(move |p| (it, p)))
        {
            for asking in [Here, Nowhere, Broken] {
                let meaning = match (scope, asking) {
                    _ if prompting != Some(scope) => Meaning::Declined,
                    (Scope::Menu, _) => Meaning::Escalates,
                    (Scope::Editor, _) => Meaning::Noted,
                    (_, Here) => Meaning::Menu,
                    _ => Meaning::Declined,
                };
                let actions = ACTIONS.into_iter().map(Some).chain([None]);
                for action in actions {
                    assert_eq!(scope.meets(prompting, action, asking), meaning);
                }
            }
        }
        for scope in STEPS.into_iter().chain([Scope::Run]) {
            let late = scope.meets(Some(Scope::Editor), Some(PressAction::Stop), Here);
            assert_eq!(late, Meaning::Noted, "the press came before the editor");
        }
    }
}
