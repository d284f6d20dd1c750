//! The log above, the live rows below: what is written to the terminal.

use anstream::adapter::strip_str;

use super::rows::{Rows, width};

/// Knows what stands on the screen below the log.
#[derive(Debug)]
pub(crate) struct Painter {
    /// Whether the terminal obeys no sequences.
    dumb: bool,
    drawn: Rows,
    /// How many rows the cursor was moved down by what the person typed.
    moved: usize,
    /// Somebody wrote on the screen of this many columns and may have left the cursor in the middle of a row.
    strange: Option<usize>,
}

impl Painter {
    pub(crate) fn new(dumb: bool) -> Self {
        Self {
            dumb,
            drawn: Rows::default(),
            moved: 0,
            strange: None,
        }
    }

    /// The terminal echoed this behind the live rows; it has as many columns.
    pub(crate) fn typed(&mut self, text: &str, columns: usize) {
        let Some(last) = self.drawn.rows.last() else {
            return;
        };
        let end = || width(&strip_str(last).to_string());
        let mut column = self.drawn.cursor.map_or_else(end, |(_, column)| column);
        for line in text.split_inclusive('\n') {
            column += width(line.trim_end_matches('\n'));
            self.moved += column / columns.max(1) + usize::from(line.ends_with('\n'));
            column = 0;
        }
    }

    /// Others wrote on the screen, which has as many columns: what was drawn is theirs now.
    pub(crate) fn forget(&mut self, columns: usize) {
        self.drawn = Rows::default();
        self.moved = 0;
        self.strange = Some(columns).filter(|_| !self.dumb);
    }

    /// How many rows stand above the cursor, and whether any stand there.
    pub(crate) fn above(&self) -> Option<usize> {
        let rows = self.drawn.rows.len().checked_sub(1)?;
        Some(self.drawn.cursor.map_or(rows, |(row, _)| row))
    }

    /// Whether the live rows are not those that stand there.
    pub(crate) fn would_draw(&self, live: &Rows) -> bool {
        *live != self.drawn || self.moved > 0
    }

    /// Returns what must be written to print `log`, whole lines, above the live rows.
    pub(crate) fn frame(&mut self, log: String, live: &Rows) -> String {
        let is_log = self.drawn.rows.is_empty() && live.rows.is_empty() && self.strange.is_none();
        if is_log || (log.is_empty() && !self.would_draw(live)) {
            // As it is: it may be large.
            return log;
        }
        if log.is_empty() && self.can_patch(live) {
            return self.patch(live);
        }
        let mut out = self.erase();
        if let Some(columns) = self.strange.take() {
            // In the first column this stays in its row, in any other it ends in the next one.
            out.push_str(&format!("{:1$}\r\x1b[J", "", columns.saturating_sub(1)));
        }
        out.push_str(&log);
        out.push_str(&live.rows.join("\n"));
        if let Some((row, column)) = live.cursor
            && !self.dumb
        {
            let up = live.rows.len() - 1 - row;
            if up > 0 {
                out.push_str(&format!("\x1b[{up}A"));
            }
            out.push('\r');
            if column > 0 {
                out.push_str(&format!("\x1b[{column}C"));
            }
        }
        self.drawn = live.clone();
        self.moved = 0;
        out
    }

    /// Whether what changed can be drawn over, so that what the person types stays.
    fn can_patch(&self, live: &Rows) -> bool {
        let same = self.drawn.rows.len() == live.rows.len() && self.drawn.cursor == live.cursor;
        let untouched = self.moved == 0 && self.strange.is_none();
        same && untouched && live.echo && self.drawn.echo && !self.dumb
    }

    fn patch(&mut self, live: &Rows) -> String {
        let mut out = "\x1b7".to_owned();
        let pairs = live.rows.iter().zip(&self.drawn.rows).enumerate();
        for (index, (row, _)) in pairs.filter(|(_, (new, old))| new != old) {
            let up = live.rows.len() - 1 - index;
            let up = if up > 0 {
                format!("\x1b[{up}A")
            } else {
                String::new()
            };
            out.push_str(&format!("\x1b8{up}\r{row}\x1b[K"));
        }
        out.push_str("\x1b8");
        self.drawn = live.clone();
        out
    }

