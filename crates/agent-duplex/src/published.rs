//! What readers get, in one order for all of them: assignments, observations and completions, under numbers.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::{Error, Lifecycle, Observation, TurnEnd};

/// One thing that a conversation tells its readers. All of them get the same things in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Counts from 1, without gaps.
    pub sequence: u64,
    /// What it is.
    pub what: What,
}

/// What a conversation tells its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// Inputs belong to a turn. The first one of a turn is its beginning.
    Assigned(Assignment),
    /// The agent did something.
    ///
    /// [`Event::TurnStarted`](crate::Event::TurnStarted) and [`Event::TurnCompleted`](crate::Event::TurnCompleted) are not among the events: they became
    /// [`Assigned`](Self::Assigned) and [`Completed`](Self::Completed). [`Event::Input`](crate::Event::Input) and
    /// [`Event::InterruptTaken`](crate::Event::InterruptTaken) speak of receipts here, not of messages. What comes too late to be true is left out of
    /// the events, never out of the raw lines.
    Observed(Observation),
    /// A turn is over. Comes exactly once a turn, and after it nothing more of that turn.
    Completed(Completion),
    /// The first thing of a [replay](crate::Conversation::replay) that would have been too long: what it leaves out ends with this sequence number.
    ReplayTruncated,
    /// The conversation stands elsewhere now.
    Lifecycle(Lifecycle),
}

/// A turn, within its conversation. Later turns are greater.
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
            .ok_or_else(|| Error::invalid(format!("{turn:?} is no turn; turns count from 1")))
    }
}

/// An input as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InputRef {
    /// The id of its [`Receipt`](crate::Receipt).
    pub receipt: Uuid,
    /// The caller's own id for it.
    pub input_id: String,
}

/// Inputs that became part of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The turn.
    pub turn: TurnId,
    /// The number of the connection that it runs on, from 1.
    pub generation: u32,
    /// The inputs, oldest first; none when the agent began the turn by itself.
    pub inputs: Vec<InputRef>,
    /// The turn that this one goes on from: the one that an input chose, or the last that was completed in the same session.
    pub parent: Option<TurnId>,
    /// Whether an input chose the parent. Of several, the first wins, with a warning.
    pub forked: bool,
    /// Whether the turn had begun before; its earlier inputs stay with it.
    pub injected: bool,
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The turn.
    pub turn: TurnId,
    /// How it ended.
    pub end: TurnEnd,
    /// How many inputs wait, were handed on and are in no turn yet, or are in one that waited for this one.
    pub pending: usize,
}
