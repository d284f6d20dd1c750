//! The facts about each agent that only the doctor needs.

use agent_drivers::{AgentConfig, AgentOptions, acp::AcpPreset};

use crate::agents::{AgentKind, KNOWN};

/// The way to ask an agent whether it is logged in, without reading its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// `auth status` prints an object.
    ClaudeStatus,
    /// The app server answers `account/read`. `login status` doesn't know services without a login.
    CodexAccount,
    /// `auth list` prints counts.
    OpencodeList,
    /// The way of the protocol: an attempt to open a session.
    GeminiSession,
    /// The adapter reports the status of its own Claude Code.
    AdapterStatus,
    /// Only the protocol of the agent is known.
    Introduction,
    /// The agent has no driver, or nothing is known about it.
    None,
}

/// The facts about an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The version that was tested with this version of `rlm`.
    pub(super) tried: Option<&'static str>,
    pub(super) question: Question,
    /// The way for a person to log in.
    pub(super) log_in: &'static str,
    /// The variables for its login.
    pub(super) variables: &'static [&'static str],
}

/// The program of `acp` if `rlm.toml` names none.
pub(super) const ADAPTER: &str = "claude-agent-acp";

const CLAUDE_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

/// Returns the facts about an agent.
pub(super) fn facts(agent: &AgentConfig) -> Facts {
    match &agent.options {
        AgentOptions::Claude(_) => Facts {
            tried: Some("2.1.329"),
            question: Question::ClaudeStatus,
            log_in: "claude auth login",
            variables: CLAUDE_VARIABLES,
        },
        AgentOptions::Codex(_) => Facts {
            tried: Some("0.169.0"),
            question: Question::CodexAccount,
            log_in: "codex login",
            variables: &[],
        },
        AgentOptions::Acp { preset, .. } => protocol(*preset),
        // A command, or an agent without an entry here, is not asked.
        _ => Facts {
            tried: None,
            question: Question::None,
            log_in: "",
            variables: &[],
        },
    }
}

fn protocol(preset: AcpPreset) -> Facts {
    match preset {
        AcpPreset::Gemini => Facts {
            tried: Some("0.61.0"),
            question: Question::GeminiSession,
            log_in: "start gemini once and choose a login method, or set GEMINI_API_KEY",
            variables: &[
                "GEMINI_API_KEY",
                "GOOGLE_API_KEY",
                "GOOGLE_GENAI_USE_VERTEXAI",
                "GOOGLE_GENAI_USE_GCA",
            ],
        },
        AcpPreset::Opencode => Facts {
            tried: Some("1.18.33"),
            question: Question::OpencodeList,
            log_in: "opencode auth login",
            variables: &[],
        },
        AcpPreset::Claude => Facts {
            tried: Some("0.49.0"),
            question: Question::AdapterStatus,
            log_in: "claude-agent-acp --cli auth login",
            variables: CLAUDE_VARIABLES,
        },
        // For any other agent, only the protocol is known.
        _ => Facts {
            tried: None,
            question: Question::Introduction,
            log_in: "start it once in a terminal and log in",
            variables: &[],
        },
    }
}

/// Returns how to install a missing program.
pub(super) fn missing(kind: AgentKind, program: &str) -> String {
    let known = KNOWN.iter().find(|known| known.name == program);
    match known {
        Some(known) => known.install.to_owned(),
        None if program == ADAPTER => {
            "npm install -g @agentclientprotocol/claude-agent-acp".to_owned()
        }
        None if program.is_empty() => {
            "rlm.toml has no command; you can add one after --".to_owned()
        }
        None => format!(
            "`{program}`, which rlm.toml names for {}, doesn't exist",
            kind.name()
        ),
    }
}
