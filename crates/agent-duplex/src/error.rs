use std::fmt;

/// Why a conversation could not go on.
#[derive(Debug)]
pub struct Error(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("the {agent} agent can't {what}; {mend}")]
    Unsupported {
        agent: String,
        what: String,
        mend: String,
    },
    #[error("the agent is gone: {0}")]
    Gone(String),
    #[error("{0} does not take more now; wait until it reads again")]
    Full(String),
    #[error("{message}")]
    Start {
        message: String,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl Error {
    /// Makes the answer to something that `agent` can't do: `what` completes "can't …", `mend` says what to do instead.
    #[must_use]
    pub fn unsupported(
        agent: impl Into<String>,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self(Box::new(Kind::Unsupported {
            agent: agent.into(),
            what: what.into(),
            mend: mend.into(),
        }))
    }

    /// Makes the answer to an agent that could not be started; `message` says what to do next.
    #[must_use]
    pub fn start(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Box::new(Kind::Start {
            message: message.into(),
            source,
        }))
    }

    /// Makes the answer to a message for an agent whose process ended; `how` says how.
    #[must_use]
    pub fn gone(how: impl Into<String>) -> Self {
        Self(Box::new(Kind::Gone(how.into())))
    }

    /// Makes the answer to a message for which there is no room; `who` names the queue or the agent that has none.
    #[must_use]
    pub fn full(who: impl Into<String>) -> Self {
        Self(Box::new(Kind::Full(who.into())))
    }

    /// Returns whether the agent's process had ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(*self.0, Kind::Gone(_))
    }

    /// Returns whether there was no room; nothing was taken, and trying later may help.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(*self.0, Kind::Full(_))
    }

    /// Returns whether the agent can't do what was asked of it.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.0, Kind::Unsupported { .. })
    }

    /// Returns whether the agent could not be started; trying again without a change is pointless.
    #[must_use]
    pub fn is_start(&self) -> bool {
        matches!(*self.0, Kind::Start { .. })
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
            Kind::Unsupported { .. } | Kind::Gone(_) | Kind::Full(_) => None,
            Kind::Start { source, .. } => source.as_deref().map(|e| e as _),
        }
    }
}
