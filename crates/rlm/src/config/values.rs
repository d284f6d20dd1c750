//! What a layer of the configuration can say: the keys of `rlm.toml` as a type.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_drivers::Hidden;
use agent_drivers::mcp::McpServers;
use agent_drivers::{acp::AcpOptions, claude::ClaudeOptions, codex::CodexOptions};
use loop_state::Autonomy;
use rlm_terminal::PressActions;
use rlm_text::{bytes, duration, money};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::agents::AgentKind;
use crate::args::{LeftoversArg, PermissionsArg, SessionArg};
use crate::occasion::Occasion;

/// What one layer says, or all of them together; what is absent is `None`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Config {
    /// The name of a phase.
    pub(crate) name: Option<PhaseName>,
    pub(crate) prompt: Option<String>,
    pub(crate) prompt_file: Option<PathBuf>,
    pub(crate) agent: Option<AgentKind>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) agent_bin: Option<PathBuf>,
    pub(crate) permissions: Option<PermissionsArg>,
    pub(crate) session: Option<SessionArg>,
    pub(crate) model: Option<String>,
    pub(crate) completion_promise: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) gates: Option<Vec<String>>,
    pub(crate) max_iterations: Option<NonZeroU32>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) max_duration: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) iteration_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) idle_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) check_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) background_wait: Option<Duration>,
    pub(crate) max_failures: Option<u32>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) sleep: Option<Duration>,
    #[serde(default, deserialize_with = "money::cost_of_file")]
    pub(crate) max_cost: Option<u64>,
    #[serde(default, deserialize_with = "money::tokens_of_file")]
    pub(crate) max_tokens: Option<u64>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) wait_on_limit: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) shutdown_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) cooldown: Option<Duration>,
    pub(crate) autonomy: Option<Autonomy>,
    pub(crate) leftovers: Option<LeftoversArg>,
    #[serde(default, deserialize_with = "bytes::of_file")]
    pub(crate) max_transcripts: Option<u64>,
    pub(crate) commit: Option<bool>,
    pub(crate) worktree: Option<bool>,
    pub(crate) notify: Option<String>,
    pub(crate) notify_on: Option<Vec<Occasion>>,
    pub(crate) heartbeat: Option<PathBuf>,
    pub(crate) bell: Option<bool>,
    /// Of the user's own file only.
    #[serde(default)]
    pub(crate) safe_directories: Vec<PathBuf>,
    pub(crate) claude: Option<ClaudeOptions>,
    pub(crate) codex: Option<CodexOptions>,
    pub(crate) gemini: Option<AcpOptions>,
    pub(crate) opencode: Option<AcpOptions>,
    pub(crate) acp: Option<AcpSection>,
    pub(crate) mcp_config: Option<PathBuf>,
    #[serde(default)]
    pub(crate) mcp_servers: McpServers,
    #[serde(default)]
    pub(crate) on_press: PressActions,
}

impl Config {
    /// Returns whether the file's `model` and `agent-bin` are meant for this agent: it names no other.
    pub(crate) fn speaks_of(&self, kind: AgentKind) -> bool {
        self.agent.is_none_or(|named| named == kind)
    }

    pub(crate) fn command(&self) -> Option<Vec<OsString>> {
        let words = self.command.as_ref()?;
        Some(words.iter().map(Into::into).collect())
    }
}

/// The name of a phase: short, and plain enough to be shown and to be a part of a file's name.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PhaseName(pub(crate) String);

impl TryFrom<String> for PhaseName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        match begins && text.len() <= 32 && text.chars().all(is_plain) {
            true => Ok(Self(text)),
            false => Err(
                "a phase's name has 1 to 32 letters, digits, `.`, `_` and `-`, and begins with a letter or digit",
            ),
        }
    }
}

/// An agent that is known by its program only.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct AcpSection {
    program: Vec<String>,
    auth_method: Option<String>,
    env: Hidden<BTreeMap<String, String>>,
    env_allow: Option<Vec<String>>,
}

impl AcpSection {
    /// Returns the program and the arguments that make it speak the protocol; empty if the file does not say.
    pub(crate) fn program(&self, root: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.program.iter().map(Into::into).collect();
        if let Some(first) = words.first_mut()
            && Path::new(first).components().count() > 1
        {
            *first = root.join(&*first).into();
        }
        words
    }

    pub(crate) fn options(self) -> AcpOptions {
        AcpOptions {
            auth_method: self.auth_method,
            env: self.env,
            env_allow: self.env_allow,
        }
    }
}

/// A duration is text as on the command line, or a whole number of seconds.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    struct Time;
    impl Visitor<'_> for Time {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as \"90s\" or \"1h30m\", or a whole number of seconds")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            duration::parse(text).map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
            self.visit_str(&seconds.to_string())
        }
    }
    deserializer.deserialize_any(Time).map(Some)
}
