//! What drivers report, in words that are the same for each agent, with the agent's own line beside them.

use std::ops::AddAssign;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use uuid::Uuid;

#[cfg(feature = "serde")]
use crate::ids;
use crate::{Ask, ExitStatus, TurnEnd};

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Stream {
    /// The agent's standard output.
    Stdout,
    /// The agent's standard error.
    Stderr,
}

/// One line of an agent's output, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Line {
    /// The bytes as they came; not necessarily UTF-8. Clones share them.
    #[cfg_attr(feature = "serde", serde(with = "lossy_text"))]
    pub bytes: Bytes,
    /// How many bytes were left out of the middle because the line was over its limit.
    pub omitted: u64,
}

/// What a connection has to report: a line as it came, and what it means.
///
/// A line without events is output that its driver gives no closer meaning, such as a message type of a newer agent. Events without a line are the
/// driver's own: a process that ended, the end of a turn that the agent still owes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The line, and which of the agent's two outputs it was written to.
    pub raw: Option<(Stream, Line)>,
    /// What it means, in order.
    pub events: Vec<Event>,
}

impl Observation {
    /// Makes the observation of a line that means nothing closer.
    #[must_use]
    pub fn output(stream: Stream, line: Line) -> Self {
        Self {
            raw: Some((stream, line)),
            events: Vec::new(),
        }
    }
}

impl From<Event> for Observation {
    fn from(event: Event) -> Self {
        Self {
            raw: None,
            events: vec![event],
        }
    }
}

/// What an agent did, in words that are the same for every agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Event {
    /// The agent's process runs.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// The agent's process ended while no turn ran. During a turn, [`TurnEnd::exit`] says so. It is the driver's to report, before the end of its words.
    Exited(ExitStatus),
    /// The agent's own conversation has this id. Comes once, and again only if the id changes.
    Session {
        /// The id, by which a later process can go on with it.
        id: String,
    },
    /// The agent named its model, its version or what else a person may want to see once.
    Identified {
        /// The agent's program and version.
        agent: String,
        /// The model.
        model: String,
    },
    /// What became of a message that was sent.
    Input {
        /// The message's id.
        #[cfg_attr(feature = "serde", serde(with = "ids::text"))]
        id: Uuid,
        /// Where it stands now.
        state: InputState,
    },
    /// A turn begins. Who reports this for one turn does it for all that are finished.
    TurnStarted {
        /// The messages that it answers; none when the agent begins by itself or does not know.
        #[cfg_attr(feature = "serde", serde(with = "ids::texts"))]
        inputs: Vec<Uuid>,
    },
    /// A piece of the answer as it is written. The pieces add up to the [`Event::Message`] that follows, which may be missing when the turn is cut off.
    TextDelta(String),
    /// A piece of the model's thoughts.
    ThinkingDelta(String),
    /// A whole piece of the answer.
    Message {
        /// What it says.
        text: String,
        /// Whether it was cut off by an interrupt or by the end of the process.
        partial: bool,
    },
    /// The agent takes messages within its turn now, and not while it is read on; see [`InputPolicy::Poll`](crate::InputPolicy::Poll). Readers don't get
    /// to see it.
    Polled,
    /// A tool was called.
    ToolStarted {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// What it does, on one line: the command, the file. Comes from the model; it may hold anything.
        summary: String,
    },
    /// A tool that runs gave a sign of life.
    ToolProgress {
        /// The call's id.
        id: String,
    },
    /// A tool ended. Comes exactly once for each that was started, before the end of its turn.
    ToolFinished {
        /// The call's id.
        id: String,
        /// How it ended.
        outcome: ToolOutcome,
        /// The beginning of what it returned.
        text: String,
    },
    /// The agent asks whether it may; it waits for [`Connection::answer`](crate::Connection::answer). The end of a turn withdraws what is open; what is
    /// waited for beyond that, say by a task in the background, is asked again then.
    PermissionAsked(Ask),
    /// An ask needs no answer any more.
    PermissionWithdrawn {
        /// The ask's id.
        id: String,
    },
    /// The agent denied a tool by itself, without asking.
    PermissionDenied {
        /// The tool's name.
        tool: String,
        /// What it said about it.
        message: String,
    },
    /// What was used since the last such event.
    Used(Usage),
    /// The service limits the rate.
    RateLimited {
        /// Whether it refuses now; otherwise it warns.
        rejected: bool,
        /// When the limit ends.
        resets_at: Option<SystemTime>,
        /// Which limit, in the service's words.
        limit: String,
    },
    /// A request to the service failed and is tried again by the agent.
    Retrying {
        /// The number of the try that failed.
        attempt: u32,
        /// How many there will be at most.
        of: u32,
        /// How long the agent waits before.
        delay: Duration,
        /// The HTTP status; `None` when there was no answer.
        status: Option<u16>,
        /// The error in the agent's words.
        error: String,
    },
    /// How many tasks the agent has running in the background now.
    BackgroundTasks(u32),
    /// The agent's context was compacted or cleared.
    ContextReset {
        /// Why, in the agent's words.
        why: String,
    },
    /// The agent took notice of an interrupt.
    InterruptTaken {
        /// The messages that are queued and will be answered next.
        #[cfg_attr(feature = "serde", serde(with = "ids::texts"))]
        queued: Vec<Uuid>,
    },
    /// Something is not as it should be, and what the driver did about it.
    Warning(String),
    /// The turn is over. Comes exactly once a turn, last.
    TurnCompleted(TurnEnd),
}

impl Event {
    /// Returns whether what else the agent has said by now is read before anything is done about this: it makes no difference to what the agent gets,
    /// or to who waits for it.
    pub(crate) const fn lets_read_on(&self) -> bool {
        matches!(
            self,
            Self::TextDelta(_)
                | Self::ThinkingDelta(_)
                | Self::Message { .. }
                | Self::ToolStarted { .. }
                | Self::ToolProgress { .. }
                | Self::ToolFinished { .. }
                | Self::Used(_)
                | Self::Identified { .. }
                | Self::TurnStarted { .. }
                | Self::Input {
                    state: InputState::Queued | InputState::Taken,
                    ..
                }
        )
    }
}

/// Where a message stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum InputState {
    /// The agent has it and will look at it when it can.
    Queued,
    /// It is part of the turn that runs.
    Taken,
    /// The agent threw it away; the text says why.
    Dropped(String),
}

/// How a tool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ToolOutcome {
    /// It did what it was called for.
    Done,
    /// It failed.
    Failed,
    /// It was not allowed.
    Denied,
    /// The turn ended before it did; what it had done is not known.
    Cut,
}

/// What an agent used. Amounts add up; a reader that missed none has the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Usage {
    /// Tokens that the model read, those from a cache included.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Millionths of a US dollar, by the agent's own reckoning; 0 when it does not say.
    pub cost_microusd: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(other.cost_microusd);
    }
}

/// Bytes as text; those that are not UTF-8 become U+FFFD.
#[cfg(feature = "serde")]
mod lossy_text {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&String::from_utf8_lossy(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        String::deserialize(from).map(Bytes::from)
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests;
