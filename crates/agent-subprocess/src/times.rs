//! The times in which a process tree ends. They are in one place, so that they can be compared.

use std::time::Duration;

/// The default budget of a whole stop.
pub(crate) const BUDGET: Duration = Duration::from_secs(8);
/// The default time after SIGINT.
pub(crate) const INTERRUPT: Duration = Duration::from_secs(3);
/// The default time after the input closes.
pub(crate) const CLOSED_INPUT: Duration = Duration::from_secs(2);
/// The default time after SIGTERM.
pub(crate) const TERMINATE: Duration = Duration::from_secs(2);
/// The budget of a stop that starts with SIGKILL.
pub(crate) const KILL: Duration = Duration::from_secs(2);
/// The part of a budget that is reserved for SIGKILL and its report, at most half of it.
pub(crate) const KILL_RESERVE: Duration = Duration::from_secs(1);
/// The minimum time for SIGKILL and its report. With less time, the host would give up on a guard that had no time to answer.
pub(crate) const LEAST_KILL: Duration = Duration::from_millis(200);

/// The maximum time for listing the process tree at the beginning of a stop.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_millis(500);
/// The time that a guard has to list its process tree before the host searches by itself.
pub(crate) const LIST_REPLY: Duration = Duration::from_secs(2);
/// The time that a program has to make room for a line of input.
pub(crate) const ROOM: Duration = Duration::from_secs(2);
/// The maximum time in which a guard looks for processes that started during a suspension.
pub(crate) const SUSPEND: Duration = Duration::from_secs(1);
/// The time for which a pipe that another process keeps open is read after the main process exited.
pub(crate) const DRAIN: Duration = Duration::from_millis(500);

/// The maximum time for killing a guard that does not answer, and for the sweep after it.
pub(crate) const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(8);
/// The time that a guard has to exit after its last message, and then to die after SIGKILL. A wait for both takes at most twice this time.
pub(crate) const GUARD_EXIT: Duration = Duration::from_secs(3);
/// The time for which a guard waits for a program, and then ends.
pub(crate) const WARM_GUARD: Duration = Duration::from_secs(30);
/// The time that a guard which was started ahead has to accept a program, before another guard is started.
pub(crate) const WARM_REPLY: Duration = Duration::from_secs(1);
/// The time after which a guard without an answer is continued, in case a signal suspended it.
pub(crate) const WARM_RESUME: Duration = Duration::from_millis(50);
/// The maximum time for the sweep after a lost guard.
pub(crate) const GUARD_SWEEP: Duration = Duration::from_secs(1);
/// The maximum time in which a search waits for processes in the middle of an exec, whose marker can't be read. On a busy machine an exec is
/// interrupted for tens of milliseconds.
pub(crate) const EXEC_TIMEOUT: Duration = Duration::from_millis(250);

/// The time that the process tree has after SIGTERM when the host died.
pub(crate) const ORPHAN_GRACE: Duration = Duration::from_millis(500);
/// The time for rounds of SIGKILL when the host died.
pub(crate) const ORPHAN_ROUNDS: Duration = Duration::from_secs(1);
/// The time that the last report of a guard waits for a host that does not read.
pub(crate) const LAST_REPORT: Duration = Duration::from_millis(200);
/// The time after which a killed child counts as stuck (because of another user, a tracer, or the kernel). The guard then kills its descendants too.
pub(crate) const STUCK_AFTER: Duration = Duration::from_millis(20);
/// The time that all other processes of a container have after SIGTERM. A guard whose host was killed needs 1.5 seconds.
pub(crate) const INIT_GRACE: Duration = Duration::from_secs(2);
