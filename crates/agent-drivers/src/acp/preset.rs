//! The presets: known agents that implement the Agent Client Protocol.

use std::ffi::OsStr;
use std::path::Path;

use agent_duplex::Capability;
use serde::{Deserialize, Serialize};

use super::gemini;

/// A known agent that implements the Agent Client Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AcpPreset {
    /// Gemini CLI.
    Gemini,
    /// OpenCode.
    Opencode,
    /// The adapter for Claude Code.
    Claude,
    /// An unknown agent.
    Other,
}

impl AcpPreset {
    /// Returns the preset for a program's name or path.
    #[must_use]
    pub fn of_program(program: &OsStr) -> Self {
        match Path::new(program).file_name().and_then(OsStr::to_str) {
            Some("claude-agent-acp") => Self::Claude,
            _ => Self::Other,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.facts().name
    }

    pub(super) const fn facts(self) -> &'static PresetFacts {
        match self {
            Self::Gemini => &GEMINI,
            Self::Opencode => &OPENCODE,
            Self::Claude => &CLAUDE,
            Self::Other => &ANY,
        }
    }

    /// Returns whether the agent reports cost, and whether it reports tokens.
    pub(crate) const fn usage_reporting(self) -> (bool, bool) {
        match self {
            Self::Claude | Self::Opencode => (true, true),
            Self::Gemini => (false, true),
            Self::Other => (false, false),
        }
    }
}

/// The facts about an agent that hold before it is started.
#[derive(Debug)]
pub(super) struct PresetFacts {
    pub(super) name: &'static str,
    /// The arguments that enable the protocol.
    pub(super) args: &'static [&'static str],
    pub(super) env: &'static [(&'static str, &'static str)],
    /// The variables of the host's environment that this agent needs besides those that every agent needs.
    pub(super) needs: &'static [&'static str],
    /// The arguments for permissions. The driver refuses them in the caller's arguments, because they would silently override its own.
    pub(super) permissions: &'static [&'static str],
    /// The other arguments that the driver sets itself. It refuses them in the same way.
    pub(super) own_args: &'static [&'static str],
    /// The capabilities of this agent besides those that every agent has.
    pub(super) extra_capabilities: &'static [Capability],
    pub(super) cost_restarts: bool,
    /// The variable that enables permission requests; it is set unless everything is allowed.
    pub(super) ask_variable: Option<(&'static str, &'static str)>,
}

/// The calls for which OpenCode asks: all except harmless ones that it allows by default.
const OPENCODE_PERMISSION: &str = r#"{"*":"ask","read":{"*":"allow","*.env":"ask","*.env.*":"ask","*.env.example":"allow"},"glob":"allow","grep":"allow","list":"allow","lsp":"allow","skill":"allow","task":"allow","todoread":"allow","todowrite":"allow","question":"deny","plan_enter":"deny","plan_exit":"deny"}"#;

const ANY: PresetFacts = PresetFacts {
    name: "acp",
    args: &[],
    env: &[],
    needs: &[],
    permissions: &[],
    own_args: &[],
    extra_capabilities: &[
        Capability::Fork,
        Capability::Model,
        Capability::Resume,
        Capability::Usage,
    ],
    cost_restarts: false,
    ask_variable: None,
};

const GEMINI: PresetFacts = PresetFacts {
    name: gemini::NAME,
    args: &["--acp"],
    env: &[("GEMINI_CLI_NO_RELAUNCH", "true")],
    needs: &[
        "GEMINI_*",
        "GOOGLE_API_KEY",
        "GOOGLE_GEMINI_*",
        "GOOGLE_GENAI_*",
    ],
    permissions: &["--approval-mode", "--yolo", "-y"],
    own_args: &[
        "--acp",
        "--experimental-acp",
        "--prompt",
        "-p",
        "--prompt-interactive",
        "-i",
        "--resume",
        "-r",
        "--session-id",
        "--session-file",
        "--output-format",
        "-o",
    ],
    extra_capabilities: &[Capability::Model, Capability::Resume, Capability::Usage],
    ..ANY
};

const OPENCODE: PresetFacts = PresetFacts {
    name: "opencode",
    args: &["acp"],
    needs: &["OPENCODE_*"],
    ask_variable: Some(("OPENCODE_PERMISSION", OPENCODE_PERMISSION)),
    ..ANY
};

const CLAUDE: PresetFacts = PresetFacts {
    name: "claude-acp",
    needs: &["ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX"],
    cost_restarts: true,
    ..ANY
};
