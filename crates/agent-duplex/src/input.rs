//! The input of a caller, its receipt, and the message for a driver.

use std::time::SystemTime;

use uuid::Uuid;

use crate::{Error, TurnId};

/// A text for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The caller's own id for this input. It need not be unique, but [`Conversation::accept`](crate::Conversation::accept) only delivers the first
    /// input with an id.
    pub id: String,
    /// The text.
    pub text: String,
    /// The turn that this input continues; `None` for the last one. The [`Assignment`](crate::Assignment) contains it, for a caller that stores a
    /// tree of turns. It does not choose the session of the agent: that happens at the start of the agent.
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

    /// Returns this input with the turn that it continues, in the text form of [`TurnId`]; the empty text means none.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid`] if it is not the number of a turn.
    pub fn continuing_turn(mut self, turn: &str) -> Result<Self, Error> {
        self.parent = match turn {
            "" => None,
            turn => Some(turn.parse()?),
        };
        Ok(self)
    }
}

/// The proof that an input was accepted (not that the agent has read it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Unique for every acceptance, even if the id of the input repeats.
    pub id: Uuid,
    /// The id of the input.
    pub input_id: String,
    /// The time of the acceptance.
    pub at: SystemTime,
    /// Whether an earlier input has the same id, among the last 10,000. With [`send`](crate::Conversation::send) and
    /// [`execute`](crate::Conversation::execute) this is only information, and the input is delivered like any other. With
    /// [`accept`](crate::Conversation::accept) this is the receipt of the first input, and nothing is delivered.
    pub duplicate: bool,
    /// Whether the input is stored durably; otherwise it is only accepted in memory (so far).
    pub durable: bool,
}

/// One or more inputs that a driver sends as one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Unique. Agents that report the progress of a message use this id.
    pub id: Uuid,
    /// The text.
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

/// The treatment of waiting messages when the turn before them is interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueuedMessages {
    /// The agent answers them next.
    #[default]
    Keep,
    /// The agent forgets them.
    Drop,
}
