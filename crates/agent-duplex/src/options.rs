//! What a conversation is given at its beginning, with the defaults; what keeps to the policy of restarts is `starts.rs`.

use std::time::Duration;

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

/// How an agent that is gone is started again, when there are inputs for it.
///
/// Starts in a row that came to nothing are counted: the agent could not be started, or ended without a turn that it brought to some end of its own. A
/// turn counts that was completed, interrupted or refused, or reached a limit ([`MaxTokens`](crate::EndReason::MaxTokens),
/// [`MaxTurns`](crate::EndReason::MaxTurns), [`BudgetExhausted`](crate::EndReason::BudgetExhausted),
/// [`ContextOverflow`](crate::EndReason::ContextOverflow)); one that died or failed does not, though it has its
/// [`Completion`](crate::Completion). An agent that is not logged in, or whose session does not exist, is not held against it, and is started again
/// only for another input. Before each but the first there is a pause, each twice as long as the one before; after too
/// many, the conversation is in [`Lifecycle::CrashLoop`](crate::Lifecycle::CrashLoop) until somebody starts the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestartPolicy {
    /// How many starts in a row there may be without a completed turn. 3 by default.
    pub most: u32,
    /// The first pause. 1 s by default.
    pub first_wait: Duration,
    /// The longest pause. 60 s by default.
    pub longest_wait: Duration,
    /// What becomes of a session that does not exist any more.
    pub lost_session: LostSession,
}

impl RestartPolicy {
    /// Returns this policy with another number of starts in a row.
    #[must_use]
    pub const fn with_most(mut self, most: u32) -> Self {
        self.most = most;
        self
    }

    /// Returns this policy with other pauses.
    #[must_use]
    pub const fn with_waits(mut self, first: Duration, longest: Duration) -> Self {
        self.first_wait = first;
        self.longest_wait = longest;
        self
    }

    /// Returns this policy with something else done about a lost session.
    #[must_use]
    pub const fn with_lost_session(mut self, lost_session: LostSession) -> Self {
        self.lost_session = lost_session;
        self
    }
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            most: 3,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            lost_session: LostSession::Fail,
        }
    }
}

/// What becomes of a conversation whose session does not exist any more, as told by [`EndReason::SessionNotFound`](crate::EndReason::SessionNotFound).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LostSession {
    /// It is tried again with each new input, and fails each time.
    #[default]
    Fail,
    /// The next agent begins a new one, and a warning says so.
    Fresh,
}

/// How long one agent serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// For many turns.
    #[default]
    Interactive,
    /// For one: after it, the agent is closed politely, and the next input starts the next one, which goes on with the session.
    OneShot,
}
