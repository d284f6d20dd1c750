//! The events that readers get, with sequence numbers and in the same order for all readers: assignments, observations and completions.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::{Error, Lifecycle, Observation, TurnEnd};

/// One event that a conversation publishes. All readers get the same events in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The [id](crate::Conversation::id) of the conversation.
    pub conversation: Uuid,
    /// Counts from 1, without gaps.
    pub sequence: u64,
    /// The event.
    pub event: ConversationEvent,
}

/// An event that a conversation publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConversationEvent {
    /// Inputs were assigned to a turn. The first assignment of a turn is its start.
    Assigned(Assignment),
    /// The agent did something.
    ///
    /// [`Event::TurnStarted`](crate::Event::TurnStarted) and [`Event::TurnCompleted`](crate::Event::TurnCompleted) are not among the events:
    /// [`Assigned`](Self::Assigned) and [`Completed`](Self::Completed) replace them. [`Event::Input`](crate::Event::Input) and
    /// [`Event::InterruptAcknowledged`](crate::Event::InterruptAcknowledged) contain the ids of receipts here, not of messages. Late events that can
    /// no longer be true are left out, but their raw lines are published.
    Observed(Observation),
    /// A turn ended. Comes exactly once for each turn; no event of that turn follows.
    Completed(Completion),
    /// The first event of a [replay](crate::Conversation::replay) that would be too long: all events up to this sequence number are left out.
    ReplayTruncated,
    /// The state of the conversation changed.
    Lifecycle(Lifecycle),
}

/// The number of a turn within its conversation. Later turns have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub(crate) u64);

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TurnId {
    type Err = Error;

    fn from_str(turn: &str) -> Result<Self, Error> {
        let number = turn.parse().ok().filter(|number| *number > 0);
        number
            .map(Self)
            .ok_or_else(|| Error::invalid(format!("invalid turn {turn:?}; turns count from 1")))
    }
}

/// The identity of an accepted input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InputRef {
    /// The id of the [`Receipt`](crate::Receipt) of the input.
    pub receipt: Uuid,
    /// The caller's own id for the input.
    pub input_id: String,
}

impl InputRef {
    /// Makes the identity of an input, for tests of implementations of [`Persistence`](crate::Persistence).
    #[must_use]
    pub fn new(receipt: Uuid, input_id: impl Into<String>) -> Self {
        Self {
            receipt,
            input_id: input_id.into(),
        }
    }
}

/// Inputs that became part of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assignment {
    /// The turn.
    pub turn: TurnId,
    /// The number of the connection on which the turn runs, from 1.
    pub generation: u32,
    /// The inputs, oldest first; none if the agent started the turn by itself.
    pub inputs: Vec<InputRef>,
    /// The turn that this turn continues: the one that an input chose, or the last completed turn in the same session.
    pub parent: Option<TurnId>,
    /// Whether an input chose the parent. If several did, the first wins, with a warning.
    pub forked: bool,
    /// Whether the turn had already started; its earlier inputs stay part of it.
    pub injected: bool,
}

impl Assignment {
    /// Makes the assignment of inputs to a new turn without a parent, for tests of implementations of [`Persistence`](crate::Persistence).
    #[must_use]
    pub const fn new(turn: TurnId, generation: u32, inputs: Vec<InputRef>) -> Self {
        Self {
            turn,
            generation,
            inputs,
            parent: None,
            forked: false,
            injected: false,
        }
    }
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The turn.
    pub turn: TurnId,
    /// The end of the turn.
    pub end: TurnEnd,
    /// The number of inputs that are not answered yet: waiting inputs, delivered inputs in no turn, and the inputs of the next turn if it was
    /// already assigned.
    pub pending: usize,
}
