//! The events that the ledger publishes after one step, collected in one place so that their order is defined here.

use crate::{Event, Line, Observation, Stream, What};

/// The events to publish, in order. Agent events are grouped into observations; other events come between those.
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
