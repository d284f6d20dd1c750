//! The replay for late readers: all events since the start of the running turn.

use std::sync::Arc;

use uuid::Uuid;

use crate::{ConversationEvent, Event, Observation, Published};

/// The maximum number of events in a replay.
const MAX_EVENTS: usize = 10_000;
/// The maximum number of bytes of lines and texts in a replay.
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(crate) struct Replay {
    events: Vec<Arc<Published>>,
    bytes: usize,
    /// The number of turns that were assigned and are not completed.
    running: usize,
    /// Whether the running turn is too long for a replay.
    is_truncated: bool,
}

impl Replay {
    pub(crate) fn note(&mut self, published: &Arc<Published>, weight: usize) {
        if matches!(&published.event, ConversationEvent::Assigned(assignment) if !assignment.injected)
        {
            self.running += 1;
        }
        if self.running == 0 || self.is_truncated {
        } else if self.events.len() == MAX_EVENTS || self.bytes + weight > MAX_BYTES {
            self.events = Vec::new();
            self.is_truncated = true;
        } else {
            self.bytes += weight;
            self.events.push(Arc::clone(published));
        }
        if matches!(published.event, ConversationEvent::Completed(_)) {
            self.running = self.running.saturating_sub(1);
            if self.running == 0 {
                *self = Self::default();
            }
        }
    }

    /// Returns the replay for a new reader; `sequence` is the number of the last published event.
    pub(crate) fn until(&self, conversation: Uuid, sequence: u64) -> Vec<Arc<Published>> {
        if self.is_truncated {
            let what = ConversationEvent::ReplayTruncated;
            vec![Arc::new(Published {
                conversation,
                sequence,
                event: what,
            })]
        } else {
            self.events.clone()
        }
    }
}

/// Returns the approximate size in bytes of an event, mainly of its lines and texts.
pub(crate) fn weight(what: &ConversationEvent) -> usize {
    match what {
        ConversationEvent::Observed(seen) => bytes(seen),
        _ => 0,
    }
}

pub(crate) fn bytes(seen: &Observation) -> usize {
    let line = seen.raw.as_ref().map_or(0, |(_, line)| line.bytes.len());
    let events = seen.events.as_slice();
    line + size_of_val(events) + events.iter().map(text).sum::<usize>()
}

fn text(event: &Event) -> usize {
    match event {
        Event::TextDelta(text) | Event::ThinkingDelta(text) | Event::Warning(text) => text.len(),
        Event::Message { text, .. } | Event::ToolFinished { text, .. } => text.len(),
        Event::ToolStarted { name, summary, .. } => name.len() + summary.len(),
        Event::PermissionRequested(ask) => ask.tool.len() + ask.summary.len() + ask.reason.len(),
        Event::PermissionDenied { tool, message } => tool.len() + message.len(),
        _ => 0,
    }
}
