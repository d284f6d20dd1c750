//! The times of a stop that the rules, the run, its files, its terminal and `rlm stop` use. They are in one module so that a reader can compare them.
//!
//! The leaf crates don't depend on this crate and have their own `times.rs`: agent-duplex (a conversation), agent-subprocess and agent-drivers (a
//! process tree), interrupt-stack (signals). The page `docs/guide/times.md` of the repository lists all these times and which of them limits which. A
//! test compares the page with the code and refuses such a time in any other place.

use std::time::Duration;

/// The stop budget, unless the run is configured otherwise.
pub const STOP_BUDGET: Duration = Duration::from_secs(8);
/// The time for everything after an abort.
pub const ABORT: Duration = Duration::from_secs(1);
/// The time that an interrupted agent has to end its turn in a stop, at most half of the stop budget.
pub const TURN_END_AFTER_INTERRUPT: Duration = Duration::from_secs(3);
/// The time that a turn has to end after a person's interrupt. It is longer than a driver's own limit, so that the gentler methods of the driver come
/// first.
pub const INTERRUPTED_TURN: Duration = Duration::from_secs(6);
/// The time to freeze the process trees of a run.
pub const FREEZE_TIMEOUT: Duration = Duration::from_millis(500);
/// The time from the beginning of a stop to the first line of its countdown, and the least time between two lines.
pub const COUNTDOWN_STEP: Duration = Duration::from_secs(1);
/// The time that a shutdown of the program waits for the request that states its reason.
pub const SHUTDOWN_REASON: Duration = Duration::from_secs(1);
/// The time that the end of a run waits until a transcript is compressed. After that, the next process compresses it.
pub const TRANSCRIPT_FINISH: Duration = Duration::from_millis(500);
/// The time that the end of a run waits for the last write of the heartbeat file: the disk may not respond.
pub const HEARTBEAT_END: Duration = Duration::from_secs(1);

/// The time that the program which keeps the computer awake has to end.
pub const KEEP_AWAKE_END: Duration = Duration::from_millis(500);

/// The time for one try to deliver a notification.
pub const NOTIFY_CALL: Duration = Duration::from_secs(10);
/// The time that a program of a notification has to end after the request to end.
pub const NOTIFY_ENDING: Duration = Duration::from_millis(500);
/// The time for the last notifications in a stop, within the stop budget.
pub const NOTIFY_STOPPED: Duration = Duration::from_secs(3);
/// The part of the stop budget that the last notifications leave for the steps after them.
pub const NOTIFY_RESERVE: Duration = Duration::from_secs(1);
/// The time to save the results of the last notifications, after all processes have ended.
pub const NOTIFY_SAVE: Duration = Duration::from_secs(1);

/// The time that the end of a run waits until the programs at its control socket have received everything.
pub const CONTROL_END: Duration = Duration::from_millis(500);
/// The time that a program at the control socket has to send its request, and to read a response.
pub const CONTROL_PEER: Duration = Duration::from_secs(5);
/// The time that a run has to accept a connection to its control socket, and to accept a request.
pub const CONTROL_CLIENT: Duration = Duration::from_secs(2);

/// The time that a `git status` has to finish after the run ended. Most calls take less.
pub const GIT_STATUS_END: Duration = Duration::from_millis(500);
/// The time that git has to end after the request to end: git removes its locks and unfinished files then.
pub const GIT_ENDING: Duration = Duration::from_millis(500);
/// The time to wait for the end of a killed git.
pub const GIT_KILLED: Duration = Duration::from_secs(1);
/// The time to kill the leftovers of git, including the guard's report.
pub const GIT_KILL: Duration = Duration::from_secs(1);

/// The time to wait until the guard of a dead process has ended the leftovers of that process. The guard's own limit is much shorter.
pub const DEAD_HOLDER: Duration = Duration::from_secs(5);
/// The time that a sweep has to end everything that a process and its guards left alive.
pub const SWEEP: Duration = Duration::from_secs(3);

/// The time that an editor has to end after the request to end.
pub const EDITOR_ENDING: Duration = Duration::from_millis(500);
/// The time for each step before a suspend by ^Z.
pub const SUSPEND_STEP: Duration = Duration::from_secs(1);
/// The time that a shutdown waits for a screen that doesn't accept its last lines.
pub const LAST_LINES: Duration = Duration::from_secs(1);
/// The time for which an unanswered press stays counted, unless configured otherwise.
pub const COOLDOWN: Duration = Duration::from_secs(2);
/// The time after a press within which a further press counts as the same press, unless configured otherwise.
pub const DEBOUNCE: Duration = Duration::from_millis(30);
/// The longest time that this can be configured to: with a longer one, presses of a person would have no effect.
pub const MAX_DEBOUNCE: Duration = Duration::from_secs(1);

/// The time that `rlm stop` waits for a run's process beyond the stop budget.
pub const STOP_MARGIN: Duration = Duration::from_secs(5);
/// The time that a process has to exit, with its guards, after it reported its end.
pub const PROCESS_EXIT: Duration = Duration::from_secs(10);
/// The time that `rlm stop --force` may take beyond its own time limit. The help states it.
pub const FORCE_MARGIN: Duration = Duration::from_secs(10);
/// The time that `rlm stop --force` waits for a first response, at most half of its own time limit.
pub const FORCE_ANSWER: Duration = Duration::from_secs(3);
/// The minimum time for each step of `rlm stop --force`, even if its own time limit is shorter.
pub const FORCE_LEAST: Duration = Duration::from_secs(1);
