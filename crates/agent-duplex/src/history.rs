//! The latest events of a conversation: the history that callers can read, and the replay of the running turn for late readers.

use std::collections::VecDeque;
use std::sync::Arc;

use uuid::Uuid;

use crate::subscription::Item;
use crate::{ConversationEvent, Event, Observation, Published};

/// The maximum number of stored events.
const MAX_EVENTS: usize = 10_000;
/// The maximum number of bytes of lines and texts in the stored events.
const MAX_BYTES: usize = 8 << 20;

/// The maximum number of those bytes while the running turn has more than [`MAX_BYTES`]: such a turn floods the conversation.
const MAX_BYTES_IN_FLOOD: usize = 1 << 20;

/// The latest events of a conversation, from [`Conversation::history`](crate::Conversation::history).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// The number of earlier events, which are not stored any more. The first of the [`events`](Self::events) has the sequence number `omitted + 1`.
    pub omitted: u64,
    /// The events, oldest first. Their sequence numbers have no gaps.
    pub events: Vec<Arc<Published>>,
}

/// The stored events. When they exceed a limit, the oldest ones are removed.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: VecDeque<Item>,
    bytes: usize,
    /// The number of turns that were assigned and are not completed.
    running: usize,
    /// The sequence number of the event with which the running turn started.
    turn_start: u64,
}

impl EventLog {
    pub(crate) fn add(&mut self, item: &Item) {
        let (published, weight) = item;
        match &published.event {
            ConversationEvent::Assigned(assignment) if !assignment.injected => {
                if self.running == 0 {
                    self.turn_start = published.sequence;
                }
                self.running += 1;
            }
            ConversationEvent::Completed(_) => self.running = self.running.saturating_sub(1),
            _ => {}
        }
        self.bytes += weight;
        self.events.push_back(item.clone());
        while self.events.len() > MAX_EVENTS || self.bytes > self.max_bytes() {
            self.bytes -= self.events.pop_front().map_or(0, |(_, weight)| weight);
        }
    }

    fn max_bytes(&self) -> usize {
        let first = self.events.front().map(|(published, _)| published.sequence);
        let is_flood = self.running > 0 && first.is_some_and(|first| first > self.turn_start);
        match is_flood {
            true => MAX_BYTES_IN_FLOOD,
            false => MAX_BYTES,
        }
    }

    /// Returns the stored events; `sequence` is the number of the last published event.
    pub(crate) fn history(&self, sequence: u64) -> History {
        History {
            omitted: self.omitted(sequence),
            events: self.after(0),
        }
    }

    /// Returns the replay for a new reader; `sequence` is the number of the last published event.
    pub(crate) fn replay(&self, conversation: Uuid, sequence: u64) -> Vec<Arc<Published>> {
        let omitted = self.omitted(sequence);
        if self.running == 0 {
            Vec::new()
        } else if self.turn_start <= omitted {
            let what = ConversationEvent::ReplayTruncated;
            vec![Arc::new(Published {
                conversation,
                sequence,
                event: what,
            })]
        } else {
            let before = self.turn_start - 1 - omitted;
            self.after(usize::try_from(before).unwrap_or(usize::MAX))
        }
    }

    fn omitted(&self, sequence: u64) -> u64 {
        sequence - self.events.len() as u64
    }

    /// Returns the stored events without the first `before` of them.
    fn after(&self, before: usize) -> Vec<Arc<Published>> {
        let events = self.events.iter().skip(before);
        events.map(|(published, _)| Arc::clone(published)).collect()
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
