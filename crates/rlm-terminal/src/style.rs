//! The styles of all output.

use anstyle::{AnsiColor, Style};

/// The style of the subject of a row.
pub const BOLD: Style = Style::new().bold();
/// The style of secondary text.
pub const DIM: Style = Style::new().dimmed();
/// The style of a success.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// The style of a failure.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// The style of a warning, and of text that waits for the person.
pub const WARNING_STYLE: Style = AnsiColor::Yellow.on_default();

/// Returns a text in a style.
#[must_use]
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}
