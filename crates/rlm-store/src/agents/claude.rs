//! The options of Claude Code, as they are saved with a run.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Hidden;

/// What can be said to Claude Code besides its model and what it may do.
///
/// It is saved with the run as it is. An option that this version does not know is an error rather than nothing: it could
/// be one that forbids something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The only variables that it inherits, besides those that it needs; all if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_allow: Option<Vec<String>>,
}

impl ClaudeOptions {
    pub(super) fn hide_values(&mut self) {
        self.env.hide();
        self.settings.hide();
    }

    /// Returns the names of what is chosen here that keeps the agent from something.
    pub(super) fn restrictions(&self) -> Vec<&'static str> {
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
}
