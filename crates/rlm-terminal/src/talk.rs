//! What the agent says, as text that flows.

use rlm_text::escape::plain;

use super::rows::{push_shown, take_rows};
use crate::style::{DIM, MIND, styled};

/// The longest line that is waited on where rows have no width.
const MAX_LINE: usize = 2000;

/// Text that is streamed becomes rows as it comes; anything else begins a new line.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// Text behind the last whole row, harmless for a terminal.
    partial: String,
    /// Whether the message that is being written was shown as it came.
    streamed: bool,
}

impl Talk {
    /// Returns what a piece of a message adds to the log, each line with its end. Rows have `width` columns, or end where the agent ends them.
    pub(crate) fn piece(&mut self, text: &str, width: Option<usize>) -> String {
        self.streamed = true;
        self.flow(text, width)
    }

    /// Returns what the whole message adds, which may have been shown in pieces.
    pub(crate) fn message(&mut self, text: &str, is_cut: bool, width: Option<usize>) -> String {
        let mut out = match std::mem::take(&mut self.streamed) {
            true => String::new(),
            false => self.settle() + &self.flow(text.trim_end(), width),
        };
        out.push_str(&self.settle());
        if is_cut {
            out.push_str(&line(styled(MIND, "(cut off)")));
        }
        out
    }

    /// Ends the line that is being written, before something else is printed.
    pub(crate) fn settle(&mut self) -> String {
        match std::mem::take(&mut self.partial) {
            text if text.is_empty() => text,
            text => line(text),
        }
    }

    /// Returns the row that is being written.
    pub(crate) fn partial(&self) -> &str {
        &self.partial
    }

    fn flow(&mut self, text: &str, width: Option<usize>) -> String {
        let mut out = String::new();
        for (index, piece) in text.split('\n').enumerate() {
            if index > 0 {
                out.push_str(&line(std::mem::take(&mut self.partial)));
            }
            for c in piece.chars().filter(|c| *c != '\r') {
                push_shown(&mut self.partial, c);
            }
            match width {
                Some(width) => {
                    for row in take_rows(&mut self.partial, width) {
                        out.push_str(&line(row));
                    }
                }
                None if self.partial.len() > MAX_LINE => {
                    out.push_str(&line(std::mem::take(&mut self.partial)));
                }
                None => {}
            }
        }
        out
    }
}

fn line(text: impl std::fmt::Display) -> String {
    format!("{text}\n")
}

/// How much of what was said is shown again.
const MAX_ECHO: usize = 200;

/// Returns what a user said, to show it again.
#[must_use]
pub fn said(text: &str) -> String {
    let mut lines = text.lines();
    let first = plain(lines.next().unwrap_or_default());
    let first: String = first.chars().take(MAX_ECHO).collect();
    let more = match lines.count() {
        0 => String::new(),
        n => format!(" (and {n} more lines)"),
    };
    format!("{} {first}{more}", styled(DIM, "you:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_become_rows_and_their_message_is_not_said_again() {
        let mut talk = Talk::default();
        let pieces = [
            "I will ",
            "look at the tests and then mend",
            " what is broken.\n\nFirst\u{1b}[2J",
        ];
        let mut out: String = pieces.iter().map(|p| talk.piece(p, Some(30))).collect();
        assert_eq!(talk.partial(), "First\\u{1b}[2J");
        out += &talk.message("I will …", false, Some(30));
        out += &talk.message("Said at once.\n", false, Some(30));
        out += &talk.piece("half a th", Some(30));
        out += &talk.message("half a th", true, Some(30));
        insta::assert_snapshot!(anstream::adapter::strip_str(&out).to_string(), @r"
        I will look at the tests and
        then mend what is broken.

        First\u{1b}[2J
        Said at once.
        half a th
        (cut off)
        ");
    }

    #[test]
    fn without_a_screen_lines_are_the_agents_own() {
        let mut talk = Talk::default();
        let long = "word ".repeat(30);
        assert_eq!(talk.piece(&long, None), "");
        assert_eq!(talk.piece("end\n", None), format!("{long}end\n"));
        assert!(talk.piece(&"x".repeat(MAX_LINE + 1), None).ends_with("x\n"));
    }

    proptest! {
        /// However the text is cut into pieces, all of it is shown once, in rows that fit, and nothing that a terminal would obey.
        #[test]
        fn x115a_text_flows(pieces in proptest::collection::vec("[a-z 日\n\u{1b}\u{7}]{0,20}", 0..20), width in 2usize..30) {
            let mut talk = Talk::default();
            let mut out: String = pieces.iter().map(|piece| talk.piece(piece, Some(width))).collect();
            talk.streamed = true;
            out.push_str(&talk.message("again", false, Some(width)));
            for row in out.lines() {
                prop_assert!(crate::rows::width(row) <= width);
                prop_assert!(!row.chars().any(char::is_control));
            }
            let solid = |text: &str| text.replace([' ', '\n'], "");
            let all: String = pieces.concat().chars().map(|c| if c == '\n' { String::new() } else { crate::rows::shown(c) }).collect();
            prop_assert_eq!(solid(&out), solid(&all));
        }
    }
}
