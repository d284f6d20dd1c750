use std::fmt;

use crate::Event;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The agent finished it.
    Completed,
    /// We interrupted it.
    Interrupted,
    /// The agent reported a failure of no closer kind.
    Failed,
    /// The agent's process ended without finishing it. Never a success, whatever its exit code.
    Died,
    /// The model reached its longest answer.
    MaxTokens,
    /// The agent reached its own limit of model calls.
    MaxTurns,
    /// The agent reached its own limit of money.
    BudgetExhausted,
    /// The model refused.
    Refused,
    /// The service limits the rate and the agent gave up waiting.
    RateLimited,
    /// The service failed and the agent gave up trying.
    ServiceFailed,
    /// The service does not know who is asking. Trying again is pointless until a person has logged in.
    NotLoggedIn,
    /// The session that was to be resumed does not exist. Trying again is pointless.
    SessionNotFound,
    /// The conversation is too long for the model.
    ContextOverflow,
    /// The agent said something that its driver can't make sense of.
    ProtocolError,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "the turn was completed",
            Self::Interrupted => "the turn was interrupted",
            Self::Failed => "the turn failed",
            Self::Died => "the agent ended before its turn did",
            Self::MaxTokens => "the model reached its longest answer",
            Self::MaxTurns => "the agent reached its limit of model calls",
            Self::BudgetExhausted => "the agent reached its budget",
            Self::Refused => "the model refused",
            Self::RateLimited => "the service limits the rate",
            Self::ServiceFailed => "the service failed",
            Self::NotLoggedIn => "the agent is not logged in",
            Self::SessionNotFound => "the session to resume does not exist",
            Self::ContextOverflow => "the conversation is too long for the model",
            Self::ProtocolError => "the agent broke its protocol",
        })
    }
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// What the agent or its driver says about it, where the reason alone says too little: the error, and what to do next.
    pub detail: String,
    /// How the process ended, when it did.
    pub exit: Option<ExitStatus>,
    /// The last of what the agent wrote to its standard error, for the record.
    pub stderr_tail: String,
}

impl From<EndReason> for TurnEnd {
    fn from(reason: EndReason) -> Self {
        Self {
            reason,
            detail: String::new(),
            exit: None,
            stderr_tail: String::new(),
        }
    }
}

/// Sees to it that a turn has exactly one completion and that nothing of it comes later.
///
/// Feed it what a connection reports, and tell it when the connection ends.
///
/// # Examples
///
/// ```
/// use agent_duplex::{EndReason, Event, Turn};
///
/// let mut turn = Turn::default();
/// assert!(turn.observe(Event::Started { pid: 7 }).is_some());
/// // The connection ends and owes the completion: the turn died.
/// let Some(Event::TurnCompleted(end)) = turn.finish() else { panic!() };
/// assert_eq!(end.reason, EndReason::Died);
/// assert!(turn.finish().is_none());
/// ```
#[derive(Debug, Default)]
pub struct Turn {
    completed: bool,
}

impl Turn {
    /// Returns whether the completion was reported.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.completed
    }

    /// Passes an event on, unless the turn was already over.
    pub fn observe(&mut self, event: Event) -> Option<Event> {
        if self.completed {
            return None;
        }
        self.completed = matches!(event, Event::TurnCompleted(_));
        Some(event)
    }

    /// Returns the completion that an ended connection still owes.
    pub fn finish(&mut self) -> Option<Event> {
        self.observe(Event::TurnCompleted(EndReason::Died.into()))
    }
}
