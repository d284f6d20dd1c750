//! The text of the agent's messages, as it is streamed, and the lines of the loop that wait until they split no sentence.

use rlm_text::escape::plain;

use super::rows::{push_shown, take_rows};
use crate::style::{DIM, WARNING_STYLE, styled};

/// The maximum number of bytes of an unfinished line if rows have no width. A longer line is printed before its end has arrived.
const MAX_LINE: usize = 2000;
/// The characters that end a sentence if a space follows.
const SENTENCE_ENDS: [char; 7] = ['.', '!', '?', '…', '。', '！', '？'];
/// The maximum number of lines that wait for the end of a sentence.
const MAX_WAITING: usize = 8;
/// The number of ticks, which come every second, after which a line no longer waits.
const WAITING_TICKS: u32 = 2;

/// The stream of the agent's messages. Streamed text becomes rows as it comes; other output begins a new line.
///
/// A line of the loop that is not urgent does not split a sentence: see [`insert`](Self::insert).
#[derive(Debug, Default)]
pub(crate) struct MessageStream {
    /// The text after the last whole row, without control characters.
    partial: String,
    /// Whether pieces of the current message were already shown.
    streamed: bool,
    /// Whether the log has rows of the unfinished sentence, so that a line in the log would split it.
    is_split: bool,
    /// The lines that wait for the end of the sentence, each with its line end.
    waiting: String,
    /// The number of ticks since the first of them came.
    ticks: u32,
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

    /// Ends the unfinished line, before other output is printed. Returns its text, and then the waiting lines.
    pub(crate) fn end_line(&mut self) -> String {
        let text = match std::mem::take(&mut self.partial) {
            text if text.is_empty() => text,
            text => line(text),
        };
        self.is_split = false;
        text + &self.release()
    }

    /// Takes lines that must not split a sentence, each with its line end. Returns the lines that the log gets now.
    ///
    /// The unfinished row is not in the log yet, so lines go above the last sentence that is completely in this row. If the log has earlier rows of
    /// that sentence, the lines wait: until the sentence or the agent's line ends, for 1 to 2 s (see [`tick`](Self::tick)), or until too many lines
    /// wait.
    pub(crate) fn insert(&mut self, lines: &str) -> String {
        if !self.is_split {
            return lines.to_owned();
        }
        if let Some(end) = last_sentence_end(&self.partial) {
            // Lines that wait from before would have been released at this end.
            let row = line(&self.partial[..end]);
            self.partial.drain(..end + 1);
            self.is_split = false;
            return row + lines;
        }
        self.waiting.push_str(lines);
        match self.waiting.lines().count() > MAX_WAITING {
            true => self.release(),
            false => String::new(),
        }
    }

    /// Whether the log has rows of an unfinished sentence.
    pub(crate) fn is_split(&self) -> bool {
        self.is_split
    }

    /// Counts the time that lines wait. Returns them when they have waited long enough.
    pub(crate) fn tick(&mut self) -> String {
        self.ticks += u32::from(!self.waiting.is_empty());
        match self.ticks >= WAITING_TICKS {
            true => self.release(),
            false => String::new(),
        }
    }

