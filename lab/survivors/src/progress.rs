//! A line on stderr with the progress, if stderr is a terminal.

use std::io::{IsTerminal, Write};

use rlm_survivors::{Run, RunResult};

/// The progress line. Dropping it removes the line.
#[derive(Debug)]
pub(crate) struct Progress {
    all: usize,
    live: bool,
}

impl Progress {
    pub(crate) fn of(all: usize) -> Self {
        let live = std::io::stderr().is_terminal();
        let this = Self { all, live };
        this.show(&[]);
        this
    }

    pub(crate) fn show(&self, done: &[Run]) {
        if self.live {
            let clean = |run: &&Run| matches!(&run.verdict, RunResult::Ended { left, .. } if left.is_empty());
            let (clean, done) = (done.iter().filter(clean).count(), done.len());
            eprint!(
                "\r\x1b[K{done} of {} stops, {} not clean",
                self.all,
                done - clean
            );
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
