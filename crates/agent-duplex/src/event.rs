//! The events that drivers report. They are the same for every agent, and come with the agent's own line.

use std::ops::AddAssign;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use uuid::Uuid;

#[cfg(feature = "serde")]
use crate::ids;
use crate::{ExitStatus, PermissionRequest, TurnEnd};

/// The stream that a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Stream {
    /// The agent's standard output.
    Stdout,
    /// The agent's standard error.
    Stderr,
}

/// One line of an agent's output, without its line feed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Line {
    /// The original bytes; not necessarily UTF-8. Clones share them.
    #[cfg_attr(feature = "serde", serde(with = "lossy_text"))]
    pub bytes: Bytes,
    /// The number of bytes that were left out of the middle because the line was too long.
    pub omitted: u64,
}

/// A report of a connection: an original line and its meaning.
///
/// A line without events is output that its driver can't interpret further, such as a message type of a newer agent. Events without a line come from
/// the driver itself: the end of a process, or the end of a turn that the agent did not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The line, and the stream that it came from.
    pub raw: Option<(Stream, Line)>,
    /// The meaning of the line, in order.
    pub events: Vec<Event>,
}

impl Observation {
    /// Creates the observation of a line without events.
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

/// An action of an agent, in a form that is the same for every agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Event {
    /// The process of the agent runs.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// The process of the agent ended while no turn ran. During a turn, [`TurnEnd::exit`] contains the status. The driver reports this before the end
    /// of the output.
    Exited(ExitStatus),
    /// The id of the agent's own session. Comes once, and again only if the id changes.
    Session {
        /// The id by which a later process can continue the session.
        id: String,
    },
    /// The session is on disk up to this position. Comes before the end of each turn, if the agent can make a copy of a session that ends there.
    SessionSaved {
        /// The position, which only grows.
        position: u64,
    },
    /// The agent reported its model, its version, or other facts that are useful to show once.
    Identified {
        /// The agent's program and version.
        agent: String,
        /// The model.
        model: String,
    },
    /// The new state of a message that was sent.
    Input {
        /// The id of the message.
        #[cfg_attr(feature = "serde", serde(with = "ids::text"))]
        id: Uuid,
        /// The state of the message.
        state: InputState,
    },
    /// A turn starts. A connection that reports this for one turn must report it for all turns that finish.
    TurnStarted {
        /// The messages that the turn answers; none if the agent starts by itself or does not know them.
        #[cfg_attr(feature = "serde", serde(with = "ids::texts"))]
        inputs: Vec<Uuid>,
    },
    /// A piece of the answer while it is written. The pieces add up to the [`Event::Message`] that follows, which is missing if the turn is
    /// interrupted.
    TextDelta(String),
    /// A piece of the model's thoughts.
    ThinkingDelta(String),
    /// A whole piece of the answer.
    Message {
        /// The text.
        text: String,
        /// Whether it is incomplete because of an interrupt or the end of the process.
        partial: bool,
    },
    /// The agent accepts messages within its turn now, and only until the next read; see [`InputPolicy::Poll`](crate::InputPolicy::Poll). Readers
    /// don't get this event.
    AcceptsMessages,
    /// A tool was called.
    ToolStarted {
        /// The id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// The action of the tool, on one line: the command, the file. The text comes from the model and can contain anything.
        summary: String,
    },
    /// A running tool made progress.
    ToolProgress {
        /// The id of the call.
        id: String,
    },
    /// A tool ended. Comes exactly once for each tool that started, before the end of its turn.
    ToolFinished {
        /// The id of the call.
        id: String,
        /// How it ended.
        outcome: ToolOutcome,
        /// The beginning of the tool's result.
        text: String,
    },
    /// The agent asks for a permission and waits for [`Connection::answer`](crate::Connection::answer). The end of a turn withdraws open requests. If
    /// the agent still needs an answer after that, for example for a background task, it asks again.
    PermissionRequested(PermissionRequest),
    /// A permission request needs no answer any more.
    PermissionWithdrawn {
        /// The id of the request.
        id: String,
    },
    /// The agent denied a tool by itself, without asking.
    PermissionDenied {
        /// The name of the tool.
        tool: String,
        /// The agent's message about it.
        message: String,
    },
    /// The usage since the last such event.
    UsageReported(Usage),
    /// The service limits the rate.
    RateLimited {
        /// Whether the service refuses requests now; otherwise this is a warning.
        rejected: bool,
        /// The time when the limit ends.
        resets_at: Option<SystemTime>,
        /// The name of the limit, in the service's words.
        limit: String,
    },
    /// A request to the service failed, and the agent tries it again.
    Retrying {
        /// The number of the try that failed.
        attempt: u32,
        /// The maximum number of tries.
        max_attempts: u32,
        /// The time that the agent waits before the next try.
        delay: Duration,
        /// The HTTP status; `None` if there was no response.
        status: Option<u16>,
        /// The error in the agent's words.
        error: String,
    },
    /// The number of tasks that the agent runs in the background now.
    BackgroundTasks(u32),
    /// The agent's context was compacted or cleared.
    ContextReset {
        /// The reason, in the agent's words.
        reason: String,
    },
    /// The agent acknowledged an interrupt.
    InterruptAcknowledged {
        /// The messages that are queued and that the agent answers next.
        #[cfg_attr(feature = "serde", serde(with = "ids::texts"))]
        queued: Vec<Uuid>,
    },
    /// The line of this observation is text for people and not part of the agent's protocol, such as the error message of a launcher.
    PlainLine,
    /// A warning of the driver: a problem, and the driver's reaction to it.
    Warning(String),
    /// The turn ended. Comes exactly once for each turn, as its last event.
    TurnCompleted(TurnEnd),
}

