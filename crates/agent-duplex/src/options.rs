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
