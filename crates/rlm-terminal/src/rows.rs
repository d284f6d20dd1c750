//! Rows of text at the bottom of the screen, with widths in columns.

use rlm_text::escape::push_plain;
use unicode_width::UnicodeWidthChar;

/// The maximum number of bytes of a row. Columns alone don't limit a row, because some characters take no column.
const MAX_ROW_BYTES: usize = 4096;

/// Rows that fit the screen, and the position of the cursor in them: row and column, from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<String>,
    pub(crate) cursor: Option<(usize, usize)>,
    /// Whether the last row is empty for the terminal's echo of typed keys.
    pub(crate) echo: bool,
}

impl Rows {
    /// Returns one row per line, each cut to `width` columns.
    pub(crate) fn cut<'a>(lines: impl IntoIterator<Item = &'a str>, width: usize) -> Self {
        Self {
            rows: lines.into_iter().map(|line| cut(line, width)).collect(),
            ..Self::default()
        }
    }

    /// Keeps at most `height` rows: the rows around the cursor, or the first rows if there is no cursor.
    pub(crate) fn within(mut self, height: usize) -> Self {
        let height = height.max(1);
        if self.rows.len() > height {
            let row = self.cursor.map_or(0, |(row, _)| row);
            let first = (row + 1).saturating_sub(height);
            self.rows.drain(..first);
            self.rows.truncate(height);
            self.cursor = self.cursor.map(|(row, column)| (row - first, column));
        }
        self
    }
}

/// Returns the text that shows a character that a person typed. Joiners and variation selectors stay, because emoji need them.
pub(crate) fn shown(c: char) -> String {
    match c {
        '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => c.into(),
        c => {
            let mut out = String::new();
            push_shown(&mut out, c);
            out
        }
    }
}

/// Appends the text that shows a character from the agent.
pub(crate) fn push_shown(out: &mut String, c: char) {
    match c {
        '\t' => out.push_str("  "),
        c => push_plain(out, c),
    }
}

/// Returns the maximum number of columns that a character takes. Terminals disagree about emoji: a count that is too high wastes a column, a count
/// that is too low breaks the row.
pub(crate) fn columns(c: char) -> usize {
    match c {
        ' '..='~' | '\u{fe0f}' => 1,
        c => c.width().unwrap_or(0),
    }
}

/// Returns the maximum number of columns that a text without control characters takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Cuts a text without control characters to `to` columns. A cut text ends with `…`.
pub(crate) fn cut(text: &str, to: usize) -> String {
    if width(text) <= to {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = columns(c);
        if used + wide > to.saturating_sub(1) {
            break;
        }
        used += wide;
        short.push(c);
    }
    if to > 0 {
        short.push('…');
    }
    short
}

/// Removes whole rows of at most `width` columns from the front of `text`, and leaves the text that is not yet a whole row. Rows are broken between
/// words if possible. `text` must have no line breaks.
pub(crate) fn take_rows(text: &mut String, width: usize) -> Vec<String> {
    let width = width.max(2);
    let mut rows = Vec::new();
    let (mut start, mut used) = (0, 0);
    // The position of the last space in the row, and the columns up to and including it.
    let mut space = None;
    for (at, c) in text.char_indices() {
        let wide = columns(c);
        while used + wide > width || at - start >= MAX_ROW_BYTES {
            let (end, next, before) = match space.take() {
                _ if c == ' ' => (at, at + 1, used),
                Some((space, before)) if space > start => (space, space + 1, before),
                _ => (at, at, used),
            };
            rows.push(text[start..end].trim_end().to_owned());
            (start, used) = (next, used - before);
            if c == ' ' {
                break;
            }
        }
        if at >= start {
            used += wide;
            if c == ' ' {
                space = Some((at, used));
            }
        }
    }
    text.drain(..start);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn text_and_rows_beyond_the_limit_are_dropped() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
        let rows = Rows {
            rows: ["a", "b", "c", "d"].map(String::from).to_vec(),
            cursor: Some((2, 1)),
            echo: false,
        };
        let seen = rows.within(2);
        assert_eq!(
            (seen.rows.concat(), seen.cursor),
            ("bc".into(), Some((1, 1)))
        );
    }

    #[test]
    fn rows_end_between_words_and_are_limited() {
        let take = |text: &str, width| {
            let mut rest = text.to_owned();
            let mut rows = take_rows(&mut rest, width);
            rows.push(rest);
            rows.join("|")
        };
        assert_eq!(take("one two three", 7), "one two|three");
        assert_eq!(take("one two three", 8), "one two|three");
        assert_eq!(take("onetwothree", 4), "onet|woth|ree");
        assert_eq!(take("a 日本語", 4), "a|日本|語");
        let mut thin = "\u{301}".repeat(100_000);
        let rows = take_rows(&mut thin, 80);
        assert!(rows.len() > 40 && thin.len() <= MAX_ROW_BYTES);
    }

    proptest! {
        #[test]
        fn rows_fit_and_nothing_but_space_is_lost(text in "[a-z 日é]{0,80}", width in 2usize..30) {
            let mut rest = text.clone();
            let rows = take_rows(&mut rest, width);
            for row in rows.iter().chain([&rest]) {
                prop_assert!(row.width() <= width, "{rows:?} {rest:?}");
            }
            let solid = |text: &str| text.replace(' ', "");
            prop_assert_eq!(solid(&(rows.concat() + &rest)), solid(&text));
        }

        /// No terminal that follows the Unicode tables takes more columns than `width` returns.
        #[test]
        fn columns_are_counted_in_full(text in "(\\PC|[\u{fe0f}\u{200d}\u{20e3}\u{1f1e6}-\u{1f1ff}\u{1f3fb}-\u{1f3ff}\u{1f466}-\u{1f469}❤☎1#]){0,12}") {
            prop_assert!(text.width() <= width(&text), "{text:?}");
        }

        #[test]
        fn shortened_text_fits(text in "[^\\p{Cc}]{0,40}", to in 0usize..30) {
            prop_assert!(cut(&text, to).width() <= to);
        }
    }
}
