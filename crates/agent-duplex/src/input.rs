//! What goes to the agent, on its way: the caller's input, the receipt for it, and the message that a driver gets.

use std::time::SystemTime;

use uuid::Uuid;

use crate::{Error, TurnId};

/// Something to say to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The caller's own id for it. It need not be unique, but [`Conversation::accept`](crate::Conversation::accept) delivers only the first input of an
    /// id.
    pub id: String,
    /// What it says.
    pub text: String,
    /// The turn to go on from; `None` for the last one. It is noted in the [`Assignment`](crate::Assignment), for whoever keeps a tree of turns; the
    /// agent's own session is chosen at its start.
    pub parent: Option<TurnId>,
}

impl Input {
    /// Makes an input with a random id.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            id: Uuid::new_v4().to_string(),
            text: text.into(),
            parent: None,
        }
    }

    /// Returns this input with the turn to go on from, as [`TurnId`] is written; the empty text means none.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid`] when it is no turn's number.
    pub fn from_parent(mut self, turn: &str) -> Result<Self, Error> {
        self.parent = match turn {
            "" => None,
            turn => Some(turn.parse()?),
        };
        Ok(self)
    }
}

/// Proof that an input was taken, not that it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Unique for every acceptance, even when the input's id repeats.
    pub id: Uuid,
    /// The id of the input.
    pub input_id: String,
    /// When it was taken.
    pub at: SystemTime,
    /// Whether the input's id came before, among the last 10,000. From [`send`](crate::Conversation::send) and
    /// [`execute`](crate::Conversation::execute) that is only said, and the input is delivered like any other; from
    /// [`accept`](crate::Conversation::accept) this is the receipt of the first one, and nothing is delivered.
    pub duplicate: bool,
    /// Whether the input is kept; otherwise it is accepted in memory only (so far).
    pub durable: bool,
}

/// What a driver is given to hand on: one or more inputs as one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Unique; agents that report what became of a message do it under this id.
    pub id: Uuid,
    /// What it says.
    pub text: String,
}

impl Message {
    /// Makes a message with a random id.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            id: Uuid::new_v4(),
            text: text.into(),
        }
    }
}

/// What becomes of messages that wait when the turn before them is interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Queued {
    /// They are answered next.
    #[default]
    Keep,
    /// The agent forgets them.
    Drop,
}
