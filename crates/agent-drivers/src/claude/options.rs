//! The options that only this agent has.

use crate::environment::Environment;
use crate::redacted::{PassedThrough, Redacted};
use crate::section::{APPEND, EFFORT, ENV, ENV_ALLOW, OptionKey, OptionKind, SYSTEM};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// The settings whose value is a command or contains one.
const COMMANDS: [&str; 6] = [
    "apiKeyHelper",
    "awsAuthRefresh",
    "awsCredentialExport",
    "hooks",
    "otelHeadersHelper",
    "statusLine",
];

/// The options of Claude Code besides its model and its permissions.
///
/// A run saves all values, even those that can be secret. `Debug` shows no prompts and no values that can be secret. An unknown option is an error,
/// because a newer version can use it to forbid something.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ClaudeOptions {
    /// The model to use while the first one is overloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<String>,
    /// The reasoning effort of the model, as the agent names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The limit of model requests in one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<NonZeroU32>,
    /// The only built-in tools that the agent has; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Rules for calls that need no permission.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Rules for calls that are always denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed_tools: Vec<String>,
    /// A text that replaces the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// A text after the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_system_prompt: Option<String>,
    /// The setting sources that the agent reads: `user`, `project` and `local`; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting_sources: Option<Vec<String>>,
    /// Settings that override the setting sources, under the agent's own names.
    #[serde(skip_serializing_if = "Redacted::is_empty")]
    pub settings: Redacted<Map<String, Value>>,
    /// Whether the hooks of the settings run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hooks: bool,
    /// Extra directories in which the agent can work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_dirs: Vec<PathBuf>,
    /// Whether the agent uses only the MCP servers that the driver passes to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_mcp: bool,
    /// Variables of the agent's environment.
    #[serde(skip_serializing_if = "Redacted::is_empty")]
    pub env: Redacted<BTreeMap<String, String>>,
    /// The only variables of the host that the agent inherits; a name can end with `*`. `None` means all. With a list, the agent also inherits the
    /// variables that it needs: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, `IS_SANDBOX`, those for locale, proxies and
    /// certificates, and names that begin with `XDG_`, `ANTHROPIC_` or `CLAUDE_`. Cloud credentials are not among them: if the agent reaches the
    /// model through a cloud, allow them too, such as `AWS_*` or `GOOGLE_*`.
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
    /// The keys of the agent's section in a configuration file.
    #[doc(hidden)] // only `rlm` reads such a file
    pub const KEYS: &'static [OptionKey] = &[
        OptionKey::new(
            "fallback-model",
            OptionKind::Text,
            "The model to use while the first one is overloaded.",
        ),
        EFFORT,
        OptionKey::new(
            "max-turns",
            OptionKind::Count(1),
            "The limit of model requests in one turn.",
        ),
        OptionKey::new(
            "tools",
            OptionKind::Texts,
            "The only built-in tools that the agent has.",
        ),
        OptionKey::new(
            "allowed-tools",
            OptionKind::Texts,
            "Rules for calls that need no permission.",
        ),
        OptionKey::new(
            "disallowed-tools",
            OptionKind::Texts,
            "Rules for calls that are always denied.",
        ),
        SYSTEM,
        APPEND,
        OptionKey::new(
            "setting-sources",
            OptionKind::Texts,
            "The setting sources that the agent reads: user, project and local.",
        ),
        OptionKey::new(
            "settings",
            OptionKind::Free,
            "Settings that override the setting sources, under the agent's own names.",
        ),
        OptionKey::new(
            "hooks",
            OptionKind::Switch,
            "Whether the hooks of the settings run.",
        ),
        OptionKey::new(
            "add-dirs",
            OptionKind::Texts,
            "Extra directories in which the agent can work.",
        ),
        OptionKey::new(
            "strict-mcp",
            OptionKind::Switch,
            "Whether the agent uses only the MCP servers that rlm passes to it.",
        ),
        ENV,
        ENV_ALLOW,
    ];

    pub(crate) fn redact_values(&mut self) {
        self.env.redact();
        self.settings.redact();
    }

    /// Returns the names of the set options that can restrict the agent.
    pub(crate) fn restrictions(&self) -> Vec<&'static str> {
        let chosen = [
            ("tools", self.tools.is_some()),
            ("disallowed-tools", !self.disallowed_tools.is_empty()),
            ("settings", !self.settings.is_empty()),
            // A hook can enforce a restriction.
            ("hooks", self.hooks),
        ];
        let chosen = chosen.into_iter().filter(|(_, chosen)| *chosen);
        chosen.map(|(name, _)| name).collect()
    }

    /// Destructures all options. So a new option doesn't compile here until its author decides whether the option starts a program or can be secret.
    pub(crate) fn passed_through(&self) -> PassedThrough<'_> {
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
        PassedThrough {
            env: Some(&env.0),
            settings: Some(&settings.0),
            commands: &COMMANDS,
            hooks: hooks.then_some(sources),
        }
    }

    /// Returns the environment of the agent.
    pub(super) fn environment(&self) -> Environment {
        Environment::new(&self.env.0, self.env_allow.as_deref())
    }
}
