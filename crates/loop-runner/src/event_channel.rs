//! The channel from a run to its watcher. A slow watcher misses output and never delays the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use agent_duplex::Event;
use loop_state::Timestamp;
use tokio::sync::mpsc;

use crate::recent_events::RecentEvents;
use crate::run_event::{RunEvent, size};

/// The most events that wait for a slow watcher.
const CAPACITY: usize = 4096;
/// The number of places in the channel that are reserved for events other than agent output.
const RESERVED: usize = 512;
/// The most bytes of output that wait for a slow watcher.
const MAX_BYTES: usize = 4 << 20;

/// The watcher's end of the channel: events with their times, in order. A slow watcher misses agent output; neither a slow nor a dropped watcher
/// delays the run.
#[derive(Debug)]
pub struct RunEventReceiver {
    from: mpsc::Receiver<(Timestamp, RunEvent)>,
    shared: Arc<Shared>,
    last: Timestamp,
}

impl RunEventReceiver {
    /// Waits for the next event; `None` when the run ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn recv(&mut self) -> Option<(Timestamp, RunEvent)> {
        loop {
            let event = self.from.recv().await;
            let event = self.account(event);
            if !self.discards(event.as_ref()) {
                return event;
            }
        }
    }

    /// Waits for the next event on a thread that can block.
    ///
    /// # Panics
    ///
    /// Panics on a thread of an asynchronous runtime.
    pub fn blocking_recv(&mut self) -> Option<(Timestamp, RunEvent)> {
        loop {
            let event = self.from.blocking_recv();
            let event = self.account(event);
            if !self.discards(event.as_ref()) {
                return event;
            }
        }
    }

    /// Returns a handle that can drop the agent output that waits in the channel.
    #[must_use]
    pub fn waiting_output(&self) -> WaitingOutput {
        WaitingOutput(Arc::clone(&self.shared))
    }

    /// Frees the bytes of a received event. After the last event, returns the number of missed events as one more event.
    fn account(&mut self, event: Option<(Timestamp, RunEvent)>) -> Option<(Timestamp, RunEvent)> {
        let Some((at, event)) = event else {
            let missed = self.shared.missed.swap(0, Ordering::Relaxed);
            return (missed > 0).then_some((self.last, RunEvent::EventsMissed(missed)));
        };
        self.last = at;
        self.shared
            .waiting
            .fetch_sub(size(&event), Ordering::Relaxed);
        Some((at, event))
    }

    /// Counts the event as missed if it is output that [`WaitingOutput::discard`] discards.
    fn discards(&self, event: Option<&(Timestamp, RunEvent)>) -> bool {
        let discards = self.shared.discards_output.load(Ordering::Relaxed)
            && event.is_some_and(|(_, event)| is_output(event));
        self.shared
            .missed
            .fetch_add(u64::from(discards), Ordering::Relaxed);
        discards
    }
}

/// A handle for the agent output that waits for a slow watcher.
#[derive(Debug)]
pub struct WaitingOutput(Arc<Shared>);

impl WaitingOutput {
    /// Lets the watcher miss all further agent output, so that it soon receives the end of the run. It still receives all other events, and the number
    /// of events that it missed.
    pub fn discard(&self) {
        self.0.discards_output.store(true, Ordering::Relaxed);
    }
}

/// Returns whether an event comes from the agent, so that a slow watcher can miss it.
fn is_output(event: &RunEvent) -> bool {
    match event {
        RunEvent::Output { .. } => true,
        RunEvent::Agent(event) => !matches!(
            event,
            Event::PermissionRequested(_)
                | Event::PermissionWithdrawn { .. }
                | Event::PermissionDenied { .. }
                | Event::Warning(_)
        ),
        _ => false,
    }
}

/// The state that both ends share.
#[derive(Debug, Default)]
struct Shared {
    /// The number of bytes that the watcher has not taken yet.
    waiting: AtomicUsize,
    /// The number of missed events that are not reported yet.
    missed: AtomicU64,
    /// Whether the watcher misses all further output.
    discards_output: AtomicBool,
}

#[derive(Clone, Debug)]
pub(crate) struct RunEventSender {
    to: mpsc::Sender<(Timestamp, RunEvent)>,
    shared: Arc<Shared>,
    /// The recent events for attached viewers.
    recent: Option<Arc<RecentEvents>>,
}

pub(crate) fn channel() -> (RunEventSender, RunEventReceiver) {
    let (to, from) = mpsc::channel(CAPACITY);
    let shared = Arc::new(Shared::default());
    let sender = RunEventSender {
        to,
        shared: Arc::clone(&shared),
        recent: None,
    };
    let last = Timestamp::default();
    (sender, RunEventReceiver { from, shared, last })
}

impl RunEventSender {
    /// Starts to store the recent events for attached viewers.
    pub(crate) fn keep(&mut self) -> Arc<RecentEvents> {
        Arc::clone(self.recent.get_or_insert_default())
    }

