//! The styles of everything that is shown.

use anstyle::{AnsiColor, Style};

/// What a row is about.
pub const BOLD: Style = Style::new().bold();
/// What is beside the point.
pub const DIM: Style = Style::new().dimmed();
/// What works.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What failed.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// What waits for the user, or warns.
pub const MIND: Style = AnsiColor::Yellow.on_default();

/// Returns a text in a style.
#[must_use]
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}
