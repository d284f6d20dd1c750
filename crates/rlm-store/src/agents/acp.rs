//! The options of agents that speak the Agent Client Protocol, as they are saved with a run.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Hidden;

/// Which agent it is that speaks the Agent Client Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcpPreset {
    /// The Gemini CLI.
    Gemini,
    /// OpenCode.
    Opencode,
    /// The adapter for Claude Code.
    Claude,
    /// One of which nothing is known before it runs.
    Other,
}

impl AcpPreset {
    /// Returns what is known of an agent of this name or path.
    #[must_use]
    pub fn of_program(program: &OsStr) -> Self {
        match Path::new(program).file_name().and_then(OsStr::to_str) {
            Some("claude-agent-acp") => Self::Claude,
            _ => Self::Other,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Claude => "claude-acp",
            Self::Other => "acp",
        }
    }

    /// Returns whether it says what it costs, and whether it counts its tokens.
    pub(super) const fn reports(self) -> (bool, bool) {
        match self {
            Self::Claude | Self::Opencode => (true, true),
            Self::Gemini => (false, true),
            Self::Other => (false, false),
        }
    }
}

/// What can be said to an agent that speaks the Agent Client Protocol besides its model and what it may do.
///
/// It is saved with the run as it is. An option that this version does not know is an error rather than nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AcpOptions {
    /// The agent's id of the way in which it logs in before it begins, one that needs no person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// Variables of its environment.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub env: Hidden<BTreeMap<String, String>>,
    /// The only variables that it inherits, besides those that it needs; all if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_allow: Option<Vec<String>>,
}
