//! The times in which a command of a tool, or an MCP server, ends. They are in one place, so that they can be compared.

use std::time::Duration;

/// The maximum time for the stop of a command or a server, and its processes.
pub(crate) const TOOL_STOP: Duration = Duration::from_secs(3);
/// The time that a command or a server, and its processes, have to end after SIGTERM. Also the time that a start of either has to return after an
/// interrupt.
pub(crate) const TOOL_TERMINATE: Duration = Duration::from_secs(1);
/// The time for which the output of a command is read after its exit, and after the end of its processes, if another process keeps it open. Also the
/// time that a server has to exit after it closed its output.
pub(crate) const TOOL_DRAIN: Duration = Duration::from_millis(500);

/// The time that a tool has to end after an interrupt; then it is dropped, which ends its processes too.
pub(crate) const TOOL_END: Duration = Duration::from_secs(8);
