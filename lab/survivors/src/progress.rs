//! One line on stderr that says how far it is, where somebody looks.

use std::io::{IsTerminal, Write};

use rlm_survivors::{Run, Verdict};

/// Drops its line when it is dropped.
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
            let clean =
                |run: &&Run| matches!(&run.verdict, Verdict::Ended { left, .. } if left.is_empty());
            let (clean, done) = (done.iter().filter(clean).count(), done.len());
            eprint!(
                "\r\x1b[K{done} of {} stops, {} not clean",
                self.all,
                done - clean
            );
            drop(std::io::stderr().flush()); // nobody needs this line
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
