//! Draws the terminal: the log above, the live rows below.

use anstream::adapter::strip_str;
use unicode_width::UnicodeWidthStr;

use super::rows::{Rows, width};

/// The marks of a synchronised update: a terminal that supports them draws the text between them in one step. Other terminals ignore them.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
/// The marks that turn wrapping off and on, because terminals disagree about the width of some characters.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
/// More columns than any screen has.
const MAX_COLUMNS: usize = 1 << 16;

/// The treatment of rows on the screen when the terminal gets narrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResizeBehavior {
    /// The terminal wraps the rows again, as most terminals do.
    Rewrapped,
    /// The terminal cuts the rows.
    Truncated,
}

impl ResizeBehavior {
    /// Guesses the behaviour from the environment variables that terminals set. A wrong guess erases a line of the log or leaves an old status line.
    pub(crate) fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let term = variable("TERM").unwrap_or_default();
        let is_cut = variable("XTERM_VERSION").is_some()
            || term.starts_with("linux")
            || term.starts_with("vt")
            || (term.starts_with("screen") && variable("TMUX").is_none());
        if is_cut {
            Self::Truncated
        } else {
            Self::Rewrapped
        }
    }
}

/// The painter. It remembers the rows on the screen below the log.
#[derive(Debug)]
pub(crate) struct Painter {
    /// Whether the terminal supports no escape sequences.
    dumb: bool,
    resize_behavior: ResizeBehavior,
    /// The number of columns of the screen.
    columns: usize,
    drawn: Rows,
    /// The number of rows by which typed text moved the cursor down. `None` if the terminal echoed text while a frame was printed: then the text can
    /// be above or below the live rows.
    moved: Option<usize>,
    /// Whether another program wrote on the screen and may have left the cursor in the middle of a row.
    is_cursor_unknown: bool,
}

impl Painter {
    pub(crate) fn new(dumb: bool, narrowed: ResizeBehavior) -> Self {
        Self {
            dumb,
            resize_behavior: narrowed,
            columns: usize::MAX,
            drawn: Rows::default(),
            moved: Some(0),
            is_cursor_unknown: false,
        }
    }

    /// Sets the number of columns of the screen.
    pub(crate) fn resized(&mut self, columns: usize) {
        self.columns = columns.max(1);
    }

    /// Notes that the terminal echoed this text after the live rows.
    pub(crate) fn typed(&mut self, text: &str) {
        let (Some(last), Some(moved)) = (self.drawn.rows.last(), &mut self.moved) else {
            return;
        };
        let end = || width(&strip_str(last).to_string());
        let mut column = self.drawn.cursor.map_or_else(end, |(_, column)| column);
        for line in text.split_inclusive('\n') {
            column += width(line.trim_end_matches('\n'));
            *moved += column / self.columns + usize::from(line.ends_with('\n'));
            column = 0;
        }
    }

    /// Notes that the terminal echoed text while a frame was printed. The next frame erases no row above the last one: an old status line may stay, but
    /// no line of the log is lost.
    pub(crate) fn typed_during_a_frame(&mut self) {
        if !self.drawn.rows.is_empty() {
            self.moved = None;
        }
    }

    /// Forgets the drawn rows, because another program wrote on the screen.
    pub(crate) fn forget(&mut self) {
        self.drawn = Rows::default();
        self.moved = Some(0);
        self.is_cursor_unknown = !self.dumb;
    }

    /// Returns the number of live rows above the cursor; `None` if there are no live rows.
    pub(crate) fn above(&self) -> Option<usize> {
        let last = self.drawn.rows.len().checked_sub(1)?;
        let (row, column) = self.drawn.cursor.unwrap_or((last, 0));
        let above: usize = self.drawn.rows[..row]
            .iter()
            .map(|row| self.height(row))
            .sum();
        let within = match (self.resize_behavior, self.drawn.cursor) {
            (ResizeBehavior::Truncated, _) => 0,
            (_, Some(_)) => column / self.columns,
            (_, None) => self.height(&self.drawn.rows[last]) - 1,
        };
        Some(above + within)
    }

