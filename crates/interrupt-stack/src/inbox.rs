//! From the signal handler to the ladder: what it posted is read here, and it is told what came of that.

use std::{sync::Arc, time::Instant};

use crate::{catch::Catch, ladder::Ladder, word::Kind};

/// The router's end of what the signal handler posts; always empty on a detached ladder.
pub(crate) struct Inbox {
    catch: Option<Arc<Catch>>,
    /// The number of the next post to read.
    next: u64,
    /// What was read and is not settled yet.
    read: Vec<Kind>,
}

impl Inbox {
    pub(crate) fn new(catch: Option<Arc<Catch>>) -> Self {
        Self {
            catch,
            next: 0,
            read: Vec::new(),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.catch.is_some()
    }

    /// Says whether a press that no signal made is one of its own beside those that signals make.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let catch = self.catch.as_ref();
        catch.is_none_or(|catch| catch.admits(now))
    }

    /// Returns the oldest post that was not read.
    pub(crate) fn next(&mut self) -> Option<(Kind, Instant)> {
        let catch = self.catch.as_ref()?;
        let (kind, at) = catch.word.read(self.next)?;
        self.next += 1;
        self.read.push(kind);
        Some((kind, catch.instant(at)))
    }

    /// Tells the handler what came of all that was decided.
    pub(crate) fn settle(&mut self, ladder: &Ladder, is_ending: bool) {
        if let Some(catch) = &self.catch {
            let rung = if is_ending { 3 } else { ladder.rung() };
            catch.word.settle(&self.read, rung);
            self.read.clear();
        }
    }
}