    fn erase(&self) -> String {
        let Some(last) = self.drawn.rows.last() else {
            return String::new();
        };
        if self.dumb {
            return match (self.drawn.rows.len(), self.moved) {
                (1, 0) => format!("\r{}\r", " ".repeat(width(last))),
                (_, 0) => "\n".into(),
                _ => String::new(),
            };
        }
        let row = self
            .drawn
            .cursor
            .map_or(self.drawn.rows.len() - 1, |(row, _)| row);
        match row + self.moved {
            0 => "\r\x1b[J".into(),
            up => format!("\r\x1b[{up}A\x1b[J"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(rows: &[&str], cursor: Option<(usize, usize)>) -> Rows {
        Rows {
            rows: rows.iter().map(|row| (*row).to_owned()).collect(),
            cursor,
            echo: false,
        }
    }

    #[test]
    fn the_log_goes_above_the_live_rows() {
        let mut painter = Painter::new(false);
        let status = live(&["status"], None);
        let menu = live(&["menu:", "  c  continue", "? "], Some((2, 2)));
        let frames = [
            painter.frame("one\n".into(), &Rows::default()),
            painter.frame("".into(), &status),
            painter.frame("".into(), &status),
            painter.frame("two\n".into(), &status),
            painter.frame("".into(), &menu),
            painter.frame("".into(), &live(&["steer> a", "> b"], Some((0, 8)))),
            painter.frame("three\n".into(), &Rows::default()),
        ];
        insta::assert_debug_snapshot!(frames, @r#"
        [
            "one\n",
            "status",
            "",
            "\r\u{1b}[Jtwo\nstatus",
            "\r\u{1b}[Jmenu:\n  c  continue\n? \r\u{1b}[2C",
            "\r\u{1b}[2A\u{1b}[Jsteer> a\n> b\u{1b}[1A\r\u{1b}[8C",
            "\r\u{1b}[Jthree\n",
        ]
        "#);
    }

    #[test]
    fn what_a_person_typed_is_erased_with_the_status() {
        let mut painter = Painter::new(false);
        painter.frame("".into(), &live(&["status"], None));
        painter.typed("abc\n", 80);
        assert_eq!(
            painter.frame("".into(), &live(&["steer> "], Some((0, 7)))),
            "\r\x1b[1A\x1b[Jsteer> \r\x1b[7C"
        );
    }

    #[test]
    fn colours_take_no_columns() {
        let mut painter = Painter::new(false);
        painter.frame(String::new(), &live(&["\x1b[2mstatus\x1b[0m"], None));
        painter.typed("abc\n", 10);
        assert_eq!(painter.moved, 1);
    }

    #[test]
    fn what_wrapped_is_erased_too() {
        let mut painter = Painter::new(false);
        painter.frame("".into(), &live(&["status"], None));
        painter.typed("wraps\nonce\n", 10);
        assert_eq!(painter.moved, 3);
        painter.frame("".into(), &Rows::default());
        painter.typed("nothing stands there\n", 10);
        assert_eq!(painter.moved, 0);
    }

    #[test]
    fn what_a_person_types_stays_while_the_status_changes() {
        let mut painter = Painter::new(false);
        let status = |text| Rows {
            echo: true,
            ..live(&["partial", text, ""], Some((2, 0)))
        };
        painter.frame(String::new(), &status("1s"));
        insta::assert_debug_snapshot!(painter.frame(String::new(), &status("2s")), @r#""\u{1b}7\u{1b}8\u{1b}[1A\r2s\u{1b}[K\u{1b}8""#);
        painter.typed("text\n", 80);
        insta::assert_debug_snapshot!(painter.frame(String::new(), &status("3s")), @r#""\r\u{1b}[3A\u{1b}[Jpartial\n3s\n\r""#);
    }

    #[test]
    fn what_others_left_in_a_row_is_kept() {
        let mut painter = Painter::new(false);
        painter.forget(4);
        assert_eq!(
            painter.frame("log\n".into(), &Rows::default()),
            "   \r\x1b[Jlog\n"
        );
        assert_eq!(painter.frame("log\n".into(), &Rows::default()), "log\n");
    }

    #[test]
    fn a_dumb_terminal_gets_no_sequences() {
        let mut painter = Painter::new(true);
        let mut out = painter.frame("".into(), &live(&["menu:", "? "], Some((1, 2))));
        out += &painter.frame("".into(), &live(&["steer> ab"], Some((0, 9))));
        out += &painter.frame("".into(), &live(&["steer> a"], Some((0, 8))));
        out += &painter.frame("log\n".into(), &Rows::default());
        assert_eq!(
            out,
            "menu:\n? \nsteer> ab\r         \rsteer> a\r        \rlog\n"
        );
    }
}
