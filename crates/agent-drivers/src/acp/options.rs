//! The options that only this agent has.

use crate::environment::Environment;
use crate::redacted::{PassedThrough, Redacted};
use crate::section::{ENV, ENV_ALLOW, OptionKey, OptionKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The options of an agent that implements the Agent Client Protocol, besides its model and its permissions.
///
/// A run saves all values, even those that can be secret. `Debug` shows no prompts and no values that can be secret. An unknown option is an error.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AcpOptions {
    /// The id of the agent's login method, which must need no person. The driver logs in with it before the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// Variables of the agent's environment.
    #[serde(skip_serializing_if = "Redacted::is_empty")]
    pub env: Redacted<BTreeMap<String, String>>,
    /// The only variables of the host that the agent inherits; a name can end with `*`. `None` means all. With a list, the agent also inherits the
    /// variables that it needs: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, those for locale, proxies and certificates, and
    /// names that begin with `XDG_`. A preset adds the variables of its agent: `GEMINI_*`, `GOOGLE_API_KEY`, `GOOGLE_GEMINI_*` and `GOOGLE_GENAI_*`;
    /// `OPENCODE_*`; or `ANTHROPIC_*`, `CLAUDE_*` and `IS_SANDBOX`. The API keys of OpenCode's model providers are not among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_allow: Option<Vec<String>>,
}

impl AcpOptions {
    /// The keys of the agent's section in a configuration file.
    #[doc(hidden)] // only `rlm` reads such a file
    pub const KEYS: &'static [OptionKey] = &[
        OptionKey::new(
            "auth-method",
            OptionKind::Text,
            "The id of the agent's login method.",
        ),
        ENV,
        ENV_ALLOW,
    ];

    /// Destructures all options. So a new option doesn't compile here until its author decides whether the option starts a program or can be secret.
    pub(crate) fn passed_through(&self) -> PassedThrough<'_> {
        let Self {
            env,
            auth_method: _,
            env_allow: _,
        } = self;
        PassedThrough {
            env: Some(&env.0),
            ..PassedThrough::default()
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
    /// Returns the names of the set options that can restrict the agent.
    pub(crate) fn restrictions(&self) -> Vec<&'static str> {
        // OpenCode and Gemini CLI have variables that restrict them.
        let env = ["env"].into_iter();
        env.filter(|_| !self.env.is_empty()).collect()
    }

    /// Returns the environment of the agent.
    pub(super) fn environment(&self) -> Environment {
        Environment::new(&self.env.0, self.env_allow.as_deref())
    }
}
