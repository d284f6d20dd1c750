//! A line on stderr with the progress, if stderr is a terminal.

use std::io::{IsTerminal, Write};

/// The progress line of a score. Dropping it removes the line.
#[derive(Debug)]
pub(crate) struct Progress {
    score: &'static str,
    live: bool,
}

impl Progress {
    pub(crate) fn of(score: &'static str) -> Self {
        let live = std::io::stderr().is_terminal();
        Self { score, live }
    }

    pub(crate) fn show(&self, done: usize, all: usize) {
        if self.live {
            eprint!("\r\x1b[K{}: {done} of {all}", self.score);
            drop(std::io::stderr().flush()); // this line is not important
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
