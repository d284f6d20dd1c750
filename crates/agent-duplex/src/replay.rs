//! What late readers get first: everything since the beginning of the turn that runs.

use std::sync::Arc;

use crate::{Event, Observation, Published, What};

/// How many things a replay may hold.
const THINGS: usize = 10_000;
/// How many bytes of lines and texts a replay may hold.
const BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(crate) struct Replay {
    things: Vec<Arc<Published>>,
    bytes: usize,
    /// How many turns were assigned and are not completed.
    running: usize,
    /// Whether it was too much for the turn that runs.
    withheld: bool,
}

impl Replay {
    pub(crate) fn note(&mut self, published: &Arc<Published>, weight: usize) {
        if matches!(&published.what, What::Assigned(assignment) if !assignment.injected) {
            self.running += 1;
        }
        if self.running == 0 || self.withheld {
        } else if self.things.len() == THINGS || self.bytes + weight > BYTES {
            self.things = Vec::new();
            self.withheld = true;
        } else {
            self.bytes += weight;
            self.things.push(Arc::clone(published));
        }
        if matches!(published.what, What::Completed(_)) {
            self.running = self.running.saturating_sub(1);
            if self.running == 0 {
                *self = Self::default();
            }
        }
    }

    /// Returns what a reader gets before what is published after `sequence`.
    pub(crate) fn until(&self, sequence: u64) -> Vec<Arc<Published>> {
        if self.withheld {
            let what = What::ReplayTruncated;
            vec![Arc::new(Published { sequence, what })]
        } else {
            self.things.clone()
        }
    }
}

/// Returns about how many bytes something takes, lines and texts in the first place.
pub(crate) fn weight(what: &What) -> usize {
    match what {
        What::Observed(seen) => bytes(seen),
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
        Event::PermissionAsked(ask) => ask.tool.len() + ask.summary.len() + ask.reason.len(),
        Event::PermissionDenied { tool, message } => tool.len() + message.len(),
        _ => 0,
    }
}
