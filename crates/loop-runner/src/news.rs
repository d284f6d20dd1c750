use std::time::Duration;

use agent_duplex::{Line, ProcessName, Stream};
use loop_state::{Notice, Timestamp};
use tokio::sync::mpsc;

/// How many news wait for a slow watcher.
const CAPACITY: usize = 4096;
/// How many of those places agent output leaves to the news that matter.
const RESERVED: usize = 512;

/// Something that a watcher of the run may want to show.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum News {
    /// The run went on; what this says is on disk.
    Run(Notice),
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
        /// Whether it passed.
        passed: bool,
        /// The tail of what it printed.
        tail: String,
        /// How long it ran.
        took: Duration,
    },
    /// The turn or the command that runs is being ended, within this time.
    Stopping {
        /// The time that is left for it.
        budget: Duration,
    },
    /// These processes were alive when they should not have been, and were ended.
    Ended {
        /// Why they were found.
        why: &'static str,
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

/// A command of the loop's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// The gate with this index.
    Gate(u32),
    /// The check.
    Check,
}

/// The watcher's end: news with their times, in order. A watcher that lags misses agent output and never holds the run up.
pub type NewsReceiver = mpsc::Receiver<(Timestamp, News)>;

#[derive(Debug)]
pub(crate) struct NewsSender {
    to: mpsc::Sender<(Timestamp, News)>,
    missed: u64,
}

pub(crate) fn channel() -> (NewsSender, NewsReceiver) {
    let (to, from) = mpsc::channel(CAPACITY);
    (NewsSender { to, missed: 0 }, from)
}

impl NewsSender {
    pub(crate) fn send(&mut self, at: Timestamp, news: News) {
        let spare = if matches!(news, News::Output { .. }) {
            RESERVED
        } else {
            0
        };
        if self.to.capacity() <= spare {
            self.missed += 1;
            return;
        }
        if self.missed > 0 && self.to.try_send((at, News::Missed(self.missed))).is_ok() {
            self.missed = 0;
        }
        // A watcher that is gone wants no news.
        let _gone = self.to.try_send((at, news));
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
        while let Ok((_, news)) = receiver.try_recv() {
            seen.push(news);
        }
        assert_eq!(seen.len(), CAPACITY - RESERVED + 2);
        assert!(matches!(seen[seen.len() - 2], News::Missed(n) if n == RESERVED as u64));
        assert!(matches!(seen.last(), Some(News::Warning(_))));
    }
}
