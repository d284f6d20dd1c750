//! The line editor of `steer>`: text, cursor, history.

use std::collections::VecDeque;

use unicode_width::UnicodeWidthChar;

use super::keys::{Key, MAX_PASTE};
use super::rows::{Rows, shown};

const MAX_HISTORY: usize = 100;
const MAX_HISTORY_BYTES: usize = 1 << 20;

/// The earlier messages, newest first.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<String>);

impl History {
    pub(crate) fn add(&mut self, text: &str) {
        self.0.retain(|old| old != text);
        self.0.push_front(text.to_owned());
        let mut bytes = 0;
        let fits = self.0.iter().take(MAX_HISTORY).take_while(|text| {
            bytes += text.len();
            bytes <= MAX_HISTORY_BYTES
        });
        let fits = fits.count();
        self.0.truncate(fits);
    }
}

/// The effect of a key on the line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineEdit {
    /// The key edited the line, or has no meaning here.
    Edited,
    /// The person sends this text.
    Sent(String),
    /// The person sends nothing.
    Cancelled,
    /// The line refused the input, for this reason.
    Refused(String),
}

/// A text that is being written. Enter sends a text of one line; an empty line sends a text of several lines.
#[derive(Debug, Default)]
pub(crate) struct Line {
    text: String,
    /// A byte position in `text`, between characters.
    cursor: usize,
    /// The index of the recalled message in the history, and the text before the recall.
    recalled: Option<(usize, String)>,
}

