//! The times in which a driver ends a turn or its agent. They stand apart, so that each can be weighed against the others.

use std::time::Duration;

/// The time that a turn has to end after an interrupt, when its agent is to end too.
pub(crate) const INTERRUPT: Duration = Duration::from_secs(3);
/// The time that a process has to exit after it closed its outputs or was told to end; then the time after SIGTERM.
pub(crate) const SILENCE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(2)];
/// The time to wait for the exit of a process that closed its input.
pub(crate) const EXIT: Duration = Duration::from_millis(500);
/// The time that an agent has to end after SIGTERM, when it alone is ended.
pub(crate) const TERMINATE: Duration = Duration::from_secs(2);
/// The same after SIGKILL.
pub(crate) const KILL: Duration = Duration::from_secs(2);

/// The time that Claude Code has to end a turn after each interrupt. A real one takes 150 ms at worst.
pub(crate) const CLAUDE_INTERRUPT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(3)];
/// The time that it has to end when it is asked to.
pub(crate) const CLAUDE_END: Duration = Duration::from_secs(2);
/// The same after its input was closed.
pub(crate) const CLAUDE_CLOSED_INPUT: Duration = Duration::from_secs(1);
/// The time that the request to end has to get into the pipe before that is closed.
pub(crate) const CLAUDE_REQUEST: Duration = Duration::from_millis(200);

/// The time that Codex has to end a turn after each interrupt. A real one takes 20 ms.
pub(crate) const CODEX_INTERRUPT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(3)];
/// The time that it has to end after its input was closed.
pub(crate) const CODEX_CLOSED_INPUT: Duration = Duration::from_secs(5);
/// The time that its commands have to end by themselves after an interrupt.
#[cfg(target_os = "linux")]
pub(crate) const CODEX_COMMANDS_ENDING: Duration = Duration::from_millis(500);
/// The time that ending its commands may take in all. The driver names those that are alive then.
#[cfg(target_os = "linux")]
pub(crate) const CODEX_COMMANDS: Duration = Duration::from_secs(3);

/// The time that an ACP agent has to end a turn after each interrupt. Real agents take 150 ms at worst. They are asked again before they are
/// signalled, because some lose an interrupt that comes before they have looked at the turn.
pub(crate) const ACP_INTERRUPT: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
];
/// The time that it has to end when it is asked to.
pub(crate) const ACP_END: Duration = Duration::from_secs(2);
/// The same after its input was closed.
pub(crate) const ACP_CLOSED_INPUT: Duration = Duration::from_secs(2);
