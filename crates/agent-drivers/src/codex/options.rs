//! The options that only this agent has.

use crate::environment::Environment;
use crate::redacted::{PassedThrough, Redacted};
use crate::section::{APPEND, EFFORT, ENV, ENV_ALLOW, OptionKey, OptionKind, SYSTEM};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The settings whose value is a command or contains one.
const COMMANDS: [&str; 2] = ["notify", "mcp_servers"];

/// The options of Codex besides its model and its permissions.
///
/// A run saves all values, even those that can be secret. `Debug` shows no prompts and no values that can be secret. An unknown option is an error,
/// because a newer version can use it to forbid something.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CodexOptions {
    /// The reasoning effort of the model, as the agent names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// A text that replaces the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// A text after the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_system_prompt: Option<String>,
    /// Settings that override `config.toml`, under the agent's own names.
    #[serde(skip_serializing_if = "Redacted::is_empty")]
    pub config: Redacted<Map<String, Value>>,
    /// Whether the agent can send analytics to its developers; its own settings must also enable them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub analytics: bool,
    /// Variables of the agent's environment.
    #[serde(skip_serializing_if = "Redacted::is_empty")]
    pub env: Redacted<BTreeMap<String, String>>,
    /// The only variables of the host that the agent inherits; a name can end with `*`. `None` means all. With a list, the agent also inherits the
    /// variables that it needs: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, those for locale, proxies and certificates, and
    /// names that begin with `XDG_`, `CODEX_` or `OPENAI_`. The key of another model provider is not among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_allow: Option<Vec<String>>,
}

impl fmt::Debug for CodexOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &Option<String>| text.as_ref().map(String::len);
        f.debug_struct("CodexOptions")
            .field("effort", &self.effort)
            .field("system_prompt", &length(&self.system_prompt))
            .field("append_system_prompt", &length(&self.append_system_prompt))
            .field("config", &self.config)
            .field("analytics", &self.analytics)
            .field("env", &self.env)
            .field("env_allow", &self.env_allow)
            .finish()
    }
}

impl CodexOptions {
    /// The keys of the agent's section in a configuration file.
    #[doc(hidden)] // only `rlm` reads such a file
    pub const KEYS: &'static [OptionKey] = &[
        EFFORT,
        SYSTEM,
        APPEND,
        OptionKey::new(
            "config",
            OptionKind::Free,
            "Settings that override config.toml, under the agent's own names.",
        ),
        OptionKey::new(
            "analytics",
            OptionKind::Switch,
            "Whether the agent can send analytics to its developers, if its settings enable that.",
        ),
        ENV,
        ENV_ALLOW,
    ];

    pub(crate) fn redact_values(&mut self) {
        self.env.redact();
        self.config.redact();
    }

    /// Returns the names of the set options that can restrict the agent.
    pub(crate) fn restrictions(&self) -> Vec<&'static str> {
        let config = ["config"].into_iter();
        config.filter(|_| !self.config.is_empty()).collect()
    }

    /// Destructures all options. So a new option doesn't compile here until its author decides whether the option starts a program or can be secret.
    pub(crate) fn passed_through(&self) -> PassedThrough<'_> {
        let Self {
            config,
            env,
            effort: _,
            system_prompt: _,
            append_system_prompt: _,
            analytics: _,
            env_allow: _,
        } = self;
        PassedThrough {
            env: Some(&env.0),
            settings: Some(&config.0),
            commands: &COMMANDS,
            hooks: None,
        }
    }

    /// Returns the environment of the agent.
    pub(super) fn environment(&self) -> Environment {
        Environment::new(&self.env.0, self.env_allow.as_deref())
    }
}
