//! The options that only this agent has.

use crate::environment::Environment;
use crate::hidden::{HandedOn, Hidden};
use crate::section::{APPEND, EFFORT, ENV, ENV_ALLOW, OptionKey, OptionKind, SYSTEM};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The settings whose value is a command, or has one in it.
const COMMANDS: [&str; 2] = ["notify", "mcp_servers"];

/// What can be said to Codex besides its model and what it may do.
///
/// It is saved as it is, with values that may be secret; `Debug` shows neither those nor texts of people. An option that this version does not know is an error rather than nothing: it could
/// be one that forbids something.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CodexOptions {
    /// How hard the model shall think, in the agent's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The text in place of its own instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// A text behind its own instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_system_prompt: Option<String>,
    /// Settings over those of its `config.toml`, in its own words.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub config: Hidden<Map<String, Value>>,
    /// Whether it tells its makers what it does, if its settings want that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub analytics: bool,
    /// Variables of its environment.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub env: Hidden<BTreeMap<String, String>>,
    /// Lets the agent inherit of the host's environment only what has one of these names; one may end with `*`. Added to
    /// that is what an agent cannot do without: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, locale,
    /// proxies, certificates, and what begins with `XDG_`, `CODEX_` and `OPENAI_`. The key of another provider is not among that. By
    /// default it inherits all.
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
    /// Lists what a section of a configuration file may say of them.
    pub const KEYS: &'static [OptionKey] = &[
        EFFORT,
        SYSTEM,
        APPEND,
        OptionKey::new(
            "config",
            OptionKind::Free,
            "Settings over those of its config.toml, in its own words.",
        ),
        OptionKey::new(
            "analytics",
            OptionKind::Switch,
            "Whether it tells its makers what it does, if its settings want that.",
        ),
        ENV,
        ENV_ALLOW,
    ];

    pub(crate) fn hide_values(&mut self) {
        self.env.hide();
        self.config.hide();
    }

    /// Returns the names of what is chosen here that may keep the agent from something.
    pub(crate) fn restrictions(&self) -> Vec<&'static str> {
        let config = ["config"].into_iter();
        config.filter(|_| !self.config.is_empty()).collect()
    }

    /// Takes all options apart: a new one doesn't compile here until somebody decides whether it starts a program or may be secret.
    pub(crate) fn handed_on(&self) -> HandedOn<'_> {
        let Self {
            config,
            env,
            effort: _,
            system_prompt: _,
            append_system_prompt: _,
            analytics: _,
            env_allow: _,
        } = self;
        HandedOn {
            env: Some(&env.0),
            settings: Some(&config.0),
            commands: &COMMANDS,
            hooks: None,
        }
    }

    /// Returns the environment that the agent gets.
    pub(super) fn environment(&self) -> Environment {
        Environment::new(&self.env.0, self.env_allow.as_deref())
    }
}
