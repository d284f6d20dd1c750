//! Why a run could not be created, found or resumed: all messages in one place, and predicates for the cases that callers handle.

use std::path::PathBuf;

use rlm_store::Hint;

/// Why a run could not be created, found or resumed. The text names the place and the fix. For some fixes, the error also has a
/// [`hint`](Self::hint), so that a program can print its own command.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Kind>);

type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error(transparent)]
    Store(rlm_store::Error),
    #[error("the feedback was rejected: {0}")]
    Feedback(loop_state::FeedbackRefusal),
    #[error("the run is not live: nothing listens on control socket `{}`", .0.display())]
    NotRunning(PathBuf),
    #[error("no response from control socket `{}`", .0.display())]
    Unresponsive(PathBuf),
    #[error("invalid response from control socket `{}`: {why}", path.display())]
    BadResponse { path: PathBuf, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    OtherVersion(String),
    #[error("{message}")]
    Agent { message: String, source: Source },
}

impl From<rlm_store::Error> for Error {
    fn from(error: rlm_store::Error) -> Self {
        Self(Box::new(Kind::Store(error)))
    }
}

impl Error {
    pub(crate) fn not_running(path: PathBuf) -> Self {
        Self(Box::new(Kind::NotRunning(path)))
    }

    pub(crate) fn unresponsive(path: PathBuf) -> Self {
        Self(Box::new(Kind::Unresponsive(path)))
    }

    pub(crate) fn bad_response(path: PathBuf, why: impl Into<String>) -> Self {
        let why = why.into();
        Self(Box::new(Kind::BadResponse { path, why }))
    }

    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Refused(why.into())))
    }

    pub(crate) fn other_version(message: String) -> Self {
        Self(Box::new(Kind::OtherVersion(message)))
    }

    /// Creates the error of an agent that can't be used; `message` gives the fix.
    #[must_use]
    pub fn agent(message: impl Into<String>, source: impl Into<Source>) -> Self {
        let (message, source) = (message.into(), source.into());
        Self(Box::new(Kind::Agent { message, source }))
    }

    pub(crate) fn feedback(why: loop_state::FeedbackRefusal) -> Self {
        Self(Box::new(Kind::Feedback(why)))
    }

    /// Returns the error of the saved state, if this is one.
    fn saved(&self) -> Option<&rlm_store::Error> {
        match &*self.0 {
            Kind::Store(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the kind of fix, if a program can have a command for it. The error text ends with the fix in words, and the program can add its
    /// command: `run x is live: stop it first`, then the command.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        self.saved().and_then(rlm_store::Error::hint)
    }

    /// Returns whether the agent does not support the settings.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_unsupported)
    }

    /// Returns whether another process holds the run or its working tree.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_held)
    }

    /// Returns whether the run is not live: no process works on it, so nothing was sent.
    #[must_use]
    pub fn is_not_running(&self) -> bool {
        matches!(*self.0, Kind::NotRunning(_))
    }

    /// Returns whether the run refused a request because of the process that sent it: it belongs to an agent, or its ancestors can't be verified.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(*self.0, Kind::Refused(_))
    }

    /// Returns whether the process that works on the run doesn't respond: it is busy, suspended or hangs.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        matches!(*self.0, Kind::Unresponsive(_))
    }

    /// Returns whether the process that works on the run has another version of the program, and the two don't understand each other.
    #[must_use]
    pub fn is_other_version(&self) -> bool {
        matches!(*self.0, Kind::OtherVersion(_))
    }

    /// Returns whether the run was transferred and continues elsewhere.
    #[must_use]
    pub fn is_transferred(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_transferred)
    }

    /// Returns whether the run, or the requested state of it, does not exist, or nothing is saved in it. If [`Runner::open`](crate::Runner::open)
    /// returned the error, the name is free for a new run.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_not_found)
    }

    /// Returns whether the request is invalid, so that only another request can succeed.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match &*self.0 {
            Kind::Store(error) => error.is_usage(),
            Kind::Feedback(_) | Kind::Refused(_) => true,
            _ => false,
        }
    }
}
