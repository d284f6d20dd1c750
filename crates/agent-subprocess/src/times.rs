//! The times in which a process tree is ended. They stand apart, so that each can be weighed against the others.

use std::time::Duration;

/// The default budget of a whole stop.
pub(crate) const BUDGET: Duration = Duration::from_secs(8);
/// The default time after SIGINT.
pub(crate) const INTERRUPT: Duration = Duration::from_secs(3);
/// The default time after the input was closed.
pub(crate) const CLOSED_INPUT: Duration = Duration::from_secs(2);
/// The default time after SIGTERM.
pub(crate) const TERMINATE: Duration = Duration::from_secs(2);
/// The budget of a stop that begins with SIGKILL.
pub(crate) const KILL: Duration = Duration::from_secs(2);
/// The part of a budget that is kept for SIGKILL and its report, at most half of it.
pub(crate) const KILL_RESERVE: Duration = Duration::from_secs(1);
/// The least time for SIGKILL and its report. With less, a guard would be given up before it can answer.
pub(crate) const LEAST_KILL: Duration = Duration::from_millis(200);

/// The time that listing the process tree may take at the beginning of a stop.
pub(crate) const NOTE: Duration = Duration::from_millis(500);
/// The time that a guard has to list its tree before the host looks by itself.
pub(crate) const LIST: Duration = Duration::from_secs(2);
/// The time that an agent has to make room for a line of its input.
pub(crate) const ROOM: Duration = Duration::from_secs(2);
/// The time that a pipe which another process holds open is read after the exit of the main process.
pub(crate) const DRAIN: Duration = Duration::from_millis(500);

/// The time that killing a guard that does not answer may take, with the sweep after it.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(8);
/// The time that a guard has to exit after its last message.
pub(crate) const GUARD_EXIT: Duration = Duration::from_secs(3);
/// The time that the sweep after a lost guard may take.
pub(crate) const GUARD_SWEEP: Duration = Duration::from_secs(1);

/// The time that the tree has after SIGTERM when the host died.
pub(crate) const ORPHAN_GRACE: Duration = Duration::from_millis(500);
/// The time of the rounds of SIGKILL when the host died.
pub(crate) const ORPHAN_ROUNDS: Duration = Duration::from_secs(1);
/// The time that a guard's last report may wait for a host that does not read.
pub(crate) const LAST_REPORT: Duration = Duration::from_millis(200);
/// The time after which a killed child counts as stuck (another user's, traced, in the kernel): the guard continues below it.
pub(crate) const STUCK: Duration = Duration::from_millis(20);
/// The time that all other processes of a container have after SIGTERM. A guard whose host was killed needs a second and a half.
pub(crate) const INIT_GRACE: Duration = Duration::from_secs(2);
