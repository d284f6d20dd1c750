//! The options of a conversation, with their defaults; `restart.rs` implements the restart policy.

use std::time::Duration;

/// The limits of a conversation, and the rules by which it starts agents.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConversationOptions {
    /// The maximum number of pending inputs: accepted, and in no turn yet. 100 by default.
    pub inbox_capacity: usize,
    /// The number of events that the [`Primary`](crate::Primary) may leave unread before the conversation stops reading from the agent. 1000 by
    /// default.
    pub backlog_capacity: usize,
    /// How the conversation starts an agent, and the next one when that agent is gone, if there are inputs. `None` means that the caller starts agents.
    pub restart: Option<RestartPolicy>,
    /// The lifetime of one agent. [`Mode::OneShot`] starts agents automatically, by the default policy if there is no other.
    pub mode: Mode,
}

impl Default for ConversationOptions {
    fn default() -> Self {
        Self {
            inbox_capacity: 100,
            backlog_capacity: 1000,
            restart: Some(RestartPolicy::STANDARD),
            mode: Mode::Interactive,
        }
    }
}

impl ConversationOptions {
    /// Returns these options with agents that only [`Conversation::start`](crate::Conversation::start) and
    /// [`Conversation::execute`](crate::Conversation::execute) start. An input that is sent before waits.
    #[must_use]
    pub const fn with_manual_start(mut self) -> Self {
        self.restart = None;
        self
    }

    /// Returns these options with automatic starts of agents, by another `policy`.
    #[must_use]
    pub const fn with_restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = Some(policy);
        self
    }

    /// Returns these options with another lifetime of an agent.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Returns these options with another maximum of pending inputs.
    #[must_use]
    pub const fn with_inbox(mut self, inbox: usize) -> Self {
        self.inbox_capacity = inbox;
        self
    }

    /// Returns these options with another number of events that the [`Primary`](crate::Primary) may leave unread.
    #[must_use]
    pub const fn with_backlog(mut self, backlog: usize) -> Self {
        self.backlog_capacity = backlog;
        self
    }
}

/// How the conversation restarts an agent that is gone, if there are inputs for it.
///
/// The conversation counts failed starts in a row: the agent could not be started, or ended without a finished turn. A turn counts as finished if it
/// was completed, interrupted or refused, or reached a limit ([`MaxTokens`](crate::EndReason::MaxTokens), [`MaxTurns`](crate::EndReason::MaxTurns),
/// [`BudgetExhausted`](crate::EndReason::BudgetExhausted), [`ContextOverflow`](crate::EndReason::ContextOverflow)). A turn that died or failed does
/// not, although it has a [`Completion`](crate::Completion). An agent that is not logged in, or whose session does not exist, does not count as a
/// failed start; it is started again only for another input. There is a pause before each restart, each twice as long as the one before. After too
/// many failed starts, the conversation is in [`Lifecycle::CrashLoop`](crate::Lifecycle::CrashLoop) until a caller starts the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestartPolicy {
    /// The maximum number of starts in a row without a completed turn. 3 by default.
    pub max_starts: u32,
    /// The first pause. 1 s by default.
    pub first_wait: Duration,
    /// The longest pause. 60 s by default.
    pub max_wait: Duration,
    /// The reaction to a session that no longer exists.
    pub lost_session: LostSession,
}

impl RestartPolicy {
    /// Returns this policy with another maximum number of starts in a row.
    #[must_use]
    pub const fn with_max_starts(mut self, most: u32) -> Self {
        self.max_starts = most;
        self
    }

    /// Returns this policy with other pauses.
    #[must_use]
    pub const fn with_waits(mut self, first: Duration, longest: Duration) -> Self {
        self.first_wait = first;
        self.max_wait = longest;
        self
    }

    /// Returns this policy with another reaction to a lost session.
    #[must_use]
    pub const fn with_lost_session(mut self, lost_session: LostSession) -> Self {
        self.lost_session = lost_session;
        self
    }
}

impl RestartPolicy {
    const STANDARD: Self = Self {
        max_starts: 3,
        first_wait: Duration::from_secs(1),
        max_wait: Duration::from_secs(60),
        lost_session: LostSession::Fail,
    };
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self::STANDARD
    }
}

/// The reaction to a session that no longer exists, as reported by [`EndReason::SessionNotFound`](crate::EndReason::SessionNotFound).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LostSession {
    /// The conversation tries again with each new input, and fails each time.
    #[default]
    Fail,
    /// The next agent starts a new session, with a warning.
    Fresh,
}

/// The lifetime of one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Many turns.
    #[default]
    Interactive,
    /// One turn: then the agent is closed gently, and the next input starts the next agent, which continues the session.
    OneShot,
}
