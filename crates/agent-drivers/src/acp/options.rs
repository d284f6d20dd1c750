//! The options that only this agent has, and what its driver takes besides.

use super::AcpDriver;
use crate::choices::shared_options;
use crate::config::HandedOn;
use crate::environment::Environment;
use crate::hidden::Hidden;
use crate::mcp::McpServers;
use crate::session_locks::SessionLocks;
use agent_duplex::Permissions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What can be said to an agent that speaks the Agent Client Protocol besides its model and what it may do.
///
/// It is saved as it is, with values that may be secret; `Debug` shows neither those nor texts of people. An option that this version does not know is an error rather than nothing.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AcpOptions {
    /// The agent's id of the way in which it logs in before it begins, one that needs no person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// Variables of its environment.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub env: Hidden<BTreeMap<String, String>>,
    /// Lets the agent inherit of the host's environment only what has one of these names; one may end with `*`. Added to
    /// that is what an agent cannot do without: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, locale,
    /// proxies, certificates, what begins with `XDG_`, and what a known agent calls its own: `GEMINI_*`, `GOOGLE_API_KEY`,
    /// `GOOGLE_GEMINI_*` and `GOOGLE_GENAI_*`; `OPENCODE_*`; or `ANTHROPIC_*`, `CLAUDE_*` and `IS_SANDBOX`. The keys of the services that
    /// OpenCode can use are not among that. By default it inherits all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_allow: Option<Vec<String>>,
}

impl AcpOptions {
    /// Takes all options apart: a new one doesn't compile here until somebody decides whether it starts a program or may be secret.
    pub(crate) fn handed_on(&self) -> HandedOn<'_> {
        let Self {
            env,
            auth_method: _,
            env_allow: _,
        } = self;
        HandedOn {
            env: Some(&env.0),
            ..HandedOn::default()
        }
    }
}

impl fmt::Debug for AcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcpOptions")
            .field("auth_method", &self.auth_method)
            .field("env", &self.env)
            .field("env_allow", &self.env_allow)
            .finish()
    }
}

impl AcpOptions {
    /// Returns the names of what is chosen here that may keep the agent from something.
    pub(crate) fn restrictions(&self) -> Vec<&'static str> {
        // OpenCode and Gemini have variables for that.
        let env = ["env"].into_iter();
        env.filter(|_| !self.env.is_empty()).collect()
    }

    /// Returns the environment that the agent gets.
    pub(super) fn environment(&self) -> Environment {
        Environment::new(&self.env.0, self.env_allow.as_deref())
    }
}

shared_options!(AcpDriver, AcpOptions);

/// The driver checks these options when it opens a connection.
impl AcpDriver {
    /// Says what the agent may do without being asked about each time ([`Permissions::Edits`] by default).
    ///
    /// An agent that has a mode for it is put into that mode. What it asks all the same is allowed by the driver under
    /// [`Permissions::All`], and under [`Permissions::Edits`] where it is an edit of files that the agent says are below its
    /// working directory. Everything else is [asked](agent_duplex::Event::PermissionAsked) and wants an answer, under
    /// [`Permissions::Deny`] too.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.choices.permissions = permissions;
        self
    }

    /// Hands MCP servers on when a session is opened. One over HTTP, or over events, needs an agent that takes such; with
    /// another the start is answered with an error for which [`is_unsupported`](agent_duplex::Error::is_unsupported) is true.
    #[must_use]
    pub fn mcp_servers(mut self, servers: McpServers) -> Self {
        self.choices.mcp_servers = servers;
        self
    }

    /// Locks sessions against other processes that use the same directory: see [`Choices::session_locks`](crate::Choices::session_locks).
    #[must_use]
    pub fn session_locks(mut self, locks: SessionLocks) -> Self {
        self.choices.session_locks = Some(locks);
        self
    }
}
