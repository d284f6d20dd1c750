//! One line on stderr that shows the current measurement.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The shortest time between two updates of the line; an update takes processor time from the measurement.
const EVERY: Duration = Duration::from_millis(200);

/// Shows progress on a terminal; elsewhere, prints a line for each part.
#[derive(Debug)]
pub(crate) struct Progress {
    part: String,
    live: bool,
    drawn: Cell<Option<Instant>>,
}

impl Progress {
    pub(crate) fn of(part: impl Into<String>) -> Self {
        let (part, live) = (part.into(), std::io::stderr().is_terminal());
        if !live {
            eprintln!("{part}");
        }
        Self {
            part,
            live,
            drawn: Cell::new(None),
        }
    }

    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self {
            part: String::new(),
            live: false,
            drawn: Cell::new(None),
        }
    }

    pub(crate) fn show(&self, step: impl FnOnce() -> String) {
        if self.live && self.drawn.get().is_none_or(|drawn| drawn.elapsed() > EVERY) {
            eprint!("\r\x1b[K{}: {}", self.part, step());
            drop(std::io::stderr().flush()); // this line is not important
            self.drawn.set(Some(Instant::now()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.live {
            eprint!("\r\x1b[K");
        }
    }
}
