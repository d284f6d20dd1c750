//! The channel from a run to its watcher, in which one that is slow misses output and never holds the run up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use agent_duplex::Event;
use loop_state::Timestamp;
use tokio::sync::mpsc;

use crate::news::{News, size};
use crate::recent::Recent;

/// How many news wait for a slow watcher.
const CAPACITY: usize = 4096;
/// How many of those places agent output leaves to the news that matter.
const RESERVED: usize = 512;
/// How many bytes of output wait for a slow watcher.
const MAX_BYTES: usize = 4 << 20;

/// The watcher's end: news with their times, in order. A watcher that lags misses agent output and never holds the run up; nor does one that is dropped.
#[derive(Debug)]
pub struct NewsReceiver {
    from: mpsc::Receiver<(Timestamp, News)>,
    shared: Arc<Shared>,
    last: Timestamp,
}

impl NewsReceiver {
    /// Waits for the next piece of news; `None` when the run is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn recv(&mut self) -> Option<(Timestamp, News)> {
        let news = self.from.recv().await;
        self.taken(news)
    }

    /// Waits for the next piece of news on a thread that may block.
    ///
    /// # Panics
    ///
    /// On a thread of an asynchronous runtime.
    pub fn blocking_recv(&mut self) -> Option<(Timestamp, News)> {
        let news = self.from.blocking_recv();
        self.taken(news)
    }

    /// Makes room, and says at the end what was missed last.
    fn taken(&mut self, news: Option<(Timestamp, News)>) -> Option<(Timestamp, News)> {
        let Some((at, news)) = news else {
            let missed = self.shared.missed.swap(0, Ordering::Relaxed);
            return (missed > 0).then_some((self.last, News::Missed(missed)));
        };
        self.last = at;
        self.shared
            .waiting
            .fetch_sub(size(&news), Ordering::Relaxed);
        Some((at, news))
    }
}

/// An event of the agent, which a slow watcher may miss, and not one of the run.
fn is_output(news: &News) -> bool {
    match news {
        News::Output { .. } => true,
        News::Agent(event) => !matches!(
            event,
            Event::PermissionAsked(_)
                | Event::PermissionWithdrawn { .. }
                | Event::PermissionDenied { .. }
                | Event::Warning(_)
        ),
        _ => false,
    }
}

/// The state that both ends see.
#[derive(Debug, Default)]
struct Shared {
    /// How many bytes the watcher has not taken yet.
    waiting: AtomicUsize,
    /// How many pieces were left out and not told of.
    missed: AtomicU64,
}

#[derive(Clone, Debug)]
pub(crate) struct NewsSender {
    to: mpsc::Sender<(Timestamp, News)>,
    shared: Arc<Shared>,
    /// For those who look on from elsewhere.
    recent: Option<Arc<Recent>>,
}

pub(crate) fn channel() -> (NewsSender, NewsReceiver) {
    let (to, from) = mpsc::channel(CAPACITY);
    let shared = Arc::new(Shared::default());
    let sender = NewsSender {
        to,
        shared: Arc::clone(&shared),
        recent: None,
    };
    let last = Timestamp::default();
    (sender, NewsReceiver { from, shared, last })
}

impl NewsSender {
    /// Keeps the last news for those who look on from elsewhere.
    pub(crate) fn keep(&mut self) -> Arc<Recent> {
        Arc::clone(self.recent.get_or_insert_default())
    }

    pub(crate) fn send(&mut self, at: Timestamp, news: News) {
        if let Some(recent) = &self.recent {
            recent.push(at, &news);
        }
        let Shared { waiting, missed } = &*self.shared;
        let is_output = is_output(&news);
        let too_many = self.to.capacity() <= if is_output { RESERVED } else { 0 };
        // One line always finds a place, however long it is.
        let waits = waiting.load(Ordering::Relaxed);
        if too_many || (is_output && waits > 0 && waits + size(&news) > MAX_BYTES) {
            missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let untold = missed.swap(0, Ordering::Relaxed);
        if untold > 0 && self.to.try_send((at, News::Missed(untold))).is_err() {
            missed.fetch_add(untold, Ordering::Relaxed);
        }
        let size = size(&news);
        waiting.fetch_add(size, Ordering::Relaxed);
        if self.to.try_send((at, news)).is_err() {
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
    fn a_stalled_watcher_misses_output_but_not_what_matters() {
        let (mut sender, mut receiver) = channel();
        let line = Line {
            bytes: Bytes::from_static(b"x"),
            omitted: 0,
        };
        let output = News::Output {
            stream: Stream::Stdout,
            line,
        };
        for _ in 0..CAPACITY {
            sender.send(Timestamp(1), output.clone());
        }
        sender.send(Timestamp(2), News::Warning("mind".into()));
        let mut seen = Vec::new();
        while let Ok((_, news)) = receiver.from.try_recv() {
            seen.push(news);
        }
        assert_eq!(seen.len(), CAPACITY - RESERVED + 2);
        assert!(matches!(seen[seen.len() - 2], News::Missed(n) if n == RESERVED as u64));
        assert!(matches!(seen.last(), Some(News::Warning(_))));
    }

    #[test]
    fn what_an_agent_streams_is_output_too() {
        let (mut sender, mut receiver) = channel();
        for _ in 0..2 * CAPACITY {
            let text = "word ".to_owned();
            sender.send(Timestamp(1), News::Agent(Event::TextDelta(text)));
        }
        sender.send(Timestamp(2), News::Warning("mind".into()));
        drop(sender);
        let mut seen = Vec::new();
        while let Some((_, news)) = receiver.blocking_recv() {
            seen.push(news);
        }
        assert_eq!(seen.len(), CAPACITY - RESERVED + 2);
        assert!(matches!(seen.last(), Some(News::Warning(_))));
    }

    #[test]
    fn long_lines_for_a_stalled_watcher_are_bounded_by_their_bytes() {
        let (mut sender, mut receiver) = channel();
        let line = Line {
            bytes: Bytes::from(vec![b'x'; 1 << 20]),
            omitted: 0,
        };
        let output = News::Output {
            stream: Stream::Stdout,
            line,
        };
        for _ in 0..100 {
            sender.send(Timestamp(1), output.clone());
        }
        assert_eq!(sender.shared.waiting.load(Ordering::Relaxed), MAX_BYTES);
        assert_eq!(sender.shared.missed.load(Ordering::Relaxed), 96);
        for _ in 0..4 {
            assert!(receiver.blocking_recv().is_some());
        }
        assert_eq!(sender.shared.waiting.load(Ordering::Relaxed), 0);
        drop(sender);
        let last = receiver.blocking_recv();
        assert!(matches!(last, Some((_, News::Missed(96)))), "{last:?}");
    }
}
