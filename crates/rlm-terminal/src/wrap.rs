//! Wraps lines of the log into rows that fit the screen, between words.

use rlm_text::escape::sgr_len;

use super::rows::columns;

/// The largest indent of the rows after the first.
const MAX_INDENT: usize = 8;
/// The least number of columns beside the indent.
const LEAST: usize = 16;
/// The distance of tab stops.
const TAB: usize = 8;
/// The maximum number of bytes of the style sequences that are in effect together. No real style needs more.
const MAX_STYLE: usize = 128;
const RESET: &str = "\u{1b}[0m";

/// Wraps a line into at most `most` rows of at most `width` columns. A cut text ends with `…`. The line's only escape sequences are colours.
///
/// A word that is longer than a row stays whole, so that a person can copy it; the terminal wraps it.
pub(crate) fn wrap(line: &str, width: usize, most: usize) -> String {
    wrap_below(line, width, most, indent(line))
}

/// Wraps a line as [`wrap`] does, and indents the rows after the first by `indent` columns if there is room.
pub(crate) fn wrap_below(line: &str, width: usize, most: usize, indent: usize) -> String {
    // No character takes more columns than bytes.
    if line.len() <= width && !line.contains('\t') {
        return line.to_owned();
    }
    let indent = if indent + LEAST <= width { indent } else { 0 };
    let mut rows = Wrap::new(line, width.max(1), indent);
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some(len) = sgr_len(rest) {
            rows.style(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        let (c, times) = match c {
            '\t' => (' ', TAB - rows.used % TAB),
            c => (c, 1),
        };
        for _ in 0..times {
            rows.push(c);
        }
        if rows.count() > most {
            rows.cut(most);
            break;
        }
    }
    rows.out + &rows.row
}

#[derive(Debug)]
struct Wrap {
    width: usize,
    indent: usize,
    out: String,
    /// The number of rows in `out`.
    done: usize,
    row: String,
    /// The number of columns of `row`.
    used: usize,
    /// The last space in the row: its position, the columns up to and including it, and the style there.
    space: Option<(usize, usize, String)>,
    style: String,
    /// The position of the row's last character.
    last: usize,
}

impl Wrap {
    fn new(line: &str, width: usize, indent: usize) -> Self {
        Self {
            width,
            indent,
            out: String::with_capacity(line.len() + 32),
            done: 0,
            row: String::new(),
            used: 0,
            space: None,
            style: String::new(),
            last: 0,
        }
    }

    fn style(&mut self, sequence: &str) {
        self.row.push_str(sequence);
        match sequence {
            RESET | "\u{1b}[m" => self.style.clear(),
            more if self.style.len() + more.len() <= MAX_STYLE => self.style.push_str(more),
            _ => {}
        }
    }

    fn push(&mut self, c: char) {
        let wide = columns(c);
        if c == ' ' {
            if self.used >= self.width {
                let style = self.style.clone();
                return self.end_row(self.row.len(), self.row.len(), self.used, &style);
            }
            self.space = Some((self.row.len(), self.used + 1, self.style.clone()));
        } else if self.used + wide > self.width
            && let Some((at, used, style)) = self.space.take()
            && used > self.indent
        {
            self.end_row(at, at + 1, used, &style);
        }
        self.last = self.row.len();
        self.row.push(c);
        self.used += wide;
    }

    /// Ends the row at position `end`. The text from position `next`, which is after `used` columns, begins the next row.
    fn end_row(&mut self, end: usize, next: usize, used: usize, style: &str) {
        let head = self.row[..end].trim_end_matches(' ');
        self.out.push_str(head);
        if !style.is_empty() {
            self.out.push_str(RESET);
        }
        self.out.push('\n');
        self.done += used.saturating_sub(1).div_ceil(self.width).max(1);
        let tail = &self.row[next..];
        self.row = format!("{:1$}{style}{tail}", "", self.indent);
        self.used = self.used - used + self.indent;
        self.space = None;
    }

    fn count(&self) -> usize {
        self.done + self.used.div_ceil(self.width).max(1)
    }

    /// Removes the text after `most` rows.
    fn cut(&mut self, most: usize) {
        if self.done < most {
            self.row.truncate(self.last);
        } else {
            self.row.clear();
            self.out.truncate(self.out.trim_end_matches('\n').len());
        }
        self.row.push('…');
        self.row.push_str(RESET);
    }
}

/// Returns the indent of the rows after the first, so that they begin below the text that follows a mark such as `●` or `│`.
fn indent(line: &str) -> usize {
    let mut used = 0;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some(len) = sgr_len(rest) {
            rest = &rest[len..];
            continue;
        }
        if c.is_alphanumeric() || used >= MAX_INDENT {
            break;
        }
        used += columns(c);
        rest = &rest[c.len_utf8()..];
    }
    if used <= MAX_INDENT { used } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::width as wide;
    use anstream::adapter::strip_str;
    use proptest::prelude::*;

    fn bare(text: &str) -> String {
        strip_str(text).to_string()
    }

    #[test]
    fn wrapped_lines_break_between_words_and_are_indented() {
        let all = [
            "│ a line that is longer than the row that it has to fit into",
            "  ⎿ failed: 日本語のテキスト and then something more in words",
            "─── no room",
            "see https://a.example/a/path/that/is/much/longer/than/one/row for it",
            "a\ttab\tand another\tand one more",
            "in time",
        ];
        let rows = all.map(|line| wrap(line, 30, 9));
        insta::assert_snapshot!(rows.join("\n\n"));
    }

    #[test]
    fn rows_beyond_the_limit_are_dropped() {
        let long = "● Bash: ".to_owned() + &"word ".repeat(40);
        insta::assert_snapshot!(bare(&wrap(&long, 30, 2)), @r"
        ● Bash: word word word word
          word word word word word…
        ");
        let blob = "x".repeat(500);
        assert_eq!(bare(&wrap(&blob, 30, 1)), format!("{}…", "x".repeat(30)));
    }

    #[test]
    fn colour_ends_with_its_row_and_starts_again_in_the_next() {
        let text = "\u{1b}[31mred and more red and red\u{1b}[0m and not";
        insta::assert_debug_snapshot!(wrap(text, 16, 9), @r#""\u{1b}[31mred and more red\u{1b}[0m\n\u{1b}[31mand red\u{1b}[0m and not""#);
    }

    proptest! {
        /// Rows fit unless a single word is longer, only spaces are lost, and there are at most `most` rows.
        #[test]
        fn rows_fit(text in "(│ |● |  ⎿ )?([a-z日é]{1,12} {0,2}){0,20}", width in 1usize..40, most in 1usize..8) {
            let all = wrap(&text, width, usize::MAX);
            for row in all.lines() {
                let one = !row.trim().contains(' ') || row.trim_start().starts_with(['│', '●', '⎿']);
                prop_assert!(wide(row) <= width || one, "{row:?} in {all:?}");
            }
            let solid = |text: &str| text.replace([' ', '\n'], "");
            prop_assert_eq!(solid(&all), solid(&text));
            let some = bare(&wrap(&text, width, most));
            // The mark `…` can take one column more.
            let rows: usize = some.lines().map(|row| wide(row).saturating_sub(1).div_ceil(width).max(1)).sum();
            prop_assert!(rows <= most, "{rows} > {most}: {some:?}");
        }

        #[test]
        fn x115a_wrapping_keeps_the_visible_text(text in "(\\PC|\u{1b}\\[3[1-7]m|\u{1b}\\[0m){0,60}", width in 1usize..30) {
            let bare_before: String = bare(&text).replace([' ', '\n'], "");
            prop_assert_eq!(bare(&wrap(&text, width, usize::MAX)).replace([' ', '\n'], ""), bare_before);
        }
    }
}
