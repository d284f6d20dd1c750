//! What can be chosen for an agent before it starts.

use super::ClaudeDriver;
use crate::SessionLocks;
use crate::converse::Timeouts;
use crate::environment::Environment;
use crate::mcp::McpServers;
use agent_duplex::Permissions;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// What was chosen. Texts of people's and values of variables are not shown.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) model: Option<String>,
    pub(super) fallback_model: Option<String>,
    pub(super) effort: Option<String>,
    pub(super) permissions: Permissions,
    pub(super) max_turns: Option<NonZeroU32>,
    pub(super) tools: Option<Vec<String>>,
    pub(super) allowed_tools: Vec<String>,
    pub(super) disallowed_tools: Vec<String>,
    pub(super) system_prompt: Option<String>,
    pub(super) append_system_prompt: Option<String>,
    pub(super) setting_sources: Option<Vec<String>>,
    pub(super) settings: Map<String, Value>,
    pub(super) hooks: bool,
    pub(super) add_dirs: Vec<PathBuf>,
    pub(super) mcp_servers: McpServers,
    pub(super) strict_mcp: bool,
    pub(super) env: Environment,
    pub(super) args: Vec<OsString>,
    pub(super) timeouts: Timeouts,
    pub(super) locks: Option<SessionLocks>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &Option<String>| text.as_ref().map(|text| text.len());
        let keys: Vec<_> = self.settings.keys().collect();
        f.debug_struct("Options")
            .field("model", &self.model)
            .field("fallback_model", &self.fallback_model)
            .field("effort", &self.effort)
            .field("permissions", &self.permissions)
            .field("max_turns", &self.max_turns)
            .field("tools", &self.tools)
            .field("allowed_tools", &self.allowed_tools)
            .field("disallowed_tools", &self.disallowed_tools)
            .field("system_prompt", &length(&self.system_prompt))
            .field("append_system_prompt", &length(&self.append_system_prompt))
            .field("setting_sources", &self.setting_sources)
            .field("settings", &keys)
            .field("hooks", &self.hooks)
            .field("add_dirs", &self.add_dirs)
            .field("mcp_servers", &self.mcp_servers)
            .field("strict_mcp", &self.strict_mcp)
            .field("env", &self.env)
            .field("args", &self.args.len())
            .field("timeouts", &self.timeouts)
            .field("locks", &self.locks)
            .finish()
    }
}

fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    texts.into_iter().map(Into::into).collect()
}

/// What is chosen with these methods is checked when a connection is opened.
impl ClaudeDriver {
    /// Names the model; by default that of the agent's own settings.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.options.model = Some(model.into());
        self
    }

    /// Names the model that is used while the first one is overloaded.
    #[must_use]
    pub fn fallback_model(mut self, model: impl Into<String>) -> Self {
        self.options.fallback_model = Some(model.into());
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
    /// What it is not allowed it asks: [`Event::PermissionAsked`](agent_duplex::Event::PermissionAsked) wants an answer
    /// under [`Permissions::Edits`] and [`Permissions::Deny`] too. [`Permissions::All`] is refused as root.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.options.permissions = permissions;
        self
    }

    /// Bounds the requests to the model in one turn; by default there is no bound.
    #[must_use]
    pub fn max_turns(mut self, turns: NonZeroU32) -> Self {
        self.options.max_turns = Some(turns);
        self
    }

    /// Restricts the agent to these of its own tools; none at all if there are none. By default it has all.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.tools = Some(texts(tools));
        self
    }

    /// Adds rules for calls that need no permission, such as `Bash(git log:*)`. This restricts nothing: see
    /// [`tools`](Self::tools).
    #[must_use]
    pub fn allowed_tools(mut self, rules: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.allowed_tools.extend(texts(rules));
        self
    }

    /// Adds rules for calls that are never permitted.
    #[must_use]
    pub fn disallowed_tools(mut self, rules: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.disallowed_tools.extend(texts(rules));
        self
    }

    /// Replaces the agent's system prompt. It goes by a private file, so that nobody reads it in a list of processes.
    #[must_use]
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.options.system_prompt = Some(text.into());
        self
    }

    /// Adds to the agent's system prompt, likewise.
    #[must_use]
    pub fn append_system_prompt(mut self, text: impl Into<String>) -> Self {
        self.options.append_system_prompt = Some(text.into());
        self
    }

    /// Says which settings the agent reads: of `user`, `project` and `local`; none if there are none. By default all.
    #[must_use]
    pub fn setting_sources(mut self, sources: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.setting_sources = Some(texts(sources));
        self
    }

    /// Puts settings over those that the agent reads, in its own words. They go by a private file.
    #[must_use]
    pub fn settings(mut self, settings: Map<String, Value>) -> Self {
        self.options.settings = settings;
        self
    }

    /// Lets the hooks in the agent's settings run. By default none does (`disableAllHooks`), those that guard something
    /// included, but for those that an administrator made compulsory.
    #[must_use]
    pub fn hooks(mut self, hooks: bool) -> Self {
        self.options.hooks = hooks;
        self
    }

    /// Adds directories that the agent may work in besides its own; relative ones count from there.
    #[must_use]
    pub fn add_dirs(mut self, directories: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let directories = directories.into_iter().map(Into::into);
        self.options.add_dirs.extend(directories);
        self
    }

    /// Hands MCP servers on, by a private file that is removed when the agent has ended.
    #[must_use]
    pub fn mcp_servers(mut self, servers: McpServers) -> Self {
        self.options.mcp_servers = servers;
        self
    }

    /// Keeps the agent from all other MCP servers, those of its own settings among them.
    #[must_use]
    pub fn strict_mcp(mut self, strict: bool) -> Self {
        self.options.strict_mcp = strict;
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
    /// proxies, certificates, what begins with `XDG_`, `ANTHROPIC_` and `CLAUDE_`, and `IS_SANDBOX`. Credentials of a cloud are
    /// not among that: who reaches the model through one allows them too, such as `AWS_*` or `GOOGLE_*`. By default it inherits all.
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

    /// Says how long the agent may take to answer its introduction, and any other request; 60 s each by default. Late
    /// answers mean nothing. What the agent asks may wait for ever.
    #[must_use]
    pub fn request_timeouts(mut self, initialize: Duration, others: Duration) -> Self {
        self.options.timeouts = Timeouts { initialize, others };
        self
    }

    /// Locks sessions against other processes that use the same directory. By default nothing is locked, nor is a session
    /// that the agent changes to by itself.
    ///
    /// Who would go on with a session that another agent writes gets an error for which
    /// [`is_held`](agent_duplex::Error::is_held) is true, and whose source is a [`SessionHeld`](crate::SessionHeld).
    #[must_use]
    pub fn session_locks(mut self, locks: SessionLocks) -> Self {
        self.options.locks = Some(locks);
        self
    }
}