    /// Takes the waiting lines.
    pub(crate) fn release(&mut self) -> String {
        self.ticks = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Returns the unfinished row.
    pub(crate) fn partial(&self) -> &str {
        &self.partial
    }

    fn flow(&mut self, text: &str, width: Option<usize>) -> String {
        let mut out = String::new();
        for c in text.chars() {
            match c {
                '\r' => {}
                '\n' => {
                    self.take_rows(width, &mut out);
                    self.end_row(&mut out);
                }
                // A new row begins with the next sentence, so that the waiting lines come between two sentences.
                ' ' if !self.waiting.is_empty() && self.partial.ends_with(SENTENCE_ENDS) => {
                    self.take_rows(width, &mut out);
                    self.end_row(&mut out);
                }
                c => push_shown(&mut self.partial, c),
            }
        }
        self.take_rows(width, &mut out);
        out
    }

    /// Moves whole rows from the partial text to `out`.
    fn take_rows(&mut self, width: Option<usize>, out: &mut String) {
        match width {
            Some(width) => {
                for row in take_rows(&mut self.partial, width) {
                    out.push_str(&line(row));
                    self.is_split = true;
                }
            }
            None if self.partial.len() > MAX_LINE => {
                out.push_str(&line(std::mem::take(&mut self.partial)));
            }
            None => {}
        }
    }

    /// Moves the partial text to `out` as a row, and then the waiting lines.
    fn end_row(&mut self, out: &mut String) {
        out.push_str(&line(std::mem::take(&mut self.partial)));
        self.is_split = false;
        out.push_str(&self.release());
    }
}

/// Returns the position of the last space that follows a sentence.
fn last_sentence_end(text: &str) -> Option<usize> {
    let mut spaces = text.rmatch_indices(' ').map(|(at, _)| at);
    spaces.find(|at| text[..*at].ends_with(SENTENCE_ENDS))
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

    fn rows(talk: &mut MessageStream, text: &str) -> String {
        talk.push_piece(text, Some(20))
    }

    #[test]
    fn inserted_line_goes_above_the_unfinished_row_or_waits_for_the_sentence() {
        let mut talk = MessageStream::default();
        assert_eq!(talk.insert("one\n"), "one\n", "no sentence has begun");
        assert_eq!(rows(&mut talk, "I look at "), "");
        // The whole sentence is in the unfinished row, below the log.
        assert_eq!(talk.insert("two\n"), "two\n");
        assert_eq!(rows(&mut talk, "the tests of the"), "I look at the tests\n");
        assert_eq!(talk.insert("three\n") + &talk.insert("four\n"), "");
        assert_eq!(
            rows(&mut talk, " parser. Then"),
            "of the parser.\nthree\nfour\n"
        );
        assert_eq!(talk.partial(), "Then");
        assert_eq!(
            rows(&mut talk, " I fix it and the docs"),
            "Then I fix it and\n"
        );
        assert_eq!(talk.insert("five\n"), "");
        assert_eq!(rows(&mut talk, "\nNext"), "the docs\nfive\n");
        assert_eq!(rows(&mut talk, " comes more. And"), "");
        assert_eq!(rows(&mut talk, " so on. Now"), "Next comes more. And\n");
        assert_eq!(talk.insert("again\n"), "so on.\nagain\n");
        assert_eq!(
            rows(&mut talk, " comes the last part."),
            "Now comes the last\n"
        );
        assert_eq!(talk.insert("six\n"), "");
        assert_eq!(talk.message("", false, Some(20)), "part.\nsix\n");
        assert_eq!(talk.insert("seven\n"), "seven\n");
    }

    #[test]
    fn inserted_line_waits_for_at_most_two_ticks_and_a_few_lines() {
        let mut talk = MessageStream::default();
        let begin = |talk: &mut MessageStream| rows(talk, "a sentence that never ends and");
        begin(&mut talk);
        assert_eq!(talk.tick() + &talk.insert("one\n") + &talk.tick(), "");
        assert_eq!(talk.tick(), "one\n");
        assert_eq!(talk.insert("two\n") + &talk.tick(), "");
        assert_eq!(talk.tick(), "two\n");
        let some = "x\n".repeat(MAX_WAITING);
        assert_eq!(talk.insert(&some), "");
        assert_eq!(talk.insert("last\n"), some + "last\n");
        assert_eq!(talk.insert("three\n"), "");
        assert_eq!(
            talk.end_line(),
            "never ends and\nthree\n",
            "urgent output follows"
        );
        // Without rows on a screen the unfinished line is not in the log.
        talk.push_piece("half a", None);
        assert_eq!(talk.insert("four\n"), "four\n");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Piece(String),
        Insert,
        Tick,
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => "([a-z]{1,7} ){1,4}".prop_map(Step::Piece),
            2 => "[a-z]{1,7}\\. ".prop_map(Step::Piece),
            1 => "[a-z]{1,7}\\.\n".prop_map(Step::Piece),
            3 => Just(Step::Insert),
            1 => Just(Step::Tick),
            1 => Just(Step::End),
        ]
    }

    proptest! {
        /// Inserted lines keep their order, none is lost, none waits for more than two ticks, and none stands between two rows of a sentence unless
        /// it has waited long enough. The agent's text stays complete.
        #[test]
        fn inserted_lines_keep_their_order_and_split_no_sentence(steps in proptest::collection::vec(step(), 0..60), width in 8usize..40) {
            let mut talk = MessageStream::default();
            let (mut log, mut all, mut inserted, mut last) = (String::new(), String::new(), 0, String::new());
            for step in steps {
                let count = |log: &str| log.lines().filter(|row| row.starts_with('#')).count();
                let waiting = inserted - count(&log);
                let is_end = matches!(step, Step::End);
                let (out, is_forced) = match step {
                    Step::Piece(text) => {
                        all.push_str(&text);
                        (talk.push_piece(&text, Some(width)), false)
                    }
                    Step::Insert => {
                        inserted += 1;
                        (talk.insert(&format!("#{inserted}\n")), waiting >= MAX_WAITING)
                    }
                    Step::Tick => (talk.tick(), true),
                    Step::End => (talk.end_line(), true),
                };
                for row in out.lines() {
                    let is_own = row.starts_with('#');
                    prop_assert!(!is_own || is_forced || last.is_empty() || last.ends_with('.'), "{row} after {last:?}");
                    last = if is_own { last } else { row.to_owned() };
                }
                // Urgent output follows, which ends the sentence.
                last = if is_end { String::new() } else { last };
                log.push_str(&out);
                prop_assert!(inserted - count(&log) <= MAX_WAITING);
            }
            log.push_str(&talk.end_line());
            let (own, rows): (Vec<&str>, Vec<&str>) = log.lines().partition(|row| row.starts_with('#'));
            let expected: Vec<String> = (1..=inserted).map(|it| format!("#{it}")).collect();
            prop_assert_eq!(own, expected);
            let solid = |text: &str| text.replace([' ', '\n'], "");
            prop_assert_eq!(solid(&rows.concat()), solid(&all));
        }

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
