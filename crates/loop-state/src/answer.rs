//! The answer of an agent in a turn: its last text, which may contain a promise, and its result for the next phase.

use std::borrow::Cow;

use crate::text::{MAX_TEXT, last_bytes};

/// The maximum number of stored bytes of the last output line, which may contain the promise.
const MAX_LINE: usize = 4096;

/// The answer of the agent in the current turn so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    /// The last text; empty if something else came later, such as a tool call.
    last: String,
    /// The last message; for an agent whose output isn't parsed, the end of its output.
    result: String,
}

impl Answer {
    /// Adds a line of output of an agent whose output isn't parsed. Only the end of a long line is kept.
    pub(crate) fn line(&mut self, bytes: &[u8]) {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let end = &bytes[bytes.len().saturating_sub(MAX_TEXT)..];
        // Nearly all lines are valid, and the check is much faster than a lossy conversion.
        let end =
            std::str::from_utf8(end).map_or_else(|_| String::from_utf8_lossy(end), Cow::Borrowed);
        self.last.clear();
        self.last.push_str(last_bytes(&end, MAX_LINE));
        self.result.push_str(last_bytes(&end, MAX_TEXT));
        if !self.result.ends_with('\n') {
            self.result.push('\n');
        }
        if self.result.len() > 4 * MAX_TEXT {
            self.result = last_bytes(&self.result, MAX_TEXT).to_owned();
        }
    }

    /// Adds a message of the agent. A partial message, which another one continues, doesn't end a turn.
    pub(crate) fn message(&mut self, text: String, partial: bool) {
        if partial {
            self.last.clear();
            return;
        }
        if !text.trim().is_empty() {
            self.result.clone_from(&text);
        }
        self.last = text;
    }

    /// Records a tool call: a text before it is not the end of the turn.
    pub(crate) fn tool(&mut self) {
        self.last.clear();
    }

    /// Returns whether the answer ends with the promise.
    pub(crate) fn makes_promise(&self, promise: &str) -> bool {
        is_made(&self.last, promise)
    }

    /// Returns the result and clears it; `None` if it is empty.
    pub(crate) fn take_result(&mut self) -> Option<String> {
        let result = std::mem::take(&mut self.result);
        (!result.trim().is_empty()).then(|| last_bytes(&result, MAX_TEXT).to_owned())
    }
}

/// Returns whether the last line of `text` makes the promise: the line is the promise, bare or in its tag, or it ends with the tagged promise.
///
/// Only the end of a text counts: a promise that the agent quotes, plans or reads in a file doesn't count.
fn is_made(text: &str, promise: &str) -> bool {
    let promise = promise.trim();
    let Some(last) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else {
        return false;
    };
    if last == promise {
        return true;
    }
    let tagged = last
        .strip_suffix("</promise>")
        .and_then(|rest| rest.rsplit_once("<promise>"));
    tagged.is_some_and(|(_, tagged_text)| tagged_text.trim() == promise)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn x106d_completion_promise_is_at_the_end() {
        for text in [
            "DONE",
            "all tests pass\n\n  DONE  \n",
            "<promise>DONE</promise>",
            "All is well. <promise> DONE </promise>\n\n",
        ] {
            assert!(is_made(text, "DONE"), "{text:?}");
        }
    }

    #[test]
    fn x106c_text_in_the_middle_is_no_completion_promise() {
        for text in [
            "",
            "I will say <promise>DONE</promise> when all tests pass",
            "<promise>DONE</promise>\nwas what I was told to say, but a test fails",
            "DONE is not what I am",
            "almost DONE",
            "<promise>NOT DONE</promise>",
            "> DONE",
        ] {
            assert!(!is_made(text, "DONE"), "{text:?}");
        }
    }

    /// A piece of an answer.
    #[derive(Clone, Debug)]
    enum Piece {
        Line(&'static str),
        Message(&'static str),
        Partial(&'static str),
        Tool,
    }

    fn answer(pieces: &[Piece]) -> Answer {
        let mut answer = Answer::default();
        for piece in pieces {
            match piece {
                Piece::Line(line) => answer.line(line.as_bytes()),
                Piece::Message(text) => answer.message((*text).into(), false),
                Piece::Partial(text) => answer.message((*text).into(), true),
                Piece::Tool => answer.tool(),
            }
        }
        answer
    }

    #[test]
    fn last_text_is_the_text_before_the_end() {
        use Piece::{Line, Message, Partial, Tool};
        for (pieces, claims, result) in [
            (vec![], false, None),
            (vec![Line("DONE")], true, Some("DONE\n")),
            (vec![Line("DONE"), Line("  ")], true, Some("DONE\n")),
            (vec![Line("DONE"), Line("no")], false, Some("DONE\nno\n")),
            (vec![Message("DONE")], true, Some("DONE")),
            (vec![Message("DONE"), Tool], false, Some("DONE")),
            (vec![Message("DONE"), Message(" ")], false, Some("DONE")),
            (vec![Message("a"), Partial("DONE")], false, Some("a")),
            (vec![Partial("a"), Message("DONE")], true, Some("DONE")),
            (vec![Tool, Message("DONE")], true, Some("DONE")),
        ] {
            let mut answer = answer(&pieces);
            assert_eq!(answer.makes_promise("DONE"), claims, "{pieces:?}");
            assert_eq!(answer.take_result().as_deref(), result, "{pieces:?}");
            assert_eq!(answer.take_result(), None, "{pieces:?}");
        }
    }

    proptest! {
        #[test]
        fn agent_text_is_shortened_and_keeps_its_end(lines in prop::collection::vec(("[ab\u{e4}]", 0..9000_usize), 0..12)) {
            let mut answer = Answer::default();
            let lines: Vec<_> = lines.iter().map(|(text, count)| text.repeat(*count)).collect();
            for line in &lines {
                answer.line(line.as_bytes());
                prop_assert!(answer.result.len() <= 5 * MAX_TEXT + 4 && answer.last.len() <= 3 * MAX_LINE);
            }
            let last = lines.iter().rfind(|line| !line.is_empty());
            let result = answer.take_result();
            prop_assert_eq!(result.is_some(), last.is_some());
            if let (Some(result), Some(last)) = (result, last) {
                prop_assert!(result.len() <= MAX_TEXT);
                let kept = last_bytes(last, MAX_TEXT - 1);
                prop_assert!(result.trim_end().ends_with(last_bytes(kept, 100)));
            }
        }
    }
}
