//! The trait of a place where a conversation is kept, and what it keeps and returns.

use std::fmt;

use uuid::Uuid;

use crate::{Assignment, EndReason, Error, Input, Receipt, TurnId};

/// How many receipts are recovered, to tell repeated inputs.
pub(super) const RECEIPTS: usize = 10_000;

/// Where a [`Conversation`](crate::Conversation) is kept.
///
/// Its methods block; the conversation calls them one at a time, from a thread of their own. The first error is the last call: whoever can't keep its
/// records stops.
pub trait Persistence: fmt::Debug + Send + 'static {
    /// Returns what was kept, and makes the caller the one writer: whoever recovered before can append nothing any more.
    ///
    /// Turns that never ended are marked as interrupted, for good: the next call finds none. A message that was handed on and is in no turn gets one of
    /// its own for that, with the next number: nobody knows what the agent did with it, so it is not handed on again.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] when what was kept can't be read or marked. There is no other way to say that nothing was kept than an empty answer.
    fn recover(&mut self) -> Result<Recovered, Error>;

    /// Keeps records in this order, all or none of them. They are durable when it returns.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] when they are not, or when somebody else recovered since. Then nobody knows whether they were kept.
    fn append(&mut self, records: &[Record]) -> Result<(), Error>;
}

/// One thing that is kept. Later records speak of what earlier ones introduced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// An input was accepted, and waits.
    Accepted {
        /// The receipt that its sender gets.
        receipt: Receipt,
        /// The input.
        input: Input,
    },
    /// Inputs are about to be handed to the agent as one message.
    Handed {
        /// The message.
        message: Uuid,
        /// The receipts of its inputs.
        receipts: Vec<Uuid>,
    },
    /// The agent is known not to have taken a message that was to be handed on: its inputs wait again.
    Returned {
        /// The message.
        message: Uuid,
    },
    /// Inputs belong to a turn.
    Assigned(Assignment),
    /// An input was thrown away.
    Dropped {
        /// Its receipt.
        receipt: Uuid,
    },
    /// The agent's own conversation that a later connection goes on with.
    Session {
        /// Its id; `None` when there is none any more.
        id: Option<String>,
    },
    /// A whole piece of the agent's answer.
    Message {
        /// The turn that ran.
        turn: Option<TurnId>,
        /// What it says.
        text: String,
        /// Whether it was cut off.
        partial: bool,
    },
    /// A turn is over.
    Completed {
        /// The turn.
        turn: TurnId,
        /// Why it ended.
        reason: EndReason,
        /// What there is to say about it.
        detail: String,
    },
}

/// What was kept of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The inputs that wait, oldest first, with their receipts.
    pub pending: Vec<(Receipt, Input)>,
    /// The receipts of the last 10,000 inputs, whatever became of them, oldest first.
    pub accepted: Vec<Receipt>,
    /// The turns that never ended and are interrupted now, oldest first.
    pub interrupted: Vec<Interrupted>,
    /// The agent's own conversation to go on with.
    pub session: Option<String>,
    /// The number of the last turn; 0 when there was none.
    pub turns: u64,
    /// How many pieces of the agent's answers are kept.
    pub messages: u64,
}

/// A turn that was cut off by the end of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interrupted {
    /// The turn.
    pub turn: TurnId,
    /// What was said in it, oldest first, with the receipts. It is not handed on again; whoever wants that sends it again.
    pub inputs: Vec<(Receipt, Input)>,
}

impl Interrupted {
    /// Makes one, for a [`Persistence`] of one's own.
    #[must_use]
    pub const fn new(turn: TurnId, inputs: Vec<(Receipt, Input)>) -> Self {
        Self { turn, inputs }
    }
}

/// The answer to a writer that is the one writer no more.
pub(super) fn fenced(what: &str) -> Error {
    let text = format!("{what} was taken over by another writer; stop one of the two");
    Error::persistence(text, None)
}

/// The answer to records that speak of what was never introduced.
pub(super) fn unsound() -> Error {
    let text = "a record does not go with the ones before it; report this";
    Error::persistence(text, None)
}
