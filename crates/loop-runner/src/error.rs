//! Why a run could not be made, found or continued: all messages in one place, predicates for what callers branch on.

use std::path::PathBuf;

use rlm_store::Mend;

/// Why a run could not be made, found or continued. Its text names the place and what to do, which for some is a [`mend`](Self::mend) that a program
/// may have a command for.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Kind>);

type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error(transparent)]
    Store(rlm_store::Error),
    #[error("the feedback is not taken: {0}")]
    Feedback(loop_state::FeedbackRefusal),
    #[error("nobody listens at `{}`: no process has the run", .0.display())]
    Nobody(PathBuf),
    #[error("who listens at `{}` does not answer", .0.display())]
    Silent(PathBuf),
    #[error("who listens at `{}` says something that can't be understood: {why}", path.display())]
    Babble { path: PathBuf, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("{message}")]
    Agent { message: String, source: Source },
}

impl From<rlm_store::Error> for Error {
    fn from(error: rlm_store::Error) -> Self {
        Self(Box::new(Kind::Store(error)))
    }
}

impl Error {
    pub(crate) fn nobody(path: PathBuf) -> Self {
        Self(Box::new(Kind::Nobody(path)))
    }

    pub(crate) fn silent(path: PathBuf) -> Self {
        Self(Box::new(Kind::Silent(path)))
    }

    pub(crate) fn babble(path: PathBuf, why: impl Into<String>) -> Self {
        let why = why.into();
        Self(Box::new(Kind::Babble { path, why }))
    }

    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Refused(why.into())))
    }

    /// Makes the error of an agent that can't be had; `message` says what to do.
    #[must_use]
    pub fn agent(message: impl Into<String>, source: impl Into<Source>) -> Self {
        let (message, source) = (message.into(), source.into());
        Self(Box::new(Kind::Agent { message, source }))
    }

    pub(crate) fn feedback(why: loop_state::FeedbackRefusal) -> Self {
        Self(Box::new(Kind::Feedback(why)))
    }

    /// Returns the error of what is saved, if it is one.
    fn saved(&self) -> Option<&rlm_store::Error> {
        match &*self.0 {
            Kind::Store(error) => Some(error),
            _ => None,
        }
    }

    /// Returns what would mend it, where that is one thing that a program may have a command for. The text ends with it, so that a command can be put
    /// behind: `run x is at work: stop it first`, and how.
    #[must_use]
    pub fn mend(&self) -> Option<Mend> {
        self.saved().and_then(rlm_store::Error::mend)
    }

    /// Returns whether an agent can't do what the settings ask of it.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_unsupported)
    }

    /// Returns whether another process holds the run or its working tree.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_held)
    }

    /// Returns whether no process has the run, so that nobody was asked anything.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        matches!(*self.0, Kind::Nobody(_))
    }

    /// Returns whether the run refused a request because of the process that sent it: an agent's, or one whose ancestors can't be proven.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(*self.0, Kind::Refused(_))
    }

    /// Returns whether the process that has the run does not answer: it is busy, stands still or hangs.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        matches!(*self.0, Kind::Silent(_))
    }

    /// Returns whether the run goes on elsewhere.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_moved)
    }

    /// Returns whether there is no such run, no such state of it, or nothing saved in it. From
    /// [`Runner::open`](crate::Runner::open) it means that a run of that name can be made.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.saved().is_some_and(rlm_store::Error::is_not_found)
    }

    /// Returns whether what was asked for makes no sense, so that asking differently is the mend.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match &*self.0 {
            Kind::Store(error) => error.is_usage(),
            Kind::Feedback(_) | Kind::Refused(_) => true,
            _ => false,
        }
    }
}
