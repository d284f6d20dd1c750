//! The states of a conversation, as its readers see them.

use std::fmt;

/// The state of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lifecycle {
    /// No agent accepts inputs: none was started yet, or the last agent was closed or has ended. Inputs wait.
    #[default]
    Idle,
    /// An agent starts.
    Starting,
    /// The agent waits for an input.
    Ready,
    /// A turn runs.
    InTurn,
    /// A turn runs, and an interrupt was requested.
    Interrupting,
    /// No agent accepts inputs, and the conversation starts none automatically: too many agents in a row completed no turn. Inputs fail with
    /// [`Error::is_crash_loop`](crate::Error::is_crash_loop), whose text contains the end of the last agent, until a caller calls
    /// [`start`](crate::Conversation::start).
    CrashLoop,
    /// The conversation is stopping.
    Stopping,
    /// The conversation has ended permanently.
    Ended,
}

impl Lifecycle {
    /// Returns whether the conversation accepts no more inputs.
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
