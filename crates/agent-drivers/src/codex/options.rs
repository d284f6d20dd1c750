//! What can be chosen for an agent before it starts.

use super::CodexDriver;
use crate::converse::Timeouts;
use crate::environment::Environment;
use crate::mcp::McpServers;
use agent_duplex::Permissions;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

/// What was chosen. Texts of people's and values of settings and variables are not shown.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) model: Option<String>,
    pub(super) effort: Option<String>,
    pub(super) permissions: Permissions,
    pub(super) system_prompt: Option<String>,
    pub(super) append_system_prompt: Option<String>,
    pub(super) config: Map<String, Value>,
    pub(super) mcp_servers: McpServers,
    pub(super) analytics: bool,
    pub(super) env: Environment,
    pub(super) args: Vec<OsString>,
    pub(super) timeouts: Timeouts,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &Option<String>| text.as_ref().map(String::len);
        let keys: Vec<&String> = self.config.keys().collect();
        f.debug_struct("Options")
            .field("model", &self.model)
            .field("effort", &self.effort)
            .field("permissions", &self.permissions)
            .field("system_prompt", &length(&self.system_prompt))
            .field("append_system_prompt", &length(&self.append_system_prompt))
            .field("config", &keys)
            .field("mcp_servers", &self.mcp_servers)
            .field("analytics", &self.analytics)
            .field("env", &self.env)
            .field("args", &self.args.len())
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

/// What is chosen with these methods is checked when a connection is opened.
impl CodexDriver {
    /// Names the model; by default that of the agent's own settings.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.options.model = Some(model.into());
        self
    }

    /// Says how hard the model shall think, in the agent's words, such as `high`.
    #[must_use]
    pub fn effort(mut self, effort: impl Into<String>) -> Self {
        self.options.effort = Some(effort.into());
        self
    }

    /// Says what the agent may do without being asked about each time ([`Permissions::Edits`] by default).
    ///
    /// | | it asks | its sandbox |
    /// |---|---|---|
    /// | [`Permissions::Ask`] | for all commands and changes of files (`untrusted`) | `danger-full-access` |
    /// | [`Permissions::Edits`] | nothing | `workspace-write` |
    /// | [`Permissions::All`] | nothing | `danger-full-access` |
    /// | [`Permissions::Deny`] | nothing | `read-only` |
    ///
    /// What it asks all the same, such as for the tool of an MCP server, is permitted under [`Permissions::All`], and elsewhere
    /// [asked](agent_duplex::Event::PermissionAsked): it wants an answer under [`Permissions::Edits`] and
    /// [`Permissions::Deny`] too.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.options.permissions = permissions;
        self
    }

    /// Replaces the agent's own instructions. They go by its standard input, so that nobody reads them in a list of
    /// processes.
    #[must_use]
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.options.system_prompt = Some(text.into());
        self
    }

    /// Adds to the agent's own instructions, likewise.
    #[must_use]
    pub fn append_system_prompt(mut self, text: impl Into<String>) -> Self {
        self.options.append_system_prompt = Some(text.into());
        self
    }

    /// Puts settings over those of the agent's `config.toml`, in its own words, for this conversation. They go by its
    /// standard input.
    #[must_use]
    pub fn config(mut self, config: Map<String, Value>) -> Self {
        self.options.config = config;
        self
    }

    /// Hands MCP servers on, by standard input too. Codex knows programs and servers that speak HTTP.
    #[must_use]
    pub fn mcp_servers(mut self, servers: McpServers) -> Self {
        self.options.mcp_servers = servers;
        self
    }

    /// Leaves the agent's analytics as its settings want them. By default they are switched off: they are sent to its makers,
    /// and without a network they hold up its end for seconds.
    #[must_use]
    pub fn analytics(mut self, analytics: bool) -> Self {
        self.options.analytics = analytics;
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
    /// proxies, certificates, and what begins with `XDG_`, `CODEX_` and `OPENAI_`. The key of another provider is not among that. By
    /// default it inherits all.
    #[must_use]
    pub fn env_allow(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.env.allow(names);
        self
    }

    /// Adds arguments at the end. What the driver chooses is answered with an error when it is said here again; what the
    /// agent may do is among that.
    #[must_use]
    pub fn args(mut self, args: Vec<OsString>) -> Self {
        self.options.args.extend(args);
        self
    }

    /// Says how long the agent may take to open a conversation, and to answer any other request; 60 s each by default. Late
    /// answers mean nothing. What the agent asks may wait for ever.
    #[must_use]
    pub fn request_timeouts(mut self, initialize: Duration, others: Duration) -> Self {
        self.options.timeouts = Timeouts { initialize, others };
        self
    }
}
