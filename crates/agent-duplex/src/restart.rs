//! When an agent that is gone is started again.

use std::time::Duration;

/// How an agent that is gone is started again, when there are inputs for it.
///
/// Starts in a row without a completed turn are counted. Before each but the first there is a pause, each twice as long as the one before; after too
/// many, inputs are refused with [`Error::is_crash_loop`](crate::Error::is_crash_loop) until somebody starts the agent.
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
