//! The reasons why turns end, for decisions of the caller and as text for people.

use std::fmt;

/// The way a process ended.
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

/// The reason why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum EndReason {
    /// The agent finished the turn.
    Completed,
    /// The conversation interrupted the turn.
    Interrupted,
    /// The agent reported a failure without a more specific reason.
    Failed,
    /// The process of the agent ended without finishing the turn. Never a success, even with exit code 0.
    Died,
    /// The model reached its maximum answer length.
    MaxTokens,
    /// The agent reached its own limit of model calls.
    MaxTurns,
    /// The agent reached its own cost limit.
    BudgetExhausted,
    /// The model refused.
    Refused,
    /// The service limits the rate, and the agent gave up waiting.
    RateLimited,
    /// The service failed, and the agent gave up trying.
    ServiceFailed,
    /// The turn failed, and another try may succeed later: the agent asks for it, or its disk is full.
    TemporaryFailure,
    /// The agent is not logged in. Another try is useless until a person has logged in.
    NotLoggedIn,
    /// The session to resume does not exist. Another try is useless.
    SessionNotFound,
    /// The conversation is too long for the model.
    ContextOverflow,
    /// The agent sent output that its driver can't interpret.
    ProtocolError,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "the turn was completed",
            Self::Interrupted => "the turn was interrupted",
            Self::Failed => "the turn failed",
            Self::Died => "the agent ended before its turn did",
            Self::MaxTokens => "the model reached its maximum answer length",
            Self::MaxTurns => "the agent reached its limit of model calls",
            Self::BudgetExhausted => "the agent reached its budget",
            Self::Refused => "the model refused",
            Self::RateLimited => "the service limits the rate",
            Self::ServiceFailed => "the service failed",
            Self::TemporaryFailure => "the turn failed, and another try may succeed",
            Self::NotLoggedIn => "the agent is not logged in",
            Self::SessionNotFound => "the session to resume does not exist",
            Self::ContextOverflow => "the conversation is too long for the model",
            Self::ProtocolError => "the agent broke its protocol",
        })
    }
}

/// The end of a turn. Its text consists of the reason, the detail and the exit status, if they exist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TurnEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// Details from the agent or its driver, if the reason alone is not enough: the error, and the next step.
    pub detail: String,
    /// How the process ended, if it did.
    pub exit: Option<ExitStatus>,
    /// The agent's last output that is not part of its protocol: its standard error, then other lines of its standard output.
    pub output_tail: String,
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
            output_tail: String::new(),
        }
    }
}
