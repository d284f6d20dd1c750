//! Lines of the log as rows that fit the screen, broken between words.

use rlm_text::escape::sgr_len;

use super::rows::columns;

/// The deepest that the second row of a line begins.
const MAX_INDENT: usize = 8;
/// The least that is left beside that.
const LEAST: usize = 16;
/// How far tabs are apart.
const TAB: usize = 8;
/// The most bytes of colours that are in force at once; more is nobody's style.
const MAX_STYLE: usize = 128;
const RESET: &str = "\u{1b}[0m";

/// Breaks a line into rows of at most `width` columns, with colours as its only sequences; what goes beyond `most` rows is cut, which is shown.
///
/// A word that is longer than a row stays whole, for whoever copies it: the terminal breaks it.
pub(crate) fn wrap(line: &str, width: usize, most: usize) -> String {
    wrap_below(line, width, most, indent(line))
}

/// The same, with rows behind the first that begin below the column `indent`, where there is room for that.
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
    /// How many rows `out` takes.
    done: usize,
    row: String,
    /// How many columns that has.
    used: usize,
    /// The last space in the row: where it is, how many columns there are up to behind it, the style there.
    space: Option<(usize, usize, String)>,
    style: String,
    /// Where the last character of the row begins.
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

    /// Ends the row at `end`; what begins at `next`, behind `used` columns, begins the next one.
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

    /// Takes back what went beyond `most` rows.
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

/// Where the rows behind the first begin: below the text behind a mark.
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
    fn lines_are_broken_between_words_below_their_mark() {
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
    fn what_goes_beyond_the_rows_is_cut() {
        let long = "● Bash: ".to_owned() + &"word ".repeat(40);
        insta::assert_snapshot!(bare(&wrap(&long, 30, 2)), @r"
        ● Bash: word word word word
          word word word word word…
        ");
        let blob = "x".repeat(500);
        assert_eq!(bare(&wrap(&blob, 30, 1)), format!("{}…", "x".repeat(30)));
    }

    #[test]
    fn a_colour_ends_with_its_row_and_begins_again() {
        let text = "\u{1b}[31mred and more red and red\u{1b}[0m and not";
        insta::assert_debug_snapshot!(wrap(text, 16, 9), @r#""\u{1b}[31mred and more red\u{1b}[0m\n\u{1b}[31mand red\u{1b}[0m and not""#);
    }

    proptest! {
        /// Rows fit unless a single word does not, nothing but space is lost, and there are no more than are allowed.
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
            // The mark itself may take one column more.
            let rows: usize = some.lines().map(|row| wide(row).saturating_sub(1).div_ceil(width).max(1)).sum();
            prop_assert!(rows <= most, "{rows} > {most}: {some:?}");
        }

        #[test]
        fn x115a_what_is_broken_has_no_other_sequences_than_before(text in "(\\PC|\u{1b}\\[3[1-7]m|\u{1b}\\[0m){0,60}", width in 1usize..30) {
            let bare_before: String = bare(&text).replace([' ', '\n'], "");
            prop_assert_eq!(bare(&wrap(&text, width, usize::MAX)).replace([' ', '\n'], ""), bare_before);
        }
    }
}
