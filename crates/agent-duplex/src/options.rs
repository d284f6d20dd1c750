//! What a conversation is given at its beginning, with the defaults.

use crate::{Mode, RestartPolicy};

/// The limits of a conversation, and how its agents are started.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConversationOptions {
    /// How many inputs may be pending: accepted, and in no turn yet. 100 by default.
    pub inbox: usize,
    /// How much the [`Primary`](crate::Primary) may leave unread before the agent is not read any further. 1000 by default.
    pub backlog: usize,
    /// How an agent that is gone is started again when there are inputs; `None`, the default, when that is the caller's to do.
    pub restart: Option<RestartPolicy>,
    /// How long one agent serves. [`Mode::OneShot`] starts agents by itself, by the default policy when there is no other.
    pub mode: Mode,
}

impl Default for ConversationOptions {
    fn default() -> Self {
        Self {
            inbox: 100,
            backlog: 1000,
            restart: None,
            mode: Mode::Interactive,
        }
    }
}

impl ConversationOptions {
    /// Returns these options with agents started by themselves, by `policy`.
    #[must_use]
    pub const fn with_restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = Some(policy);
        self
    }

    /// Returns these options with another time that one agent serves.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Returns these options with room for another number of pending inputs.
    #[must_use]
    pub const fn with_inbox(mut self, inbox: usize) -> Self {
        self.inbox = inbox;
        self
    }

    /// Returns these options with another number of things that the [`Primary`](crate::Primary) may leave unread.
    #[must_use]
    pub const fn with_backlog(mut self, backlog: usize) -> Self {
        self.backlog = backlog;
        self
    }
}