impl Event {
    /// Returns whether more output of the agent may be read before this event is handled: the event changes neither the agent's input nor the result
    /// of a waiting caller.
    pub(crate) const fn may_batch(&self) -> bool {
        matches!(
            self,
            Self::TextDelta(_)
                | Self::ThinkingDelta(_)
                | Self::Message { .. }
                | Self::ToolStarted { .. }
                | Self::ToolProgress { .. }
                | Self::ToolFinished { .. }
                | Self::UsageReported(_)
                | Self::Identified { .. }
                | Self::TurnStarted { .. }
                | Self::Input {
                    state: InputState::Queued | InputState::InTurn,
                    ..
                }
        )
    }
}

/// The state of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum InputState {
    /// The agent has the message, and handles it later.
    Queued,
    /// The message is part of the running turn.
    InTurn,
    /// The agent dropped the message; the text gives the reason.
    Dropped(String),
}

/// How a tool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ToolOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was denied.
    Denied,
    /// The turn ended before the tool did; the effects of the tool are unknown.
    Interrupted,
}

impl ToolOutcome {
    const ALL: [Self; 4] = [
        Self::Succeeded,
        Self::Failed,
        Self::Denied,
        Self::Interrupted,
    ];

    /// Returns the name for transcripts and other text: `done`, `failed`, `denied` or `interrupted`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "done",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Interrupted => "interrupted",
        }
    }

    /// Returns the outcome with this [name](Self::name), if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// The usage of an agent. Amounts add up; the sum of all such events is the total. Create it with [`Usage::tokens`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Usage {
    /// Tokens that the model read, including those from a cache.
    pub input_tokens: u64,
    /// The input tokens that came from a cache, which usually cost less; 0 if the agent doesn't report them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cached_input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Cost in millionths of a US dollar, as reported by the agent; 0 if it reports none.
    pub cost_microusd: u64,
}

impl Usage {
    /// Creates the usage of these numbers of tokens.
    #[must_use]
    pub const fn tokens(input: u64, output: u64) -> Self {
        Self {
            input_tokens: input,
            cached_input_tokens: 0,
            output_tokens: output,
            cost_microusd: 0,
        }
    }

    /// Returns this usage with the number of its input tokens that came from a cache.
    #[must_use]
    pub const fn with_cached_input(mut self, tokens: u64) -> Self {
        self.cached_input_tokens = tokens;
        self
    }

    /// Returns this usage with a cost in millionths of a US dollar.
    #[must_use]
    pub const fn with_cost(mut self, microusd: u64) -> Self {
        self.cost_microusd = microusd;
        self
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_input_tokens =
            { self.cached_input_tokens }.saturating_add(other.cached_input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(other.cost_microusd);
    }
}

/// Serialises bytes as text; bytes that are not UTF-8 become U+FFFD.
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
