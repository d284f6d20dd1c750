//! The events that the ledger publishes after one step, collected in one place so that their order is defined here.

use crate::{ConversationEvent, Event, Line, Observation, Stream};

/// The events to publish, in order. Agent events are grouped into observations; other events come between those.
#[derive(Debug, Default)]
pub(super) struct EventBatch {
    seen: Observation,
    events: Vec<ConversationEvent>,
}

impl EventBatch {
    pub(super) fn of(raw: Option<(Stream, Line)>) -> Self {
        Self {
            seen: Observation {
                raw,
                events: Vec::new(),
            },
            events: Vec::new(),
        }
    }

    pub(super) fn add_event(&mut self, event: Event) {
        self.seen.events.push(event);
    }

    pub(super) fn add(&mut self, what: ConversationEvent) {
        self.flush();
        self.events.push(what);
    }

    pub(super) fn finish(mut self) -> Vec<ConversationEvent> {
        self.flush();
        self.events
    }

    fn flush(&mut self) {
        if self.seen != Observation::default() {
            let seen = std::mem::take(&mut self.seen);
            self.events.push(ConversationEvent::Observed(seen));
        }
    }
}
