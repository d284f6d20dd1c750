//! The options that only this agent has.

use crate::environment::Environment;
use crate::hidden::{HandedOn, Hidden};
use crate::section::{APPEND, EFFORT, ENV, ENV_ALLOW, OptionKey, OptionKind, SYSTEM};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// The settings whose value is a command, or has one in it.
const COMMANDS: [&str; 6] = [
    "apiKeyHelper",
    "awsAuthRefresh",
    "awsCredentialExport",
    "hooks",
    "otelHeadersHelper",
    "statusLine",
];

/// What can be said to Claude Code besides its model and what it may do.
///
/// It is saved as it is, with values that may be secret; `Debug` shows neither those nor texts of people. An option that this version does not know is an error rather than nothing: it could
/// be one that forbids something.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ClaudeOptions {
    /// The model that is used while the first one is overloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<String>,
    /// How hard the model shall think, in the agent's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The most requests to the model in one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<NonZeroU32>,
    /// The only tools of its own that it has; all if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Rules for calls that need no permission.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Rules for calls that are never permitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed_tools: Vec<String>,
    /// The text in place of its system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// A text behind its system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_system_prompt: Option<String>,
    /// The settings that it reads, of `user`, `project` and `local`; all if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting_sources: Option<Vec<String>>,
    /// Settings over those, in its own words.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub settings: Hidden<Map<String, Value>>,
    /// Whether the hooks of its settings run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hooks: bool,
    /// Directories that it may work in besides its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_dirs: Vec<PathBuf>,
    /// Whether it has no MCP servers but those that it is handed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_mcp: bool,
    /// Variables of its environment.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub env: Hidden<BTreeMap<String, String>>,
    /// Lets the agent inherit of the host's environment only what has one of these names; one may end with `*`. Added to
    /// that is what an agent cannot do without: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, locale,
    /// proxies, certificates, what begins with `XDG_`, `ANTHROPIC_` and `CLAUDE_`, and `IS_SANDBOX`. Credentials of a cloud are
    /// not among that: who reaches the model through one allows them too, such as `AWS_*` or `GOOGLE_*`. By default it inherits all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_allow: Option<Vec<String>>,
}

impl fmt::Debug for ClaudeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &Option<String>| text.as_ref().map(String::len);
        f.debug_struct("ClaudeOptions")
            .field("fallback_model", &self.fallback_model)
            .field("effort", &self.effort)
            .field("max_turns", &self.max_turns)
            .field("tools", &self.tools)
            .field("allowed_tools", &self.allowed_tools)
            .field("disallowed_tools", &self.disallowed_tools)
            .field("system_prompt", &length(&self.system_prompt))
            .field("append_system_prompt", &length(&self.append_system_prompt))
            .field("setting_sources", &self.setting_sources)
            .field("settings", &self.settings)
            .field("hooks", &self.hooks)
            .field("add_dirs", &self.add_dirs)
            .field("strict_mcp", &self.strict_mcp)
            .field("env", &self.env)
            .field("env_allow", &self.env_allow)
            .finish()
    }
}

impl ClaudeOptions {
    /// Lists what a section of a configuration file may say of them.
    pub const KEYS: &'static [OptionKey] = &[
        OptionKey::new(
            "fallback-model",
            OptionKind::Text,
            "The model while the first one is overloaded.",
        ),
        EFFORT,
        OptionKey::new(
            "max-turns",
            OptionKind::Count(1),
            "The most requests to the model in one turn.",
        ),
        OptionKey::new(
            "tools",
            OptionKind::Texts,
            "The only tools of its own that it has.",
        ),
        OptionKey::new(
            "allowed-tools",
            OptionKind::Texts,
            "Rules for calls that need no permission.",
        ),
        OptionKey::new(
            "disallowed-tools",
            OptionKind::Texts,
            "Rules for calls that are never permitted.",
        ),
        SYSTEM,
        APPEND,
        OptionKey::new(
            "setting-sources",
            OptionKind::Texts,
            "The settings that it reads, of user, project and local.",
        ),
        OptionKey::new(
            "settings",
            OptionKind::Free,
            "Settings over those, in its own words.",
        ),
        OptionKey::new(
            "hooks",
            OptionKind::Switch,
            "Whether the hooks of its settings run.",
        ),
        OptionKey::new(
            "add-dirs",
            OptionKind::Texts,
            "Directories that it may work in besides its own.",
        ),
        OptionKey::new(
            "strict-mcp",
            OptionKind::Switch,
            "Whether it has no MCP servers but those that it is handed.",
        ),
        ENV,
        ENV_ALLOW,
    ];

    pub(crate) fn hide_values(&mut self) {
        self.env.hide();
        self.settings.hide();
    }

    /// Returns the names of what is chosen here that keeps the agent from something.
    pub(crate) fn restrictions(&self) -> Vec<&'static str> {
        let chosen = [
            ("tools", self.tools.is_some()),
            ("disallowed-tools", !self.disallowed_tools.is_empty()),
            ("settings", !self.settings.is_empty()),
            // One of them may be a guard.
            ("hooks", self.hooks),
        ];
        let chosen = chosen.into_iter().filter(|(_, chosen)| *chosen);
        chosen.map(|(name, _)| name).collect()
    }

    /// Takes all options apart: a new one doesn't compile here until somebody decides whether it starts a program or may be secret.
    pub(crate) fn handed_on(&self) -> HandedOn<'_> {
        let Self {
            setting_sources,
            settings,
            hooks,
            env,
            fallback_model: _,
            effort: _,
            max_turns: _,
            tools: _,
            allowed_tools: _,
            disallowed_tools: _,
            system_prompt: _,
            append_system_prompt: _,
            add_dirs: _,
            strict_mcp: _,
            env_allow: _,
        } = self;
        let sources = setting_sources.as_ref().map(|them| them.join(", "));
        let sources = sources.unwrap_or_else(|| "user, project, local".to_owned());
        HandedOn {
            env: Some(&env.0),
            settings: Some(&settings.0),
            commands: &COMMANDS,
            hooks: hooks.then_some(sources),
        }
    }

    /// Returns the environment that the agent gets.
    pub(super) fn environment(&self) -> Environment {
        Environment::new(&self.env.0, self.env_allow.as_deref())
    }
}
