//! The last events of a run, for attached viewers: some attach late, some are slow.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_duplex::{Event, Line};
use bytes::Bytes;
use loop_state::Timestamp;
use tokio::sync::watch;

use crate::run_event::{RunEvent, size};

/// The largest number of stored events, and of their bytes.
const MOST: usize = 512;
const MAX_BYTES: usize = 512 << 10;
/// The number of events that a viewer takes at once.
const BATCH: usize = 64;

/// The last events. The memory is bounded for any number of viewers at any speed, and the run never waits for a viewer.
#[derive(Debug)]
pub(crate) struct RecentEvents {
    ring: Mutex<RecentBuffer>,
    /// The number of the next event.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct RecentBuffer {
    /// The number of the first stored event.
    first: u64,
    bytes: usize,
    kept: VecDeque<(Timestamp, RunEvent)>,
}

impl Default for RecentEvents {
    fn default() -> Self {
        Self {
            ring: Mutex::default(),
            next: watch::channel(0).0,
        }
    }
}

impl RecentEvents {
    pub(crate) fn push(&self, at: Timestamp, event: &RunEvent) {
        let event = detached_copy(event);
        let mut ring = self.lock();
        ring.bytes += size(&event);
        ring.kept.push_back((at, event));
        while ring.kept.len() > MOST || (ring.bytes > MAX_BYTES && ring.kept.len() > 1) {
            if let Some((_, oldest)) = ring.kept.pop_front() {
                ring.bytes -= size(&oldest);
                ring.first += 1;
            }
        }
        let next = ring.first + ring.kept.len() as u64;
        drop(ring);
        // A later subscriber finds the event in the buffer.
        if self.next.receiver_count() > 0 {
            self.next.send_replace(next);
        }
    }

    /// Returns the stored events for a new viewer, and the number of the next one.
    pub(crate) fn snapshot(&self) -> (Vec<(Timestamp, RunEvent)>, u64) {
        let ring = self.lock();
        let mut shown = Vec::new();
        // A message repeats its streamed text.
        let mut has_message = false;
        for (at, event) in ring.kept.iter().rev() {
            match event {
                RunEvent::Agent(Event::TextDelta(_)) if has_message => continue,
                RunEvent::Agent(Event::TextDelta(_) | Event::ThinkingDelta(_)) => {}
                RunEvent::Agent(event) => has_message = matches!(event, Event::Message { .. }),
                _ => {}
            }
            shown.push((*at, event.clone()));
        }
        shown.reverse();
        (shown, ring.first + ring.kept.len() as u64)
    }

    /// Takes the events since `next`; counts those that are no longer stored.
    pub(crate) fn since(&self, next: &mut u64) -> Vec<(Timestamp, RunEvent)> {
        let ring = self.lock();
        let mut taken = Vec::new();
        if *next < ring.first
            && let Some((at, _)) = ring.kept.front()
        {
            taken.push((*at, RunEvent::EventsMissed(ring.first - *next)));
            *next = ring.first;
        }
        let from = usize::try_from(*next - ring.first).unwrap_or(usize::MAX);
        let more = ring.kept.iter().skip(from).take(BATCH).cloned();
        let before = taken.len();
        taken.extend(more);
        *next += (taken.len() - before) as u64;
        taken
    }

    /// Returns a receiver whose value changes when there are more events.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, RecentBuffer> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a copy for storage. The bytes of a line are copied too: a shared line keeps everything in memory that was read together with it.
fn detached_copy(event: &RunEvent) -> RunEvent {
    match event {
        RunEvent::Output { stream, line } => RunEvent::Output {
            stream: *stream,
            line: Line {
                bytes: Bytes::copy_from_slice(&line.bytes),
                omitted: line.omitted,
            },
        },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn warning(n: u64) -> RunEvent {
        RunEvent::Warning(n.to_string())
    }

    fn text(all: Vec<(Timestamp, RunEvent)>) -> Vec<String> {
        let text = |(_, event)| match event {
            RunEvent::Warning(text) => text,
            RunEvent::EventsMissed(count) => format!("missed {count}"),
            RunEvent::Agent(Event::TextDelta(text) | Event::Message { text, .. }) => text,
            other => format!("{other:?}"),
        };
        all.into_iter().map(text).collect()
    }

    #[test]
    fn late_viewer_gets_a_message_once() {
        let recent = RecentEvents::default();
        let agent = |event| recent.push(Timestamp::from_millis(1), &RunEvent::Agent(event));
        let message = |text: &str| Event::Message {
            text: text.into(),
            partial: false,
        };
        for piece in ["one ", "two"] {
            agent(Event::TextDelta(piece.into()));
        }
        agent(message("one two"));
        recent.push(Timestamp::from_millis(1), &warning(1));
        agent(Event::TextDelta("three".into()));
        let (shown, mut next) = recent.snapshot();
        assert_eq!(text(shown), ["one two", "1", "three"]);
        agent(message("three"));
        assert_eq!(text(recent.since(&mut next)), ["three"]);
        assert!(recent.since(&mut next).is_empty());
    }

    proptest! {
        /// Each viewer gets all events in order, or the number of the missing ones.
        #[test]
        fn every_missed_event_is_counted(steps in proptest::collection::vec((0u64..400, 0usize..3), 1..20)) {
            let recent = RecentEvents::default();
            let (mut sent, mut seen, mut next) = (0, 0, 0);
            for (pushes, reads) in steps {
                for _ in 0..pushes {
                    sent += 1;
                    recent.push(Timestamp::from_millis(1), &warning(sent));
                }
                for _ in 0..reads {
                    for line in text(recent.since(&mut next)) {
                        seen = match line.strip_prefix("missed ") {
                            Some(count) => seen + count.parse::<u64>().unwrap(),
                            None => seen + 1,
                        };
                        if !line.starts_with("missed ") {
                            prop_assert_eq!(line, seen.to_string());
                        }
                    }
                }
            }
            while !recent.since(&mut next).is_empty() {}
            prop_assert_eq!(next, sent);
        }
    }

    #[test]
    fn recent_events_are_bounded() {
        let recent = RecentEvents::default();
        for _ in 0..2000 {
            recent.push(
                Timestamp::from_millis(1),
                &RunEvent::Agent(Event::TextDelta("x".repeat(3000))),
            );
        }
        let ring = recent.lock();
        assert!(ring.kept.len() <= MOST && ring.bytes <= MAX_BYTES);
    }
}
