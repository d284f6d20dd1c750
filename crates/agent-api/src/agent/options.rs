//! The settings of an agent.

use std::path::PathBuf;
use std::sync::Arc;

use agent_duplex::Permissions;

use super::middleware::Middleware;
use crate::budget::Budget;
use crate::dialect::{RequestSettings, ResponseLimits};
use crate::http::Endpoint;
#[cfg(feature = "mcp")]
use crate::tool::McpServer;
use crate::tool::Tool;

/// The settings of an [`ApiAgent`](crate::ApiAgent).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The model server.
    pub endpoint: Endpoint,
    /// The settings of each request: the model, the thinking, the maximum length of a response. The agent sets the tools. If the system prompt is empty, the
    /// agent uses its own.
    pub request: RequestSettings,
    /// The directory in which the agent works.
    pub directory: PathBuf,
    /// The directory of all sessions, one directory for each. The agent creates it if it is missing.
    pub sessions: PathBuf,
    /// The tools, in the order in which the model sees them. None by default.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The MCP servers, whose tools follow the others in this order. None by default.
    #[cfg(feature = "mcp")]
    #[cfg_attr(docsrs, doc(cfg(feature = "mcp")))]
    pub mcp_servers: Vec<McpServer>,
    /// Code around each call of the model, the outermost first. None by default.
    pub middleware: Vec<Arc<dyn Middleware>>,
    /// Text that follows the system prompt, such as the rules of a project. Empty by default.
    pub instructions: String,
    /// The permissions of the tools. By default the agent may edit files in the working directory.
    pub permissions: Permissions,
    /// The context window of the model in tokens; 128,000 by default. Before it is full, old parts of the conversation are removed.
    pub context_window: u64,
    /// The limits of a session; none by default.
    pub budget: Budget,
    /// The limits of a response.
    pub response_limits: ResponseLimits,
    /// The maximum number of calls of the model in a turn; 1,000 by default.
    pub max_calls: u32,
    /// The maximum number of tries of one call of the model; 5 by default.
    pub max_tries: u32,
}

impl AgentOptions {
    /// Creates the settings of an agent without tools.
    #[must_use]
    pub fn new(
        endpoint: Endpoint,
        model: impl Into<String>,
        directory: impl Into<PathBuf>,
        sessions: impl Into<PathBuf>,
    ) -> Self {
        Self {
            endpoint,
            request: RequestSettings {
                max_output_tokens: Some(16_000),
                ..RequestSettings::new(model)
            },
            directory: directory.into(),
            sessions: sessions.into(),
            tools: Vec::new(),
            #[cfg(feature = "mcp")]
            mcp_servers: Vec::new(),
            middleware: Vec::new(),
            instructions: String::new(),
            permissions: Permissions::default(),
            context_window: 128_000,
            budget: Budget::default(),
            response_limits: ResponseLimits::default(),
            max_calls: 1_000,
            max_tries: 5,
        }
    }
}
