//! The times of a stop that the rules, the run, its files, its terminal and `rlm stop` decide. They stand apart, so that each can be
//! weighed against the others.
//!
//! The leaf crates know none of this crate and have a `times.rs` each: agent-duplex (a conversation), agent-subprocess and agent-drivers
//! (a process tree), interrupt-stack (signals). The page `docs/guide/times.md` of the repository lists all of them, with what bounds
//! what. A test compares the page with the code, and refuses such a time anywhere else.

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
/// The time from the beginning of a stop to the first line of its countdown, and the least time between two lines.
pub const COUNTDOWN_STEP: Duration = Duration::from_secs(1);
/// The time that a shutdown of the program waits for its reason.
pub const SHUTDOWN_REASON: Duration = Duration::from_secs(1);
/// The time that the end of a run waits for a transcript that is being compressed. The next process compresses it otherwise.
pub const TRANSCRIPTS_END: Duration = Duration::from_millis(500);
/// The time that the end of a run waits for the last write of the heartbeat file, whose disk may hang.
pub const HEARTBEAT_END: Duration = Duration::from_secs(1);

/// The time that one call of the notify command may take.
pub const NOTIFY_CALL: Duration = Duration::from_secs(10);
/// The time that a call of the notify command has to end when it is told to.
pub const NOTIFY_ENDING: Duration = Duration::from_millis(500);
/// The time that the last call of the notify command has in a stop, within its budget.
pub const NOTIFY_STOPPED: Duration = Duration::from_secs(3);
/// The part of a stop's budget that the last call of the notify command leaves for what comes after it.
pub const NOTIFY_RESERVE: Duration = Duration::from_secs(1);

/// The time that the end of a run waits until the programs at its control socket have heard of it.
pub const CONTROL_END: Duration = Duration::from_millis(500);
/// The time that a program at the control socket has to send its request, and to read an answer.
pub const CONTROL_PEER: Duration = Duration::from_secs(5);
/// The time that a run has to accept a connection to its control socket, and a request.
pub const CONTROL_CLIENT: Duration = Duration::from_secs(2);

/// The time that a `git status` may continue by itself when its run is over. Most take less.
pub const GIT_STATUS_END: Duration = Duration::from_millis(500);
/// The time that git has to end when it is told to: it removes its locks then, and its unfinished files.
pub const GIT_ENDING: Duration = Duration::from_millis(500);
/// The time to wait for the end of a git that was killed.
pub const GIT_KILLED: Duration = Duration::from_secs(1);
/// The time that killing what git left running may take, and the guard's report of it.
pub const GIT_KILL: Duration = Duration::from_secs(1);

/// The time to wait until the guard of a dead process has ended what that process left. The guard's own bound is well below.
pub const DEAD_HOLDER: Duration = Duration::from_secs(5);
/// The time that a sweep has to end what a process and its guards left alive.
pub const SWEEP: Duration = Duration::from_secs(3);

/// The time that an editor has to end when it is told to.
pub const EDITOR_ENDING: Duration = Duration::from_millis(500);
/// The time that each step on the way to a suspend by ^Z may take.
pub const SUSPEND_STEP: Duration = Duration::from_secs(1);
/// The time that a shutdown waits for a screen that doesn't take its last lines.
pub const LAST_LINES: Duration = Duration::from_secs(1);
/// The time in which a press that nobody answered stays counted, unless it is configured otherwise.
pub const COOLDOWN: Duration = Duration::from_secs(2);

/// The time that a run's process may take beyond the budget of its stop, as `rlm stop` waits for it.
pub const STOP_MARGIN: Duration = Duration::from_secs(5);
/// The time that a process that reported its end may take to exit, with its guards.
pub const PROCESS_EXIT: Duration = Duration::from_secs(10);
/// The time that `rlm stop --force` may take beyond the time that it was given. Its help says so.
pub const FORCE_MARGIN: Duration = Duration::from_secs(10);
/// The time that `rlm stop --force` waits for a first answer, at most half of the time that it was given.
pub const FORCE_ANSWER: Duration = Duration::from_secs(3);
/// The least time that `rlm stop --force` gives to each of its steps, however little it was given.
pub const FORCE_LEAST: Duration = Duration::from_secs(1);
