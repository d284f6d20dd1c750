//! The options that only this agent has.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::redacted::{PassedThrough, Redacted};
use crate::section::{APPEND, EFFORT, ENV, OptionKey, OptionKind, SYSTEM};

pub(crate) const NAME: &str = "api";
/// The name of the directory with the sessions, beside the [scratch directory](agent_subprocess::ProcessContext::scratch). Each session in it is a
/// directory.
pub const SESSIONS: &str = "sessions";

/// A tool of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiTool {
    /// Runs a command.
    Bash,
    /// Reads a file.
    Read,
    /// Writes a whole file.
    Write,
    /// Replaces a text in a file.
    Edit,
    /// Searches in files.
    Grep,
    /// Finds files by name.
    Glob,
}

/// The options of the agent besides its model and its permissions. The server is not among them: a run doesn't save it.
///
/// A run saves all values, even those that can be secret. `Debug` shows no prompts and no values that can be
/// secret. An unknown option is an error, because a newer version can use it to forbid something.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ApiOptions {
    /// The context window of the model, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// The longest response of the model, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// The amount of thinking, by the server's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// A text that replaces the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// A text after the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_system_prompt: Option<String>,
    /// Whether the agent reports its cost, so that a budget of money works. The server must have prices then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub report_cost: bool,
    /// The only tools of the agent; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ApiTool>>,
    /// The time limit of each request to an MCP server, in seconds; 60 without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_timeout: Option<u32>,
    /// Variables of the tools' environment. Besides these, tools inherit all variables whose names don't look secret.
    #[serde(skip_serializing_if = "Redacted::is_empty")]
    pub env: Redacted<BTreeMap<String, String>>,
}

impl fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &Option<String>| text.as_ref().map(String::len);
        f.debug_struct("ApiOptions")
            .field("context_window", &self.context_window)
            .field("max_output_tokens", &self.max_output_tokens)
            .field("effort", &self.effort)
            .field("system_prompt", &length(&self.system_prompt))
            .field("append_system_prompt", &length(&self.append_system_prompt))
            .field("report_cost", &self.report_cost)
            .field("tools", &self.tools)
            .field("mcp_timeout", &self.mcp_timeout)
            .field("env", &self.env)
            .finish()
    }
}

impl ApiOptions {
    /// The keys of the agent's section in a configuration file.
    pub const KEYS: &'static [OptionKey] = &[
        OptionKey::new(
            "context-window",
            OptionKind::Count(1_024),
            "The context window of the model, in tokens.",
        ),
        OptionKey::new(
            "max-output-tokens",
            OptionKind::Count(1),
            "The longest response of the model, in tokens.",
        ),
        EFFORT,
        SYSTEM,
        APPEND,
        OptionKey::new(
            "report-cost",
            OptionKind::Switch,
            "Whether the agent reports its cost; true if the user's [api-server] has prices.",
        ),
        OptionKey::new(
            "tools",
            OptionKind::Texts,
            "The only tools of the agent: bash, read, write, edit, grep, glob.",
        ),
        OptionKey::new(
            "mcp-timeout",
            OptionKind::Count(1),
            "The seconds for the start of an MCP server, and for each call of its tools.",
        ),
        ENV,
    ];

    pub(crate) fn redact_values(&mut self) {
        self.env.redact();
    }

    /// Returns the names of the set options that can restrict the agent.
    pub(crate) fn restrictions(&self) -> Vec<&'static str> {
        let tools = ["tools"].into_iter();
        tools.filter(|_| self.tools.is_some()).collect()
    }

    /// Destructures all options. So a new option doesn't compile here until its author decides whether the option starts a program or can be secret.
    pub(crate) fn passed_through(&self) -> PassedThrough<'_> {
        let Self {
            env,
            context_window: _,
            max_output_tokens: _,
            effort: _,
            system_prompt: _,
            append_system_prompt: _,
            report_cost: _,
            tools: _,
            mcp_timeout: _,
        } = self;
        PassedThrough {
            env: Some(&env.0),
            ..PassedThrough::default()
        }
    }
}
