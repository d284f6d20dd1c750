//! What a caller can choose about starting agents that are gone again; what keeps to it is `starts.rs`.

use std::time::Duration;

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
