//! The states of a conversation, as its readers are told of them.

use std::fmt;

/// Where a conversation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lifecycle {
    /// No agent takes inputs: none was started yet, or the last one was closed or has nothing more to say. Inputs wait.
    #[default]
    Idle,
    /// An agent is being started.
    Starting,
    /// The agent waits for an input.
    Ready,
    /// A turn runs.
    InTurn,
    /// A turn runs and was told to end.
    Interrupting,
    /// No agent takes inputs, and none is started by itself any more: too many in a row completed no turn. Inputs are refused with
    /// [`Error::is_crash_loop`](crate::Error::is_crash_loop), which says what the last agent came to, until somebody calls
    /// [`start`](crate::Conversation::start).
    CrashLoop,
    /// Everything is being ended.
    Stopping,
    /// It is over, for good.
    Ended,
}

impl Lifecycle {
    /// Returns whether the conversation takes no input any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Stopping | Self::Ended)
    }
}

impl fmt::Display for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::InTurn => "in a turn",
            Self::Interrupting => "interrupting",
            Self::CrashLoop => "in a crash loop",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        })
    }
}
