//! The times of a conversation's end. They stand apart, so that each can be weighed against the others.

use std::time::Duration;

/// The time that a polite close gives to the turn, and to what runs in the background.
pub(crate) const CLOSING: Duration = Duration::from_secs(30);
/// The time that an agent which was ended is still read, without the time in which nobody reads.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
/// The time that a driver may take beyond the budget of its stop. The connection is dropped then, which ends all that it started.
pub(crate) const STOP_MARGIN: Duration = Duration::from_secs(10);
/// The time to wait for more output of an agent that died in its turn. An agent that continues all the same gets its inputs after that.
pub(crate) const DYING: Duration = Duration::from_millis(200);
/// The time that an idle agent that takes no input any more has to exit. An agent of a single turn does so soon.
pub(crate) const LEAVING: Duration = Duration::from_secs(10);
/// The budget for ending what an agent left behind before the next one starts: the usual one of a stop.
pub(crate) const RETIRE: Duration = Duration::from_secs(8);
/// The time that a stop waits for the last save of a conversation.
pub(crate) const KEEPING: Duration = Duration::from_secs(5);
