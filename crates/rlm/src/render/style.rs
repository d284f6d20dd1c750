//! What things look like, once for all that is shown.

use anstyle::{AnsiColor, Style};
use loop_runner::RunState;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const MIND: Style = AnsiColor::Yellow.on_default();

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

pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}
