//! The scopes of a run, each nested in the one before it, and the meaning of a press of Ctrl-C in each. A scope that declines leaves
//! the press to the one around it.

use loop_state::Step;
use serde::Deserialize;

use crate::scene::Scene;

/// A part of the run, or of what prompts in it, that answers presses while it lasts. Those further down are nested deeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The whole of it.
    Run,
    /// The agent is being started.
    Spawn,
    Turn,
    /// Gates and the check.
    Gate,
    /// The steps between an iteration's work and the next iteration.
    Save,
    Sleep,
    /// A rate limit is waited for.
    Wait,
    /// A phase or a batch waits for a person's word.
    Review,
    /// The agent asks whether it may do something.
    Ask,
    /// A text that is being written.
    Draft,
    Editor,
    /// The menu that a press opened.
    Menu,
}

/// Whether a person can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    Here,
    /// There is no terminal, or it belongs to others now.
    Nowhere,
    /// There is a terminal that does not do what it should.
    Broken,
}

/// The meaning of a press in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The scope around this one decides; around the run, the press is a stop.
    Declined,
    Does(PressAction),
    /// The draft is kept, and the menu takes its place.
    Menu,
    /// Nothing but to say so: the editor has the screen. The press stays counted.
    Noted,
    /// The menu can't be shown. The press stays counted.
    Unasked,
    /// As a second press: it saves and stops.
    Escalates,
}

impl Scope {
    /// Returns the scope of the run's present step, if it has one of its own.
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

    /// Returns its name, by which `interrupt-stack` knows its handler.
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

    /// Returns the meaning of a press in this scope, while `prompting` is open and with the scope's own action.
    ///
    /// A prompt that is not on the screen leaves the press to the scope around it. From a prompt on the screen a press leads to the menu and out: an action is
    /// for where nothing prompts.
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
            // It came before the editor had the screen.
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
                // The run's action does not count here: without a person a press is a stop.
                Some(_) => Meaning::Escalates,
            },
        }
    }
}

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
            assert_eq!(late, Meaning::Noted, "it came before the editor");
        }
    }
}
