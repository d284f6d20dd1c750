//! Prints the log and, on a person's terminal, the live rows below it.

use anstream::adapter::strip_str;
use loop_runner::RunEvent;
use loop_state::Timestamp;

use super::{Console, now};
use crate::rows::{Rows, cut};
use crate::run_snapshot::RunSnapshot;
use crate::sink::Sink;
use crate::status;
use crate::style::{DIM, styled};
use crate::terminal::LogTarget;

impl Console {
    /// Returns the live rows: the rows below the log now.
    fn live(&mut self) -> Rows {
        let Some(tty) = self
            .tty
            .as_ref()
            .filter(|_| self.in_front && self.editor.is_none())
        else {
            return Rows::default();
        };
        let (columns, rows) = tty.size();
        // A terminal may begin a new row after the last column, so leave that column empty.
        let (width, height) = (columns.saturating_sub(1), rows.saturating_sub(1));
        self.ui.resized(width, height);
        self.painter.resized(columns);
        let view = self.view.borrow().clone();
        let snapshot = RunSnapshot::of(&view, self.attached);
        if let Some(rows) = self.ui.rows(snapshot) {
            return rows;
        }
        let mut rows = Rows::default();
        if self.has_status() {
            let colour = self.person_sink.as_ref().unwrap_or(&self.log).has_colour();
            let dim = |line| if colour { styled(DIM, line) } else { line };
            if height > 2 && !self.ui.partial().is_empty() {
                rows.rows.push(cut(self.ui.partial(), width));
            }
            rows.rows
                .extend(self.ui.counted(width).filter(|_| height > 2).map(dim));
            // Whole seconds, so that all counters on the line change at the same time.
            let now = Timestamp::from_millis(now().as_millis() / 1000 * 1000);
            rows.rows
                .push(dim(status::line(&self.run, snapshot, now, width)));
            // An empty row for the echo of typed keys.
            rows.echo = height > rows.rows.len();
            if rows.echo {
                rows.cursor = Some((rows.rows.len(), 0));
                rows.rows.push(String::new());
            }
        }
        rows
    }

    /// Whether a status line is shown. If another program prints on the terminal too, a redrawn line would overwrite its output. A log for programs
    /// contains no status line.
    pub(super) fn has_status(&self) -> bool {
        let alone = match self.log_target {
            LogTarget::Here => !self.is_json,
            LogTarget::File => true,
            LogTarget::Program => false,
        };
        alone && !self.dumb && !self.is_over
    }

    /// Draws a frame, and records how many live rows must be erased when the process ends.
    pub(super) fn frame(&mut self, log: String, live: &Rows) -> String {
        // A program that reads the log may have left the cursor in the middle of a row.
        if let (LogTarget::Program, Some(tty), None) =
            (self.log_target, &self.tty, self.painter.above())
            && !live.rows.is_empty()
        {
            self.painter.resized(tty.size().0);
            self.painter.forget();
        }
        let text = self.painter.frame(log, live);
        if let Some(tty) = self.tty.as_ref().filter(|_| !self.dumb) {
            tty.note_live_rows(self.painter.above().map_or(0, |above| above + 1));
        }
        text
    }

    /// Whether output waits for the log, and whether output waits for the terminal if the log goes elsewhere.
    pub(super) fn wants_to_print(&mut self) -> (bool, bool) {
        let live = self.live();
        let draw = self.painter.would_draw(&live);
        if (draw || !self.for_log.is_empty()) && self.is_typed_unseen() {
            return (false, false);
        }
        match self.person_sink {
            None => (draw || !self.for_log.is_empty(), false),
            Some(_) => (
                !self.for_log.is_empty(),
                draw || !self.for_person.is_empty(),
            ),
        }
    }

    /// Prints the output that waits for the log. The log must have room.
    pub(super) fn print_log(&mut self) {
        if let Some(why) = self.log.missing() {
            let why = format!(
                "a part of this output could not be written ({why}); the transcripts contain it"
            );
            let text = (self.format_event)(now(), &RunEvent::Warning(why));
            self.for_log.insert_str(0, &text.unwrap_or_default());
        }
        let text = std::mem::take(&mut self.for_log);
        let text = match self.is_json {
            true => text,
            false => coloured(&self.log, text),
        };
        let text = match self.person_sink {
            None => {
                let live = self.live();
                self.frame(text, &live)
            }
            Some(_) => text,
        };
        self.log.write(text);
        if self.person_sink.is_none() {
            self.screen_drawn();
        }
    }

    /// Notes that the prompt is on the screen. Keys that were typed before a new question don't answer it.
    fn screen_drawn(&mut self) {
        if self.ui.drawn(now())
            && let Some(tty) = &self.tty
        {
            self.generation = tty.forget_typed();
        }
    }

    pub(super) fn print_to_person(&mut self) {
        let live = self.live();
        let text = std::mem::take(&mut self.for_person);
        if let Some(face) = self.person_sink.take() {
            let text = self.frame(coloured(&face, text), &live);
            face.write(text);
            self.person_sink = Some(face);
        }
        self.screen_drawn();
    }
}

/// Removes colours if the sink doesn't support them.
fn coloured(sink: &Sink, text: String) -> String {
    match sink.has_colour() {
        true => text,
        false => without_colours(&text).unwrap_or_else(|| strip_str(&text).to_string()),
    }
}

/// Removes the colours from a text; `None` if it has other escapes. Copies the text between two colours at once, because it can be megabytes of an
/// agent's output.
fn without_colours(text: &str) -> Option<String> {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (colour, rest) = part.strip_prefix('[')?.split_once('m')?;
        if !colour.bytes().all(|c| c.is_ascii_digit() || c == b';') {
            return None;
        }
        plain.push_str(rest);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_are_removed_without_the_parser() {
        for text in ["", "plain m\n", "\x1b[2m│\x1b[0m a\x1b[38;5;1m", "ä\x1b[m"] {
            assert_eq!(without_colours(text), Some(strip_str(text).to_string()));
        }
        for text in ["\x1b", "\x1b[2Jm", "\x1b]0;title\x07 m", "a\x1b[2"] {
            assert_eq!(without_colours(text), None, "{text:?}");
        }
    }
}