    /// Returns how many rows a drawn row takes on the screen now.
    fn height(&self, row: &str) -> usize {
        match self.resize_behavior {
            ResizeBehavior::Truncated => 1,
            // The exact width, because `rows::width` can return too many columns: too many rows would erase a line of the log.
            ResizeBehavior::Rewrapped => strip_str(row)
                .to_string()
                .width()
                .div_ceil(self.columns)
                .max(1),
        }
    }

    /// Whether the live rows differ from the rows on the screen.
    pub(crate) fn would_draw(&self, live: &Rows) -> bool {
        *live != self.drawn || self.moved != Some(0)
    }

    /// Returns the bytes that print `log`, which has whole lines, above the live rows.
    pub(crate) fn frame(&mut self, log: String, live: &Rows) -> String {
        let is_log = self.drawn.rows.is_empty() && live.rows.is_empty() && !self.is_cursor_unknown;
        if is_log || (log.is_empty() && !self.would_draw(live)) {
            // Return the log itself, without a copy: it may be large.
            return log;
        }
        if log.is_empty() && self.can_patch(live) {
            return self.patch(live);
        }
        let mut out = self.unless_dumb(BEGIN).to_owned() + &self.erase();
        if std::mem::take(&mut self.is_cursor_unknown) {
            // If the cursor is in the first column, these spaces stay in its row. From any other column they wrap into the next row.
            // So the log begins in a row that contains no other text.
            out.push_str(&format!(
                "{:1$}\r\x1b[J",
                "",
                self.columns.min(MAX_COLUMNS) - 1
            ));
        }
        out.push_str(&log);
        if !live.rows.is_empty() {
            out.push_str(self.unless_dumb(NO_WRAP));
            out.push_str(&live.rows.join("\n"));
            out.push_str(self.unless_dumb(WRAP));
        }
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
        out.push_str(self.unless_dumb(END));
        self.drawn = live.clone();
        self.moved = Some(0);
        out
    }

