//! How the state of a run looks.

use anstyle::Style;
use rlm_store::RunState;
use rlm_terminal::style::{BAD, DIM, GOOD, MIND};

/// Returns how the state of a run looks: what works is green, what waits for a person yellow, what broke red.
pub(crate) fn of_state(state: RunState) -> Style {
    match state {
        RunState::Running => GOOD,
        RunState::Paused => MIND,
        RunState::Crashed | RunState::Damaged => BAD,
        RunState::Stopped => Style::new(),
        _ => DIM,
    }
}

/// Returns the word for the state of a run, as its JSON has it.
pub(crate) fn state(state: RunState) -> String {
    format!("{state:?}").to_lowercase()
}
