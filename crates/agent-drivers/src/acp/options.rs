//! The options that only this agent has.

use crate::environment::Environment;
use crate::hidden::{HandedOn, Hidden};
use crate::section::{ENV, ENV_ALLOW, OptionKey, OptionKind};
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
    /// Lists what a section of a configuration file may say of them.
    pub const KEYS: &'static [OptionKey] = &[
        OptionKey::new(
            "auth-method",
            OptionKind::Text,
            "The agent's id of the way in which it logs in.",
        ),
        ENV,
        ENV_ALLOW,
    ];

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
