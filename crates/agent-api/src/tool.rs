//! Tools: what a model can call. [`Tool`] is the interface; `tool/` has the tools of this crate.

use std::sync::Arc;

mod access;
mod arguments;
mod bash;
mod context;
mod edit;
mod file_change;
mod file_tool;
mod files;
#[cfg(feature = "schemars")]
mod function;
mod glob;
mod grep;
mod interface;
mod limit_clock;
#[cfg(feature = "mcp")]
mod mcp;
mod no_links;
mod output;
mod plain_file;
mod process;
mod read;
mod walk;
mod working_directory;
mod write;

pub use access::Access;
pub use bash::Bash;
pub(crate) use context::FileStamp;
pub(crate) use context::Stops;
pub use context::ToolContext;
pub use file_change::FileChange;
pub(crate) use file_change::{ChangeState, change_state};
use file_tool::{Changing, Reading};
#[cfg(feature = "schemars")]
pub use function::FunctionTool;
pub use interface::{Prepared, Tool, ToolOutput};
#[cfg(feature = "mcp")]
pub use mcp::McpServer;
#[cfg(feature = "mcp")]
pub(crate) use mcp::{ListedTools, RunningServers, ServerTool, ToolBudget};
pub use working_directory::{ResolvedPath, WorkingDirectory};

/// Returns the tools for work on code: `bash`, `read`, `write`, `edit`, `grep` and `glob`, always in this order.
#[must_use]
pub fn coding_tools(bash: Bash) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(bash),
        Arc::new(Reading(read::ReadFile)),
        Arc::new(Changing(write::WriteFile)),
        Arc::new(Changing(edit::EditFile)),
        Arc::new(Reading(grep::Grep)),
        Arc::new(Reading(glob::Glob)),
    ]
}
