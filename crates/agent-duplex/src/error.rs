//! The only error type of the crate, with all its messages in one place and the predicates for callers.

use std::fmt;
use std::sync::Arc;

use crate::StopReport;

/// The reason why a conversation could not continue. Clones share their source.
#[derive(Clone, Debug)]
pub struct Error(Arc<ErrorKind>);

#[derive(Debug, thiserror::Error)]
enum ErrorKind {
    #[error("the {agent} agent can't {what}; {hint}")]
    Unsupported {
        agent: String,
        what: String,
        hint: String,
    },
    #[error("the agent is gone: {0}")]
    Gone(String),
    #[error("{0} accepts no more input now; try again later")]
    Full(String),
    #[error("{message}")]
    Start {
        message: String,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
        /// The end of the processes, if the agent possibly ran for a moment.
        lost: Option<StopReport>,
    },
    #[error("{0}")]
    Invalid(String),
    #[error("the agent refuses: {0}")]
    Refused(String),
    #[error("{message}")]
    Held {
        message: String,
        /// Whether only the remaining processes of an ended agent have the session.
        releasing: bool,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error(
        "the agent was started {} without completing a turn ({last}); fix the cause, then start the agent",
        start_count_text(*.starts)
    )]
    CrashLoop { starts: u32, last: String },
    #[error("can't store the conversation: {message}")]
    Persistence {
        message: String,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

fn start_count_text(starts: u32) -> String {
    match starts {
        1 => "once".to_owned(),
        starts => format!("{starts} times in a row"),
    }
}

impl Error {
    /// Creates the error for a capability that `agent` doesn't have: `what` completes "can't …", `hint` names an alternative.
    #[must_use]
    pub fn unsupported(
        agent: impl Into<String>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self(Arc::new(ErrorKind::Unsupported {
            agent: agent.into(),
            what: what.into(),
            hint: hint.into(),
        }))
    }

    /// Creates the error for an agent that could not be started; `message` names the next step.
    #[must_use]
    pub fn start(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(ErrorKind::Start {
            message: message.into(),
            source,
            lost: None,
        }))
    }

    /// Creates the error for an agent that possibly ran for a moment, and whose start failed. `report` is the end of its processes; the conversation
    /// adds it to its own report.
    #[must_use]
    pub fn lost_start(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
        report: StopReport,
    ) -> Self {
        Self(Arc::new(ErrorKind::Start {
            message: message.into(),
            source,
            lost: Some(report),
        }))
    }

    /// Returns the end of the processes of an agent that possibly ran although its start failed.
    #[must_use]
    pub fn lost_processes(&self) -> Option<&StopReport> {
        match &*self.0 {
            ErrorKind::Start { lost, .. } => lost.as_ref(),
            _ => None,
        }
    }

    /// Creates the error for a message to an agent whose process ended; `how` describes its end.
    #[must_use]
    pub fn agent_gone(how: impl Into<String>) -> Self {
        Self(Arc::new(ErrorKind::Gone(how.into())))
    }

    /// Creates the error for a message without room; `who` names the queue or the agent that is full.
    #[must_use]
    pub fn full(who: impl Into<String>) -> Self {
        Self(Arc::new(ErrorKind::Full(who.into())))
    }

    /// Creates the error for a request that the agent itself refused; `why` is the agent's reason.
    #[must_use]
    pub fn refused(why: impl Into<String>) -> Self {
        Self(Arc::new(ErrorKind::Refused(why.into())))
    }

    /// Creates the error for a session that another process uses; `message` names that process and the next step.
    #[must_use]
    pub fn session_in_use(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(ErrorKind::Held {
            message: message.into(),
            releasing: false,
            source,
        }))
    }

    /// Creates the error for a session that only the remaining processes of an ended agent use. They end by themselves, and then the session is free.
    /// `message` is for a caller that does not wait.
    #[must_use]
    pub fn releasing(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(ErrorKind::Held {
            message: message.into(),
            releasing: true,
            source,
        }))
    }

    /// Creates the error for an argument that can't be used, such as a file of an input; `message` names it and the next step.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self(Arc::new(ErrorKind::Invalid(message.into())))
    }

    pub(crate) fn conversation_over() -> Self {
        Self::agent_gone("the conversation has ended")
    }

    pub(crate) fn crash_loop(starts: u32, last: &str) -> Self {
        let last = last.to_owned();
        Self(Arc::new(ErrorKind::CrashLoop { starts, last }))
    }

    /// Returns whether the agent itself refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(*self.0, ErrorKind::Refused(_))
    }

    /// Returns whether another process uses the session; trying again after the end of that process can help.
    #[must_use]
    pub fn is_session_in_use(&self) -> bool {
        matches!(*self.0, ErrorKind::Held { .. })
    }

    /// Returns whether only the remaining processes of an ended agent [use](Self::is_session_in_use) the session, so that it is free soon.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        let ErrorKind::Held { releasing, .. } = *self.0 else {
            return false;
        };
        releasing
    }

    /// Returns whether an argument is invalid, or a file of an input can't be sent.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(*self.0, ErrorKind::Invalid(_))
    }

    /// Returns whether too many agents in a row were started without completing a turn, so that none starts automatically. The text says how the last
    /// agent ended.
    #[must_use]
    pub fn is_crash_loop(&self) -> bool {
        matches!(*self.0, ErrorKind::CrashLoop { .. })
    }

    /// Creates the error for a conversation that can't be stored or recovered; `message` names the file and the next step.
    #[must_use]
    pub fn persistence(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(ErrorKind::Persistence {
            message: message.into(),
            source,
        }))
    }

    /// Returns whether the conversation could not be stored or recovered. The conversation accepts no more inputs; inputs that were acknowledged
    /// before stay stored.
    #[must_use]
    pub fn is_persistence(&self) -> bool {
        matches!(*self.0, ErrorKind::Persistence { .. })
    }

    /// Returns whether the process of the agent had ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(*self.0, ErrorKind::Gone(_))
    }

    /// Returns whether there was no room; nothing was accepted, and trying later can help.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(*self.0, ErrorKind::Full(_))
    }

    /// Returns whether the agent doesn't have the requested capability.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.0, ErrorKind::Unsupported { .. })
    }

    /// Returns whether the agent could not be started; another try fails in the same way until the cause is fixed.
    #[must_use]
    pub fn is_start_failure(&self) -> bool {
        matches!(*self.0, ErrorKind::Start { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            ErrorKind::Start { source, .. }
            | ErrorKind::Held { source, .. }
            | ErrorKind::Persistence { source, .. } => source.as_deref().map(|e| e as _),
            _ => None,
        }
    }
}
