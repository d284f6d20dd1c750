//! The one error of the crate: its messages side by side, and the predicates that callers branch on.

use std::fmt;
use std::sync::Arc;

/// Why a conversation could not go on. Clones share their source.
#[derive(Clone, Debug)]
pub struct Error(Arc<Kind>);

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
    #[error("{0}")]
    Invalid(String),
    #[error("the agent refuses: {0}")]
    Refused(String),
    #[error("{message}")]
    Held {
        message: String,
        /// Whether only the remains of an ended agent can hold it.
        releasing: bool,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error(
        "the agent was started {} without completing a turn; look why ({last}), then start it",
        how_often(*.starts)
    )]
    CrashLoop { starts: u32, last: String },
    #[error("the conversation can't be kept: {message}")]
    Persistence {
        message: String,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

fn how_often(starts: u32) -> String {
    match starts {
        1 => "once".to_owned(),
        starts => format!("{starts} times in a row"),
    }
}

impl Error {
    /// Makes the answer to something that `agent` can't do: `what` completes "can't …", `mend` says what to do instead.
    #[must_use]
    pub fn unsupported(
        agent: impl Into<String>,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self(Arc::new(Kind::Unsupported {
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
        Self(Arc::new(Kind::Start {
            message: message.into(),
            source,
        }))
    }

    /// Makes the answer to a message for an agent whose process ended; `how` says how.
    #[must_use]
    pub fn gone(how: impl Into<String>) -> Self {
        Self(Arc::new(Kind::Gone(how.into())))
    }

    /// Makes the answer to a message for which there is no room; `who` names the queue or the agent that has none.
    #[must_use]
    pub fn full(who: impl Into<String>) -> Self {
        Self(Arc::new(Kind::Full(who.into())))
    }

    /// Makes the answer to something that the agent itself refused; `why` is what it says about it.
    #[must_use]
    pub fn refused(why: impl Into<String>) -> Self {
        Self(Arc::new(Kind::Refused(why.into())))
    }

    /// Makes the answer to a session that another process goes on with; `message` names that process and says what to do next.
    #[must_use]
    pub fn held(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Kind::Held {
            message: message.into(),
            releasing: false,
            source,
        }))
    }

    /// Makes the answer to a session that only the remains of an ended agent hold: they end by themselves, and then it is free. `message` is for a
    /// caller that does not wait for that.
    #[must_use]
    pub fn releasing(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Kind::Held {
            message: message.into(),
            releasing: true,
            source,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self(Arc::new(Kind::Invalid(message.into())))
    }

    pub(crate) fn over() -> Self {
        Self::gone("the conversation is over")
    }

    pub(crate) fn crash_loop(starts: u32, last: &str) -> Self {
        let last = last.to_owned();
        Self(Arc::new(Kind::CrashLoop { starts, last }))
    }

    /// Returns whether the agent itself refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(*self.0, Kind::Refused(_))
    }

    /// Returns whether another process goes on with the session; trying again after its end may help.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(*self.0, Kind::Held { .. })
    }

    /// Returns whether the session is [held](Self::is_held) only by what an ended agent left behind, so that it is free soon.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        let Kind::Held { releasing, .. } = *self.0 else {
            return false;
        };
        releasing
    }

    /// Returns whether what was given makes no sense.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(*self.0, Kind::Invalid(_))
    }

    /// Returns whether agents were started too often without completing a turn, so that none is started by itself any more. The text says what the last
    /// one came to.
    #[must_use]
    pub fn is_crash_loop(&self) -> bool {
        matches!(*self.0, Kind::CrashLoop { .. })
    }

    /// Makes the answer to a conversation that can't be kept or recovered; `message` names the place and says what to do next.
    #[must_use]
    pub fn persistence(
        message: impl Into<String>,
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Kind::Persistence {
            message: message.into(),
            source,
        }))
    }

    /// Returns whether the conversation could not be kept or recovered. It takes nothing more; what was acknowledged before is kept.
    #[must_use]
    pub fn is_persistence(&self) -> bool {
        matches!(*self.0, Kind::Persistence { .. })
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
            Kind::Start { source, .. }
            | Kind::Held { source, .. }
            | Kind::Persistence { source, .. } => source.as_deref().map(|e| e as _),
            _ => None,
        }
    }
}
