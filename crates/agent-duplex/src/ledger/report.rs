//! What the ledger has to tell after one step, put together here so that the order is kept in one place.

use crate::{Event, Line, Observation, Stream, What};

/// What is to be told, in order: events are gathered into observations, and what is no event comes between those.
#[derive(Debug, Default)]
pub(super) struct Report {
    seen: Observation,
    told: Vec<What>,
}

impl Report {
    pub(super) fn of(raw: Option<(Stream, Line)>) -> Self {
        Self {
            seen: Observation {
                raw,
                events: Vec::new(),
            },
            told: Vec::new(),
        }
    }

    pub(super) fn pass(&mut self, event: Event) {
        self.seen.events.push(event);
    }

    pub(super) fn say(&mut self, what: What) {
        self.flush();
        self.told.push(what);
    }

    pub(super) fn finish(mut self) -> Vec<What> {
        self.flush();
        self.told
    }

    fn flush(&mut self) {
        if self.seen != Observation::default() {
            let seen = std::mem::take(&mut self.seen);
            self.told.push(What::Observed(seen));
        }
    }
}