    /// Returns the escape sequence, or nothing for a dumb terminal.
    fn unless_dumb(&self, sequence: &'static str) -> &'static str {
        if self.dumb { "" } else { sequence }
    }

    /// Whether the changes can be drawn over the old rows, so that typed text stays on the screen.
    fn can_patch(&self, live: &Rows) -> bool {
        let same = self.drawn.rows.len() == live.rows.len() && self.drawn.cursor == live.cursor;
        let untouched = self.moved == Some(0) && !self.is_cursor_unknown;
        let is_broken = self.drawn.rows.iter().any(|row| self.height(row) > 1);
        same && untouched && !is_broken && live.echo && self.drawn.echo && !self.dumb
    }

    fn patch(&mut self, live: &Rows) -> String {
        let mut out = format!("{BEGIN}{NO_WRAP}\x1b7");
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
        out.push_str(&format!("\x1b8{WRAP}{END}"));
        self.drawn = live.clone();
        out
    }

    fn erase(&self) -> String {
        let Some(last) = self.drawn.rows.last() else {
            return String::new();
        };
        if self.dumb {
            return match (self.drawn.rows.len(), self.moved) {
                (1, Some(0)) => format!("\r{}\r", " ".repeat(width(last))),
                (_, Some(0)) => "\n".into(),
                _ => String::new(),
            };
        }
        match self.above().unwrap_or(0) + self.moved.unwrap_or(0) {
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

    fn painter(dumb: bool) -> Painter {
        let mut painter = Painter::new(dumb, ResizeBehavior::Rewrapped);
        painter.resized(80);
        painter
    }

    /// Returns a frame without the marks that all frames have.
    fn frame(painter: &mut Painter, log: &str, live: &Rows) -> String {
        let mut frame = painter.frame(log.into(), live);
        for of_all in [BEGIN, END, NO_WRAP, WRAP] {
            frame = frame.replace(of_all, "");
        }
        frame
    }

    #[test]
    fn log_is_printed_above_the_live_rows() {
        let mut painter = painter(false);
        let status = live(&["status"], None);
        let menu = live(&["menu:", "  c  continue", "? "], Some((2, 2)));
        let frames = [
            frame(&mut painter, "one\n", &Rows::default()),
            frame(&mut painter, "", &status),
            frame(&mut painter, "", &status),
            frame(&mut painter, "two\n", &status),
            frame(&mut painter, "", &menu),
            frame(&mut painter, "", &live(&["steer> a", "> b"], Some((0, 8)))),
            frame(&mut painter, "three\n", &Rows::default()),
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
    fn typed_text_is_erased_with_status() {
        let mut painter = painter(false);
        frame(&mut painter, "", &live(&["status"], None));
        painter.typed("abc\n");
        assert_eq!(
            frame(&mut painter, "", &live(&["steer> "], Some((0, 7)))),
            "\r\x1b[1A\x1b[Jsteer> \r\x1b[7C"
        );
    }

    #[test]
    fn text_echoed_during_a_frame_erases_no_line_of_the_log() {
        let mut painter = painter(false);
        let status = live(&["status", ""], Some((1, 0)));
        frame(&mut painter, "one\n", &status);
        painter.typed_during_a_frame();
        painter.typed("abc\n");
        assert!(painter.would_draw(&status));
        // The cursor is in the last row, or below it if the text was echoed after the frame.
        assert_eq!(
            frame(&mut painter, "two\n", &status),
            "\r\x1b[1A\x1b[Jtwo\nstatus\n\r"
        );
        assert!(!painter.would_draw(&status));
    }

    #[test]
    fn colours_have_no_width() {
        let mut painter = painter(false);
        frame(&mut painter, "", &live(&["\x1b[2mstatus\x1b[0m"], None));
        painter.resized(10);
        painter.typed("abc\n");
        assert_eq!(painter.moved, Some(1));
    }

    #[test]
    fn typed_text_that_wraps_is_counted_in_rows() {
        let mut painter = painter(false);
        frame(&mut painter, "", &live(&["status"], None));
        painter.resized(10);
        painter.typed("wraps\nonce\n");
        assert_eq!(painter.moved, Some(3));
        frame(&mut painter, "", &Rows::default());
        painter.typed("no live rows\n");
        assert_eq!(painter.moved, Some(0));
    }

    #[test]
    fn typed_text_stays_while_status_changes() {
        let mut painter = painter(false);
        let status = |text| Rows {
            echo: true,
            ..live(&["partial", text, ""], Some((2, 0)))
        };
        frame(&mut painter, "", &status("1s"));
        insta::assert_debug_snapshot!(frame(&mut painter, "", &status("2s")), @r#""\u{1b}7\u{1b}8\u{1b}[1A\r2s\u{1b}[K\u{1b}8""#);
        painter.typed("text\n");
        insta::assert_debug_snapshot!(frame(&mut painter, "", &status("3s")), @r#""\r\u{1b}[3A\u{1b}[Jpartial\n3s\n\r""#);
    }

    #[test]
    fn foreign_text_in_a_row_is_kept() {
        let mut painter = painter(false);
        painter.resized(4);
        painter.forget();
        assert_eq!(
            frame(&mut painter, "log\n", &Rows::default()),
            "   \r\x1b[Jlog\n"
        );
        assert_eq!(frame(&mut painter, "log\n", &Rows::default()), "log\n");
    }

    #[test]
    fn a_dumb_terminal_gets_no_sequences() {
        let mut painter = painter(true);
        let mut out = frame(&mut painter, "", &live(&["menu:", "? "], Some((1, 2))));
        out += &frame(&mut painter, "", &live(&["steer> ab"], Some((0, 9))));
        out += &frame(&mut painter, "", &live(&["steer> a"], Some((0, 8))));
        out += &frame(&mut painter, "log\n", &Rows::default());
        assert_eq!(
            out,
            "menu:\n? \nsteer> ab\r         \rsteer> a\r        \rlog\n"
        );
    }
}
