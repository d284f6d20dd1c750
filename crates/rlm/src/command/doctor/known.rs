//! What is known of each agent that only the doctor needs.

use agent_drivers::{AgentConfig, AgentOptions, acp::AcpPreset};

use crate::agents::{AgentKind, KNOWN};

/// How an agent is asked whether it is logged in, without a look at its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// `auth status` prints an object.
    ClaudeStatus,
    /// The app server answers `account/read`. `login status` knows nothing of services that want no login.
    CodexAccount,
    /// `auth list` prints counts.
    OpencodeList,
    /// The protocol's own way: a session that can't be opened.
    GeminiSession,
    /// The adapter passes on what its own Claude Code says.
    AdapterStatus,
    /// Nothing is known of it but its protocol.
    Introduction,
    /// It is not driven, or nothing is known of it.
    None,
}

/// What the doctor knows of an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The version that is tried with this version of `rlm`.
    pub(super) tried: Option<&'static str>,
    pub(super) question: Question,
    /// How a person logs in.
    pub(super) log_in: &'static str,
    /// The variables by which it logs in.
    pub(super) variables: &'static [&'static str],
}

/// The program that `acp` means when `rlm.toml` names none.
pub(super) const ADAPTER: &str = "claude-agent-acp";

const CLAUDE_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

/// Returns what is known of an agent.
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
        // A command, and an agent that has no entry here, are asked nothing.
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
            log_in: "start gemini once and choose how, or set GEMINI_API_KEY",
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
        // Of one that has no entry here, no more is known than of any program that speaks the protocol.
        _ => Facts {
            tried: None,
            question: Question::Introduction,
            log_in: "start it once in a terminal and log in",
            variables: &[],
        },
    }
}

/// Says that a program is not here, and how to get it.
pub(super) fn missing(kind: AgentKind, program: &str) -> String {
    let known = KNOWN.iter().find(|known| known.name == program);
    match known {
        Some(known) => known.install.to_owned(),
        None if program == ADAPTER => {
            "npm install -g @agentclientprotocol/claude-agent-acp".to_owned()
        }
        None if program.is_empty() => {
            "no command stands in rlm.toml; it can be given behind --".to_owned()
        }
        None => format!(
            "`{program}`, which rlm.toml names for {}, is not there",
            kind.name()
        ),
    }
}
