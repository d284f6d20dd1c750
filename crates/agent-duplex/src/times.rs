//! The times for the end of a conversation. They are in one place, so that they can be compared.

use std::time::Duration;

/// The time that a close gives to the running turn and to background tasks.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for reading the last output of an ended agent, without the time in which the primary is full.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that a driver may take beyond the budget of its stop. Then the connection is dropped, which ends everything that it started.
pub(crate) const STOP_MARGIN: Duration = Duration::from_secs(10);
/// The time to wait for more output of an agent that died in its turn. If the agent still runs after that, it gets inputs again.
pub(crate) const DEATH_GRACE: Duration = Duration::from_millis(200);
/// The time for an idle agent that accepts no more input to exit. An agent of a single turn exits soon.
pub(crate) const EXIT_GRACE: Duration = Duration::from_secs(10);
/// The usual budget of a stop: for ending the leftovers of an agent before the next one starts, or an agent whose driver has no gentle end.
pub(crate) const LEFTOVER_BUDGET: Duration = Duration::from_secs(8);
/// The time that a stop waits for the last save of a conversation.
pub(crate) const PERSIST_TIMEOUT: Duration = Duration::from_secs(5);
