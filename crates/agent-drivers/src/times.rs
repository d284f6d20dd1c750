//! The times in which a driver ends a turn or its agent. They are in one file so that they can be compared.

use std::time::Duration;

/// The time for a turn to end after an interrupt, when the agent has to end too.
pub(crate) const INTERRUPT: Duration = Duration::from_secs(3);
/// The time for a process to exit after it closed its outputs or received the request to end; then the time after SIGTERM.
pub(crate) const EXIT_TIMEOUT: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(2)];
/// The time to wait for the exit of a process that closed its input.
pub(crate) const EXIT: Duration = Duration::from_millis(500);
/// The time for an agent to end after SIGTERM, when only the agent itself is ended.
pub(crate) const TERMINATE: Duration = Duration::from_secs(2);
/// The time for an agent to end after SIGKILL, when only the agent itself is ended.
pub(crate) const KILL: Duration = Duration::from_secs(2);

/// The time for Claude Code to end a turn after each interrupt. The slowest measured time is 150 ms.
pub(crate) const CLAUDE_INTERRUPT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(3)];
/// The time for Claude Code to end after the request to end.
pub(crate) const CLAUDE_END: Duration = Duration::from_secs(2);
/// The time for Claude Code to end after its input was closed.
pub(crate) const CLAUDE_CLOSED_INPUT: Duration = Duration::from_secs(1);
/// The time for writing the request to end to the pipe before the pipe is closed.
pub(crate) const CLAUDE_REQUEST: Duration = Duration::from_millis(200);

/// The time for Codex to end a turn after each interrupt. Measured: 20 ms.
pub(crate) const CODEX_INTERRUPT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(3)];
/// The time for Codex to end after its input was closed.
pub(crate) const CODEX_CLOSED_INPUT: Duration = Duration::from_secs(5);
/// The time for the commands of Codex to end by themselves after an interrupt.
#[cfg(target_os = "linux")]
pub(crate) const CODEX_COMMANDS_ENDING: Duration = Duration::from_millis(500);
/// The time for ending all commands of Codex. After it the driver names the commands that are still alive.
#[cfg(target_os = "linux")]
pub(crate) const CODEX_COMMANDS: Duration = Duration::from_secs(3);

/// The time for an ACP agent to end a turn after each interrupt. The slowest measured time is 150 ms. The driver repeats the interrupt before it
/// sends a signal, because some agents lose an interrupt that arrives before they begin the turn.
pub(crate) const ACP_INTERRUPT: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
];
/// The time for an ACP agent to end after the request to end.
pub(crate) const ACP_END: Duration = Duration::from_secs(2);
/// The time for an ACP agent to end after its input was closed.
pub(crate) const ACP_CLOSED_INPUT: Duration = Duration::from_secs(2);
