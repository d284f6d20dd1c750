use bytes::Bytes;

use crate::TurnEnd;

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The agent's standard output.
    Stdout,
    /// The agent's standard error.
    Stderr,
}

/// One line of an agent's output, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The bytes as they came; not necessarily UTF-8.
    pub bytes: Bytes,
    /// How many bytes were left out of the middle because the line was over its limit.
    pub omitted: u64,
}

/// What an agent did, in words that are the same for every agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The agent's process runs.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// The agent wrote a line that its driver gives no closer meaning.
    Output {
        /// Which of its two outputs it wrote to.
        stream: Stream,
        /// What it wrote.
        line: Line,
    },
    /// The turn is over. Comes exactly once a turn, last.
    TurnCompleted(TurnEnd),
}
