//! What can be chosen for an agent before it starts.

use super::AcpDriver;
use crate::SessionLocks;
use crate::converse::Timeouts;
use crate::environment::Environment;
use crate::mcp::McpServers;
use agent_duplex::Permissions;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

/// What was chosen. Values of variables are not shown.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) model: Option<String>,
    pub(super) permissions: Permissions,
    pub(super) mcp_servers: McpServers,
    pub(super) auth_method: Option<String>,
    pub(super) env: Environment,
    pub(super) args: Vec<OsString>,
    pub(super) timeouts: Timeouts,
    pub(super) locks: Option<SessionLocks>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("model", &self.model)
            .field("permissions", &self.permissions)
            .field("mcp_servers", &self.mcp_servers)
            .field("auth_method", &self.auth_method)
            .field("env", &self.env)
            .field("args", &self.args.len())
            .field("timeouts", &self.timeouts)
            .field("locks", &self.locks)
            .finish()
    }
}

/// What is chosen with these methods is checked when a connection is opened.
impl AcpDriver {
    /// Names the model, by the agent's own id for it; by default that of the agent's settings.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.options.model = Some(model.into());
        self
    }

    /// Says what the agent may do without being asked about each time ([`Permissions::Edits`] by default).
    ///
    /// An agent that has a mode for it is put into that mode. What it asks all the same is allowed by the driver under
    /// [`Permissions::All`], and under [`Permissions::Edits`] where it is an edit of files that the agent says are below its
    /// working directory. Everything else is [asked](agent_duplex::Event::PermissionAsked) and wants an answer, under
    /// [`Permissions::Deny`] too.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.options.permissions = permissions;
        self
    }

    /// Hands MCP servers on when a session is opened. One over HTTP, or over events, needs an agent that takes such; with
    /// another the start is answered with an error for which [`is_unsupported`](agent_duplex::Error::is_unsupported) is true.
    #[must_use]
    pub fn mcp_servers(mut self, servers: McpServers) -> Self {
        self.options.mcp_servers = servers;
        self
    }

    /// Asks the agent to log in by one of its methods, by its id, before a session is opened; it has to be one that needs no
    /// person. By default agents log in by what their own settings and their environment say.
    #[must_use]
    pub fn auth_method(mut self, method: impl Into<String>) -> Self {
        self.options.auth_method = Some(method.into());
        self
    }

    /// Sets a variable of the agent's environment, over the host's and the context's.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.options.env.set(name, value);
        self
    }

    /// Lets the agent inherit of the host's environment only what has one of these names; one may end with `*`. Added to
    /// that is what an agent cannot do without: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, locale,
    /// proxies, certificates, what begins with `XDG_`, and what a known agent calls its own: `GEMINI_*`, `GOOGLE_API_KEY`,
    /// `GOOGLE_GEMINI_*` and `GOOGLE_GENAI_*`; `OPENCODE_*`; or `ANTHROPIC_*`, `CLAUDE_*` and `IS_SANDBOX`. The keys of the services that
    /// OpenCode can use are not among that. By default it inherits all.
    #[must_use]
    pub fn env_allow(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.env.allow(names);
        self
    }

    /// Adds arguments at the end, in the agent's own words. What the driver chooses of an agent that it knows is answered with an
    /// error when it is said here again; what the agent may do is among that.
    #[must_use]
    pub fn args(mut self, args: Vec<OsString>) -> Self {
        self.options.args.extend(args);
        self
    }

    /// Says how long the agent may take to answer its introduction, and any other request; 60 s each by default. A turn may
    /// take for ever, and so may what the agent asks.
    #[must_use]
    pub fn request_timeouts(mut self, initialize: Duration, others: Duration) -> Self {
        self.options.timeouts = Timeouts { initialize, others };
        self
    }

    /// Locks sessions against other processes that use the same directory. By default nothing is locked.
    ///
    /// Who would go on with a session that another agent writes gets an error for which
    /// [`is_held`](agent_duplex::Error::is_held) is true, and whose source is a [`SessionHeld`](crate::SessionHeld). A new
    /// session gets its id from the agent and is locked from then on; this lock, unlike that of a session that is gone on
    /// with, ends with the host.
    #[must_use]
    pub fn session_locks(mut self, locks: SessionLocks) -> Self {
        self.options.locks = Some(locks);
        self
    }
}
