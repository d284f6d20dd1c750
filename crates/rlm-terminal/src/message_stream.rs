//! The text of the agent's messages, as it is streamed.

use rlm_text::escape::plain;

use super::rows::{push_shown, take_rows};
use crate::style::{DIM, WARNING_STYLE, styled};

/// The maximum number of bytes of an unfinished line if rows have no width. A longer line is printed before its end has arrived.
const MAX_LINE: usize = 2000;

/// The stream of the agent's messages. Streamed text becomes rows as it comes; any other output begins a new line.
#[derive(Debug, Default)]
pub(crate) struct MessageStream {
    /// The text after the last whole row, without control characters.
    partial: String,
    /// Whether pieces of the current message were already shown.
    streamed: bool,
}

impl MessageStream {
    /// Returns the rows that a piece of a message adds to the log, each with its line end. Rows have at most `width` columns; without a width they
    /// end at the agent's line breaks.
    pub(crate) fn push_piece(&mut self, text: &str, width: Option<usize>) -> String {
        self.streamed = true;
        self.flow(text, width)
    }

    /// Returns the text that a whole message adds to the log. If its pieces were already shown, only its last line can be missing.
    pub(crate) fn message(&mut self, text: &str, is_cut: bool, width: Option<usize>) -> String {
        let mut out = match std::mem::take(&mut self.streamed) {
            true => String::new(),
            false => self.end_line() + &self.flow(text.trim_end(), width),
        };
        out.push_str(&self.end_line());
        if is_cut {
            out.push_str(&line(styled(WARNING_STYLE, "(cut off)")));
        }
        out
    }

    /// Ends the unfinished line, before other output is printed.
    pub(crate) fn end_line(&mut self) -> String {
        match std::mem::take(&mut self.partial) {
            text if text.is_empty() => text,
            text => line(text),
        }
    }

    /// Returns the unfinished row.
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

/// The maximum number of characters of a steer in its line of the log.
const MAX_ECHO: usize = 200;

/// Formats a person's steer for the log.
#[must_use]
pub fn format_steer(text: &str) -> String {
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
    fn streamed_pieces_become_rows_and_their_message_is_not_repeated() {
        let mut talk = MessageStream::default();
        let pieces = [
            "I will ",
            "look at the tests and then fix",
            " the broken one.\n\nFirst\u{1b}[2J",
        ];
        let mut out: String = pieces
            .iter()
            .map(|p| talk.push_piece(p, Some(30)))
            .collect();
        assert_eq!(talk.partial(), "First\\u{1b}[2J");
        out += &talk.message("I will …", false, Some(30));
        out += &talk.message("Said at once.\n", false, Some(30));
        out += &talk.push_piece("half a th", Some(30));
        out += &talk.message("half a th", true, Some(30));
        insta::assert_snapshot!(anstream::adapter::strip_str(&out).to_string(), @r"
        I will look at the tests and
        then fix the broken one.

        First\u{1b}[2J
        Said at once.
        half a th
        (cut off)
        ");
    }

    #[test]
    fn lines_are_unchanged_without_a_screen() {
        let mut talk = MessageStream::default();
        let long = "word ".repeat(30);
        assert_eq!(talk.push_piece(&long, None), "");
        assert_eq!(talk.push_piece("end\n", None), format!("{long}end\n"));
        assert!(
            talk.push_piece(&"x".repeat(MAX_LINE + 1), None)
                .ends_with("x\n")
        );
    }

    proptest! {
        /// Text in any pieces is shown completely and once, in rows that fit, without control characters.
        #[test]
        fn x115a_streamed_text_keeps_its_characters_and_fits_the_width(pieces in proptest::collection::vec("[a-z 日\n\u{1b}\u{7}]{0,20}", 0..20), width in 2usize..30) {
            let mut talk = MessageStream::default();
            let mut out: String = pieces.iter().map(|piece| talk.push_piece(piece, Some(width))).collect();
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
