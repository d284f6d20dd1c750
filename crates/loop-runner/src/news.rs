//! What a run tells its watchers, and a channel in which those who are slow miss output and never hold it up.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use agent_duplex::{Event, Line, ProcessName, Stream};
use loop_state::{CheckResult, Command, Notice, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::Awaited;
use crate::control::Recent;

/// How many news wait for a slow watcher.
const CAPACITY: usize = 4096;
/// How many of those places agent output leaves to the news that matter.
const RESERVED: usize = 512;
/// How many bytes of output wait for a slow watcher.
const MAX_BYTES: usize = 4 << 20;

/// Something that a watcher of the run may want to show.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum News {
    /// The run went on; what this says is on disk.
    Run(Notice),
    /// What follows belongs to this phase; told of a run that has several.
    Phase {
        /// Its name.
        name: String,
        /// Its number, from 1.
        number: u32,
        /// How many phases there are.
        of: u32,
    },
    /// The agent's process runs.
    AgentStarted {
        /// Its process id.
        pid: u32,
    },
    /// The agent wrote a line.
    Output {
        /// Which of its two outputs it wrote to.
        stream: Stream,
        /// What it wrote.
        line: Line,
    },
    /// What the agent did, in words that are the same for every agent. A driver that has them says nothing by [`News::Output`].
    Agent(agent_duplex::Event),
    /// The turn was interrupted, and the agent goes on with what was said before it could be seen.
    GoesOn,
    /// The agent can't take a steer now: it gets it in a turn behind the present one if it can be talked to then, else with the next prompt.
    NextPrompt(u32),
    /// A person said this to the agent, wherever they said it; what becomes of it is told by its number.
    Said {
        /// The number of the steer.
        id: u32,
        /// What they said.
        text: String,
    },
    /// A message to the run makes no sense now; the text says why.
    Rejected(Cow<'static, str>),
    /// Why a person wants the run to wait; the newest reason counts.
    PauseReason(String),
    /// A gate or the check was started.
    CommandStarted {
        /// Which.
        command: Command,
        /// Its text.
        text: String,
    },
    /// A gate or the check ended.
    CommandEnded {
        /// Which.
        command: Command,
        /// How it ended.
        result: CheckResult,
        /// How long it ran.
        took: Duration,
    },
    /// The work of an iteration was committed to git.
    Committed {
        /// Its number.
        iteration: u32,
        /// The commit.
        commit: String,
        /// What was left out of it, and why.
        left_out: Vec<String>,
    },
    /// The run goes on, but its present turn is being ended.
    EndingTurn {
        /// Why.
        why: String,
        /// How long that may take.
        budget: Duration,
    },
    /// The agent has said nothing for most of the time that it may; when that is over, its turn is ended.
    Silent {
        /// How long.
        silent: Duration,
        /// How long it may.
        of: Duration,
    },
    /// The turn is over and the agent has something running in the background: that is waited for, until nothing comes of it for this long.
    Holding {
        /// How many tasks.
        tasks: u32,
        /// How long none may end and no turn begin.
        patience: Duration,
    },
    /// The run still waits for its agent to be able to work; told each 10 min.
    StillWaiting {
        /// Until when.
        until: Timestamp,
        /// How long that is from now.
        left: Duration,
    },
    /// The run is being stopped, which is on disk: what runs is ended, within this time.
    Stopping {
        /// The time that is left for it.
        budget: Duration,
        /// What the run waits for; `None` where nothing runs.
        #[serde(default)]
        awaited: Option<Awaited>,
    },
    /// The stop of the run has not ended yet; told from its first second on.
    StopWaiting {
        /// What the run waits for.
        awaited: Awaited,
        /// The time until that is killed, in whole seconds.
        left: Duration,
    },
    /// These processes were alive when they should not have been, and were ended.
    Ended {
        /// Why they were found.
        why: Cow<'static, str>,
        /// Which.
        processes: Vec<ProcessName>,
    },
    /// These processes could not be ended.
    Survivors(Vec<ProcessName>),
    /// Something is not as it should be, and what was done about it.
    Warning(String),
    /// The watcher was too slow for this many lines; the transcript has them.
    Missed(u64),
}

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

/// What the agent says, of which a slow watcher misses some, rather than what became of the run.
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

/// How much memory it takes, beside its place.
pub(crate) fn size(news: &News) -> usize {
    match news {
        News::Output { line, .. } => line.bytes.len(),
        News::Said { text, .. } => text.len(),
        News::Agent(
            Event::TextDelta(text)
            | Event::ThinkingDelta(text)
            | Event::Message { text, .. }
            | Event::ToolStarted { summary: text, .. }
            | Event::ToolFinished { text, .. },
        ) => text.len(),
        _ => 0,
    }
}

/// What both ends see.
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