    pub(crate) fn send(&mut self, at: Timestamp, event: RunEvent) {
        if let Some(recent) = &self.recent {
            recent.push(at, &event);
        }
        let Shared {
            waiting, missed, ..
        } = &*self.shared;
        let is_output = is_output(&event);
        let too_many = self.to.capacity() <= if is_output { RESERVED } else { 0 };
        // One event always fits, even if it is longer than the limit.
        let waits = waiting.load(Ordering::Relaxed);
        if too_many || (is_output && waits > 0 && waits + size(&event) > MAX_BYTES) {
            missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let unreported = missed.swap(0, Ordering::Relaxed);
        if unreported > 0
            && self
                .to
                .try_send((at, RunEvent::EventsMissed(unreported)))
                .is_err()
        {
            missed.fetch_add(unreported, Ordering::Relaxed);
        }
        let size = size(&event);
        waiting.fetch_add(size, Ordering::Relaxed);
        if self.to.try_send((at, event)).is_err() {
            waiting.fetch_sub(size, Ordering::Relaxed);
            missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_duplex::{Line, Stream};
    use bytes::Bytes;

    #[test]
    fn stalled_viewer_misses_only_output() {
        let (mut sender, mut receiver) = channel();
        let line = Line {
            bytes: Bytes::from_static(b"x"),
            omitted: 0,
        };
        let output = RunEvent::Output {
            stream: Stream::Stdout,
            line,
        };
        for _ in 0..CAPACITY {
            sender.send(Timestamp::from_millis(1), output.clone());
        }
        sender.send(Timestamp::from_millis(2), RunEvent::Warning("mind".into()));
        let mut seen = Vec::new();
        while let Ok((_, event)) = receiver.from.try_recv() {
            seen.push(event);
        }
        assert_eq!(seen.len(), CAPACITY - RESERVED + 2);
        assert!(matches!(seen[seen.len() - 2], RunEvent::EventsMissed(n) if n == RESERVED as u64));
        assert!(matches!(seen.last(), Some(RunEvent::Warning(_))));
    }

    #[test]
    fn discarded_output_is_counted_and_other_events_arrive() {
        let (mut sender, mut receiver) = channel();
        let text = |text: &str| RunEvent::Agent(Event::TextDelta(text.to_owned()));
        sender.send(Timestamp::from_millis(1), text("shown"));
        sender.send(Timestamp::from_millis(2), text("dropped"));
        sender.send(Timestamp::from_millis(3), RunEvent::Warning("mind".into()));
        sender.send(Timestamp::from_millis(4), text("dropped"));
        drop(sender);
        assert!(matches!(
            receiver.blocking_recv(),
            Some((_, RunEvent::Agent(_)))
        ));
        receiver.waiting_output().discard();
        assert!(matches!(
            receiver.blocking_recv(),
            Some((_, RunEvent::Warning(_)))
        ));
        let missed = receiver.blocking_recv();
        assert!(
            matches!(&missed, Some((at, RunEvent::EventsMissed(2))) if at.as_millis() == 4),
            "{missed:?}"
        );
        assert!(receiver.blocking_recv().is_none());
    }

    #[test]
    fn streamed_text_counts_as_output() {
        let (mut sender, mut receiver) = channel();
        for _ in 0..2 * CAPACITY {
            let text = "word ".to_owned();
            sender.send(
                Timestamp::from_millis(1),
                RunEvent::Agent(Event::TextDelta(text)),
            );
        }
        sender.send(Timestamp::from_millis(2), RunEvent::Warning("mind".into()));
        drop(sender);
        let mut seen = Vec::new();
        while let Some((_, event)) = receiver.blocking_recv() {
            seen.push(event);
        }
        assert_eq!(seen.len(), CAPACITY - RESERVED + 2);
        assert!(matches!(seen.last(), Some(RunEvent::Warning(_))));
    }

    #[test]
    fn buffer_of_a_stalled_viewer_is_limited_in_bytes() {
        let (mut sender, mut receiver) = channel();
        let line = Line {
            bytes: Bytes::from(vec![b'x'; 1 << 20]),
            omitted: 0,
        };
        let output = RunEvent::Output {
            stream: Stream::Stdout,
            line,
        };
        for _ in 0..100 {
            sender.send(Timestamp::from_millis(1), output.clone());
        }
        assert_eq!(sender.shared.waiting.load(Ordering::Relaxed), MAX_BYTES);
        assert_eq!(sender.shared.missed.load(Ordering::Relaxed), 96);
        for _ in 0..4 {
            assert!(receiver.blocking_recv().is_some());
        }
        assert_eq!(sender.shared.waiting.load(Ordering::Relaxed), 0);
        drop(sender);
        let last = receiver.blocking_recv();
        assert!(
            matches!(last, Some((_, RunEvent::EventsMissed(96)))),
            "{last:?}"
        );
    }
}