impl Line {
    pub(crate) fn new(text: String) -> Self {
        let mut line = Self::default();
        line.insert(&text);
        line
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn key(&mut self, key: Key, history: &History) -> LineEdit {
        match key {
            Key::Char(c) => return self.take(c.encode_utf8(&mut [0; 4])),
            Key::Paste(text) => return self.take(&text),
            Key::PasteTooLong(bytes) => {
                return LineEdit::Refused(format!(
                    "a paste of {bytes} bytes is too long; the limit is {MAX_PASTE} bytes"
                ));
            }
            Key::NewLine => return self.take("\n"),
            Key::Enter => return self.enter(),
            Key::Esc => return LineEdit::Cancelled,
            Key::EndOfFile if self.text.is_empty() => return LineEdit::Cancelled,
            Key::EndOfFile | Key::Delete => {
                let next = self.next(self.cursor);
                self.text.drain(self.cursor..next);
            }
            Key::Backspace => self.erase_from(self.previous(self.cursor)),
            Key::EraseWord => self.erase_from(self.word_left()),
            Key::EraseToStart => self.erase_from(self.line_start()),
            Key::EraseToEnd => {
                let end = self.line_end();
                self.text.drain(self.cursor..end);
            }
            Key::Left => self.cursor = self.previous(self.cursor),
            Key::Right => self.cursor = self.next(self.cursor),
            Key::WordLeft => self.cursor = self.word_left(),
            Key::WordRight => self.cursor = self.word_right(),
            Key::Home => self.cursor = self.line_start(),
            Key::End => self.cursor = self.line_end(),
            Key::Up => self.recall(1, history),
            Key::Down => self.recall(-1, history),
            Key::Press | Key::Suspend => {}
        }
        LineEdit::Edited
    }

    fn take(&mut self, text: &str) -> LineEdit {
        if self.text.len() + text.len() > MAX_PASTE {
            return LineEdit::Refused(format!("too long; the limit is {MAX_PASTE} bytes"));
        }
        self.insert(text);
        LineEdit::Edited
    }

    fn insert(&mut self, text: &str) {
        // Drop control characters: a terminal would obey them, and a message needs none.
        let text: String = text
            .chars()
            .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
            .collect();
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    fn enter(&mut self) -> LineEdit {
        let text = self.text.trim();
        if text.is_empty() {
            return LineEdit::Cancelled;
        }
        let before = &self.text[..self.cursor];
        let on_empty_line = before.ends_with('\n') && self.cursor == self.text.len();
        if !self.text.contains('\n') || on_empty_line {
            return LineEdit::Sent(text.to_owned());
        }
        self.take("\n")
    }

    fn erase_from(&mut self, start: usize) {
        self.text.drain(start..self.cursor);
        self.cursor = start;
    }

    /// Returns the position after the character at `from` and its combining characters.
    fn next(&self, from: usize) -> usize {
        let mut rest = self.text[from..].char_indices().skip(1);
        rest.find(|(_, c)| *c == '\n' || c.width() != Some(0))
            .map_or(self.text.len(), |(at, _)| from + at)
    }

    fn previous(&self, from: usize) -> usize {
        let mut before = self.text[..from].char_indices().rev();
        before
            .find(|(_, c)| *c == '\n' || c.width() != Some(0))
            .map_or(0, |(at, _)| at)
    }

    fn word_left(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before
            .rfind(char::is_whitespace)
            .map_or(0, |at| self.next(at))
    }

    fn word_right(&self) -> usize {
        let rest = &self.text[self.cursor..];
        let word = rest.find(|c: char| !c.is_whitespace()).unwrap_or(0);
        let end = rest[word..].find(char::is_whitespace);
        end.map_or(self.text.len(), |end| self.cursor + word + end)
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let rest = &self.text[self.cursor..];
        rest.find('\n')
            .map_or(self.text.len(), |at| self.cursor + at)
    }

    fn recall(&mut self, step: isize, history: &History) {
        let at = self.recalled.as_ref().map_or(-1, |(at, _)| *at as isize) + step;
        if at == -1 {
            if let Some((_, text)) = self.recalled.take() {
                self.replace(text);
            }
        } else if let Ok(index) = usize::try_from(at)
            && let Some(old) = history.0.get(index)
        {
            let original = self.recalled.take().map(|(_, text)| text);
            let original = original.unwrap_or_else(|| self.text.clone());
            self.recalled = Some((index, original));
            self.replace(old.clone());
        }
    }

    fn replace(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    /// Lays the line out after a prompt, in rows of at most `width` columns, with the cursor.
    pub(crate) fn rows(&self, prompt: &str, width: usize) -> Rows {
        let indent = prompt.len().min(width.saturating_sub(2));
        let mut rows = Rows::default();
        let mut row = prompt[..indent].to_owned();
        let mut column = indent;
        for (at, c) in self.text.char_indices() {
            if at == self.cursor {
                rows.cursor = Some((rows.rows.len(), column));
            }
            let piece = if c == '\n' { String::new() } else { shown(c) };
            let wide = super::rows::width(&piece);
            if c == '\n' || column + wide > width {
                rows.rows.push(std::mem::take(&mut row));
                let mark = if c == '\n' { "> " } else { "  " };
                row = format!("{mark:>indent$}");
                column = indent;
                if at == self.cursor && c != '\n' {
                    rows.cursor = Some((rows.rows.len(), column));
                }
            }
            row.push_str(&piece);
            column += wide;
        }
        if self.cursor == self.text.len() {
            // A full row leaves no column for the cursor.
            if column >= width {
                rows.rows.push(std::mem::take(&mut row));
                row = " ".repeat(indent);
                column = indent;
            }
            rows.cursor = Some((rows.rows.len(), column));
        }
        rows.rows.push(row);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn typed(line: &mut Line, keys: &str) -> LineEdit {
        let mut last = LineEdit::Edited;
        for c in keys.chars() {
            let key = match c {
                '⏎' => Key::Enter,
                '⌫' => Key::Backspace,
                '←' => Key::Left,
                '↑' => Key::Up,
                '↓' => Key::Down,
                '⎋' => Key::Esc,
                c => Key::Char(c),
            };
            let mut history = History::default();
            history.add("older");
            history.add("newer");
            last = line.key(key, &history);
        }
        last
    }

    fn say(keys: &str) -> LineEdit {
        typed(&mut Line::default(), keys)
    }

    #[test]
    fn s11a_enter_sends_one_line_and_an_empty_line_sends_several() {
        assert_eq!(say("fix it⏎"), LineEdit::Sent("fix it".into()));
        let mut line = Line::default();
        line.key(Key::Paste("one\ntwo".into()), &History::default());
        assert_eq!(typed(&mut line, "⏎"), LineEdit::Edited);
        assert_eq!(typed(&mut line, "three⏎"), LineEdit::Edited);
        assert_eq!(
            typed(&mut line, "⏎"),
            LineEdit::Sent("one\ntwo\nthree".into())
        );
    }

    #[test]
    fn empty_text_and_esc_send_nothing() {
        assert_eq!(say("⏎"), LineEdit::Cancelled);
        assert_eq!(say("  ⏎"), LineEdit::Cancelled);
        assert_eq!(say("text⎋"), LineEdit::Cancelled);
    }

    #[test]
    fn line_can_be_edited_and_recalled() {
        assert_eq!(say("abd←c⏎"), LineEdit::Sent("abcd".into()));
        assert_eq!(say("ae\u{301}⌫⏎"), LineEdit::Sent("a".into()));
        assert_eq!(say("x↑⏎"), LineEdit::Sent("newer".into()));
        assert_eq!(say("x↑↑↑⏎"), LineEdit::Sent("older".into()));
        assert_eq!(say("x↑↑↓↓⏎"), LineEdit::Sent("x".into()));
        let mut line = Line::new("one two".into());
        line.key(Key::EraseWord, &History::default());
        assert_eq!(line.text(), "one ");
    }

    #[test]
    fn x115a_pasted_control_characters_are_dropped() {
        assert_eq!(
            Line::new("a\u{1b}[2J\u{7}b\tc\n".into()).text(),
            "a[2Jb\tc\n"
        );
    }

    #[test]
    fn line_length_is_limited() {
        let mut line = Line::default();
        let full = Key::Paste("x".repeat(MAX_PASTE));
        assert_eq!(line.key(full, &History::default()), LineEdit::Edited);
        assert!(matches!(typed(&mut line, "y"), LineEdit::Refused(_)));
        assert_eq!(line.text().len(), MAX_PASTE);
    }

    #[test]
    fn history_is_limited() {
        let mut history = History::default();
        for n in 0..200 {
            history.add(&n.to_string());
        }
        assert_eq!(history.0.len(), MAX_HISTORY);
        for n in 0..6 {
            history.add(&format!("{n}{}", "x".repeat(MAX_PASTE - 1)));
        }
        assert_eq!(history.0.len(), MAX_HISTORY_BYTES / MAX_PASTE);
    }

    #[test]
    fn rows_wrap_with_wide_characters() {
        let mut line = Line::new("日本語 text\nnext".into());
        let draw = |line: &Line| {
            let rows = line.rows("steer> ", 14);
            format!("{}\n{:?}", rows.rows.join("\n"), rows.cursor)
        };
        insta::assert_snapshot!(draw(&line), @"
        steer> 日本語 
               text
             > next
        Some((2, 11))
        ");
        typed(&mut line, "←←");
        insta::assert_snapshot!(draw(&line), @"
        steer> 日本語 
               text
             > next
        Some((2, 9))
        ");
    }

    proptest! {
        /// Any keys at any width: no panic, and the cursor is in one of the rows. From four columns on, the rows fit.
        #[test]
        fn rows_fit(keys in "[a-z 日é\u{301}\t⏎⌫←↑↓]{0,60}", width in 1usize..40) {
            let mut line = Line::default();
            typed(&mut line, &keys);
            let rows = line.rows("steer> ", width);
            let (row, column) = rows.cursor.unwrap();
            prop_assert!(row < rows.rows.len() && column <= width);
            if width >= 4 {
                for row in &rows.rows {
                    prop_assert!(super::super::rows::width(row) <= width, "{rows:?}");
                }
            }
        }
    }
}
