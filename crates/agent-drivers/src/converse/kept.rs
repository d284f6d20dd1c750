//! What was observed while nobody took it, in bounded memory.

use agent_duplex::{Event, Observation};
use std::collections::VecDeque;

/// How many bytes of lines are kept that nobody took while a session was being opened or an agent ended.
const KEPT: usize = 32 << 20;

/// What was observed and waits to be taken. Beyond the limit, lines and pieces of texts are left out.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    ready: VecDeque<Observation>,
    bytes: usize,
}

impl Kept {
    pub(crate) fn keep(&mut self, mut seen: Observation) {
        if self.bytes + size(&seen) > KEPT {
            seen.raw = None;
            let is_piece = |e: &Event| matches!(e, Event::TextDelta(_) | Event::ThinkingDelta(_));
            seen.events.retain(|event| !is_piece(event));
        }
        if seen != Observation::default() {
            self.bytes += size(&seen);
            self.ready.push_back(seen);
        }
    }

    pub(crate) fn take(&mut self) -> Option<Observation> {
        let seen = self.ready.pop_front()?;
        self.bytes -= size(&seen);
        Some(seen)
    }
}

fn size(seen: &Observation) -> usize {
    seen.raw.as_ref().map_or(0, |(_, line)| line.bytes.len())
}
