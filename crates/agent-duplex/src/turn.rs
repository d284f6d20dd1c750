//! Why turns end: the reasons that a caller decides on, and the text that a person reads.

use std::fmt;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// The end of a turn. Its text is the reason, the detail and the exit, as far as there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

impl fmt::Display for TurnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        match self.exit {
            Some(exit) => write!(f, " ({exit})"),
            None => Ok(()),
        }
    }
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
