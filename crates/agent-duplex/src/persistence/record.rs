//! The trait of a store for conversations, and its records.

use std::fmt;

use uuid::Uuid;

use crate::{Assignment, EndReason, Error, Input, Receipt, TurnId};

/// The number of receipts that are recovered, to recognise repeated inputs.
pub(super) const RECEIPTS: usize = 10_000;

/// A store for a [`Conversation`](crate::Conversation).
///
/// Its methods block; the conversation calls them one at a time, on a thread of its own. After the first error there is no further call: a
/// conversation that can't store its records stops.
pub trait Persistence: fmt::Debug + Send + 'static {
    /// Returns the stored conversation, and makes the caller the only writer: an earlier caller can append nothing any more.
    ///
    /// This permanently marks turns that never ended as interrupted: the next call finds none. A message that was delivered and is in no turn is
    /// marked in the same way: it gets a turn of its own, with the next number. It is unknown what the agent did with the message, so it is not
    /// delivered again.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] if the stored conversation can't be read or marked. An empty result means that nothing is stored.
    fn recover(&mut self) -> Result<RecoveredConversation, Error>;

    /// Stores records in this order, all or none of them. They are durable when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] if they are not durable, or if another caller has recovered since. Then it is unknown whether they were stored.
    fn append(&mut self, records: &[PersistedRecord]) -> Result<(), Error>;
}

/// One stored record. Later records refer to earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PersistedRecord {
    /// An input was accepted, and waits.
    Accepted {
        /// The receipt that its sender gets.
        receipt: Receipt,
        /// The input.
        input: Input,
    },
    /// Inputs will be delivered to the agent as one message.
    Delivered {
        /// The message.
        message: Uuid,
        /// The receipts of its inputs.
        receipts: Vec<Uuid>,
    },
    /// The agent has certainly not accepted a message that was marked as delivered: its inputs wait again.
    Returned {
        /// The message.
        message: Uuid,
    },
    /// Inputs were assigned to a turn.
    Assigned(Assignment),
    /// An input was dropped.
    Dropped {
        /// Its receipt.
        receipt: Uuid,
    },
    /// The session of the agent that a later connection continues.
    Session {
        /// The id of the session; `None` if there is none any more.
        id: Option<String>,
    },
    /// A whole piece of the agent's answer.
    Message {
        /// The turn that ran.
        turn: Option<TurnId>,
        /// The text.
        text: String,
        /// Whether it is incomplete.
        partial: bool,
    },
    /// A turn ended.
    Completed {
        /// The turn.
        turn: TurnId,
        /// The reason of the end.
        reason: EndReason,
        /// The detail of the end.
        detail: String,
    },
}

/// A stored conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveredConversation {
    /// The inputs that wait, oldest first, with their receipts.
    pub pending: Vec<(Receipt, Input)>,
    /// The receipts of the last 10,000 inputs in any state, oldest first.
    pub accepted: Vec<Receipt>,
    /// The turns that never ended and are now marked as interrupted, oldest first.
    pub interrupted: Vec<InterruptedTurn>,
    /// The session to continue.
    pub session: Option<String>,
    /// The number of the last turn; 0 when there was none.
    pub turns: u64,
    /// The number of stored pieces of the agent's answers.
    pub messages: u64,
}

/// A turn that was interrupted because its process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterruptedTurn {
    /// The turn.
    pub turn: TurnId,
    /// The inputs of the turn, oldest first, with their receipts. The conversation does not deliver them again; the caller can send them again.
    pub inputs: Vec<(Receipt, Input)>,
}

impl InterruptedTurn {
    /// Creates a value, for implementations of [`Persistence`].
    #[must_use]
    pub const fn new(turn: TurnId, inputs: Vec<(Receipt, Input)>) -> Self {
        Self { turn, inputs }
    }
}

/// Returns the error for a writer that another writer has replaced.
pub(super) fn fenced(what: &str) -> Error {
    let text = format!("another writer took over {what}; stop one of the two");
    Error::persistence(text, None)
}

/// Returns the error for records that refer to unknown things.
pub(super) fn unsound() -> Error {
    let text = "a record does not match the earlier records; report this bug";
    Error::persistence(text, None)
}
