//! The options of Codex, as they are saved with a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Hidden;

/// What can be said to Codex besides its model and what it may do.
///
/// It is saved with the run as it is. An option that this version does not know is an error rather than nothing: it could
/// be one that forbids something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The only variables that it inherits, besides those that it needs; all if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_allow: Option<Vec<String>>,
}

impl CodexOptions {
    pub(super) fn hide_values(&mut self) {
        self.env.hide();
        self.config.hide();
    }

    /// Returns the names of what is chosen here that may keep the agent from something.
    pub(super) fn restrictions(&self) -> Vec<&'static str> {
        let config = ["config"].into_iter();
        config.filter(|_| !self.config.is_empty()).collect()
    }
}
