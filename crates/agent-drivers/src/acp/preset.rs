//! The agents that speak the Agent Client Protocol and of which more is known.

use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};

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

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Claude => "claude-acp",
            Self::Other => "acp",
        }
    }

    /// Returns whether it says what it costs, and whether it counts its tokens.
    pub(crate) const fn reports(self) -> (bool, bool) {
        match self {
            Self::Claude | Self::Opencode => (true, true),
            Self::Gemini => (false, true),
            Self::Other => (false, false),
        }
    }
}
