//! The times that shape a stop, as far as the rules and the run decide them.
//!
//! The other ones belong to the parts that know why: agent-duplex (a conversation), agent-subprocess and the drivers (a process tree),
//! interrupt-stack (signals). The page `docs/guide/times.md` of the repository lists all of them, with what bounds what; a test compares the two.

use std::time::Duration;

/// The budget of a whole stop, unless the run is configured otherwise.
pub const STOP_BUDGET: Duration = Duration::from_secs(8);
/// The time that is left for everything after an abort.
pub const ABORT: Duration = Duration::from_secs(1);
/// The time that an interrupted agent has to end its turn in a stop, at most half of the stop's budget.
pub const POLITE_STOP: Duration = Duration::from_secs(3);
/// The time that a turn has to end after a person's interrupt. It is longer than a driver's own, so that the driver's gentler means come first.
pub const INTERRUPTED_TURN: Duration = Duration::from_secs(6);
/// The time that suspending what runs may take.
pub const FREEZE: Duration = Duration::from_millis(500);
/// The time that the last call of the notify command has in a stop, within its budget.
pub const NOTIFY_STOPPED: Duration = Duration::from_secs(3);
/// The part of a stop's budget that the last call of the notify command leaves for what comes after it.
pub const NOTIFY_RESERVE: Duration = Duration::from_secs(1);
/// The time that the end of a run waits for a transcript that is being compressed. The next process compresses it otherwise.
pub const TRANSCRIPTS_END: Duration = Duration::from_millis(500);
