//! The configuration of an agent. A run saves it, and creates the driver from it.

use crate::acp::{AcpDriver, AcpOptions, AcpPreset};
use crate::api::{ApiDriver, ApiOptions};
use crate::choices::{CheckedDriver, Choices};
use crate::claude::{ClaudeDriver, ClaudeOptions};
use crate::codex::{CodexDriver, CodexOptions};
use crate::command::CommandDriver;
use crate::probe::{LoggedIn, Login, LoginFacts, Probe, Program};
use crate::redacted::PassedThrough;
use agent_duplex::{Capabilities, Driver, Error};
use agent_subprocess::ProcessContext;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use tokio::time::Instant;

/// One agent: its program, and its options for every conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// The driver of this agent, and the options that only this agent has.
    pub options: AgentOptions,
    /// The program, and arguments before the driver's own. For a command, the whole command line.
    #[serde(with = "words")]
    pub program: Vec<OsString>,
    /// The model; `None` leaves the choice to the agent. A command has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Arguments after the driver's own. A command has none.
    #[serde(with = "words", default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<OsString>,
}

/// The agents that have a driver, each with its own options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentOptions {
    /// Any program: one process per turn, with the prompt on its standard input.
    Command,
    /// Claude Code.
    Claude(Box<ClaudeOptions>),
    /// Codex.
    Codex(Box<CodexOptions>),
    /// The agent of this project. It has no program.
    Api(Box<ApiOptions>),
    /// An agent that implements the Agent Client Protocol.
    Acp {
        /// The preset of the agent.
        preset: AcpPreset,
        /// The options of the agent.
        options: Box<AcpOptions>,
    },
}

impl AgentConfig {
    /// Makes an agent of this program without a model or further arguments.
    #[must_use]
    pub fn new(options: AgentOptions, program: Vec<OsString>) -> Self {
        Self {
            options,
            program,
            model: None,
            args: Vec::new(),
        }
    }

    /// Makes a command out of a program and its arguments.
    #[must_use]
    pub fn command(argv: Vec<OsString>) -> Self {
        Self::new(AgentOptions::Command, argv)
    }

    /// Returns the agent's short name, which is the name of its driver.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.options {
            AgentOptions::Command => crate::command::NAME,
            AgentOptions::Claude(_) => crate::claude::NAME,
            AgentOptions::Codex(_) => crate::codex::NAME,
            AgentOptions::Api(_) => crate::api::NAME,
            AgentOptions::Acp { preset, .. } => preset.name(),
        }
    }

    /// Returns whether the agent reports cost, and whether it reports tokens; a budget needs one of the two.
    #[must_use]
    pub fn usage_reporting(&self) -> (bool, bool) {
        match &self.options {
            AgentOptions::Command => (false, false),
            AgentOptions::Claude(_) => (true, true),
            AgentOptions::Codex(_) => (false, true),
            AgentOptions::Api(options) => (options.report_cost, true),
            AgentOptions::Acp { preset, .. } => preset.usage_reporting(),
        }
    }

    /// Returns whether the agent continues its session after a crash without a repeated effect, as
    /// [`Capability::DurableSession`](agent_duplex::Capability::DurableSession). Builds without the agent know it too.
    #[must_use]
    pub fn has_durable_sessions(&self) -> bool {
        matches!(self.options, AgentOptions::Api(_))
    }

    /// Makes the driver, which holds only configuration and starts nothing.
    #[must_use]
    pub fn driver(&self, choices: Choices, context: ProcessContext) -> Box<dyn Driver> {
        self.made(choices, context)
    }

    /// Returns the capabilities that the driver declares.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let driver = self.driver(Choices::default(), ProcessContext::new("", ""));
        driver.capabilities()
    }

    /// Checks the options before a start.
    ///
    /// # Errors
    /// Names the first invalid option or argument, and what to write instead.
    pub fn check(&self, choices: Choices) -> Result<(), Error> {
        self.made(choices, ProcessContext::new("", "")).check()
    }

    /// Returns how a person logs in to the agent, and the version with which this crate is tested.
    #[must_use]
    pub fn login_facts(&self) -> LoginFacts {
        match &self.options {
            AgentOptions::Command => LoginFacts {
                tested_version: None,
                how_to: "",
                variables: &[],
            },
            AgentOptions::Claude(_) => crate::claude::login::FACTS,
            AgentOptions::Codex(_) => crate::codex::login::FACTS,
            AgentOptions::Api(_) => crate::api::FACTS,
            AgentOptions::Acp { preset, .. } => crate::acp::login::facts(*preset),
        }
    }

    /// Starts the agent's program and queries its version and login, until the deadline. It sends no prompt, so it costs nothing.
    ///
    /// The program gets the working directory, variables and marker of `context`, but not the options of this configuration. Use an empty
    /// directory or `/`, so that the agent finds no project settings that start other programs. All started processes have ended when this
    /// returns. If the future is dropped, their guard ends them. A command is not started, because the meaning of its arguments is unknown.
    pub async fn probe(&self, context: &ProcessContext, deadline: Instant) -> Probe {
        let program = Program {
            argv: &self.program,
            context,
            env: &[],
            deadline,
        };
        match &self.options {
            // The agent has no program; only its server knows whether the key is right.
            AgentOptions::Command | AgentOptions::Api(_) => Probe {
                version: Ok(None),
                login: Login {
                    state: LoggedIn::Unknown,
                    detail: None,
                },
            },
            AgentOptions::Claude(_) => crate::claude::login::probe(program).await,
            AgentOptions::Codex(_) => crate::codex::login::probe(program).await,
            AgentOptions::Acp { preset, .. } => crate::acp::login::probe(*preset, program).await,
        }
    }

    fn made(&self, choices: Choices, context: ProcessContext) -> Box<dyn CheckedDriver> {
        let program = self.program.clone();
        let choices = Choices {
            model: self.model.clone(),
            args: self.args.clone(),
            ..choices
        };
        match &self.options {
            AgentOptions::Command => Box::new(CommandDriver::new(program, context)),
            AgentOptions::Claude(options) => Box::new(
                ClaudeDriver::new(program, context)
                    .options((**options).clone())
                    .choices(choices),
            ),
            AgentOptions::Codex(options) => Box::new(
                CodexDriver::new(program, context)
                    .options((**options).clone())
                    .choices(choices),
            ),
            AgentOptions::Api(options) => {
                Box::new(ApiDriver::new((**options).clone(), choices, context))
            }
            AgentOptions::Acp { preset, options } => Box::new(
                AcpDriver::of(*preset, program, context)
                    .options((**options).clone())
                    .choices(choices),
            ),
        }
    }
}

#[doc(hidden)] // only `rlm` and the crates of its runs need them
impl AgentConfig {
    /// Whether a driver speaks the agent's protocol, so that the agent has permissions, a model, sessions and MCP servers.
    #[must_use]
    pub fn has_driver(&self) -> bool {
        self.options != AgentOptions::Command
    }

    /// Returns whether the agent runs as a program of its own. The `api` agent runs in this process.
    #[must_use]
    pub fn has_program(&self) -> bool {
        !matches!(self.options, AgentOptions::Api(_))
    }

    /// Whether both configurations are of the same agent, perhaps in different versions, so that one can continue sessions of the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let preset = AcpPreset::Other;
        let unknown = |agent: &Self| matches!(agent.options, AgentOptions::Acp { preset: it, .. } if it == preset);
        self.name() == other.name() && (!unknown(self) || self.program == other.program)
    }

    /// Returns the names of the set options that can restrict the agent, and that no other agent understands.
    #[must_use]
    pub fn restrictions(&self) -> Vec<&'static str> {
        match &self.options {
            AgentOptions::Command => Vec::new(),
            AgentOptions::Claude(options) => options.restrictions(),
            AgentOptions::Codex(options) => options.restrictions(),
            AgentOptions::Api(options) => options.restrictions(),
            AgentOptions::Acp { options, .. } => options.restrictions(),
        }
    }

    /// Returns the options that can start programs or hold secrets.
    #[must_use]
    pub fn passed_through(&self) -> PassedThrough<'_> {
        match &self.options {
            AgentOptions::Command => PassedThrough::default(),
            AgentOptions::Claude(options) => options.passed_through(),
            AgentOptions::Codex(options) => options.passed_through(),
            AgentOptions::Api(options) => options.passed_through(),
            AgentOptions::Acp { options, preset: _ } => options.passed_through(),
        }
    }

    /// Returns the extra directories in which the agent can work.
    pub fn directories_mut(&mut self) -> &mut [PathBuf] {
        match &mut self.options {
            AgentOptions::Claude(options) => &mut options.add_dirs,
            _ => &mut [],
        }
    }

    /// Returns the extra directories in which the agent can work.
    #[must_use]
    pub fn directories(&self) -> &[PathBuf] {
        match &self.options {
            AgentOptions::Claude(options) => &options.add_dirs,
            _ => &[],
        }
    }

    /// Replaces the values of variables and settings, which can be secret, by `…`.
    pub fn redact_values(&mut self) {
        match &mut self.options {
            AgentOptions::Command => {}
            AgentOptions::Claude(options) => options.redact_values(),
            AgentOptions::Codex(options) => options.redact_values(),
            AgentOptions::Api(options) => options.redact_values(),
            AgentOptions::Acp { options, .. } => options.env.redact(),
        }
    }
}

/// The serialised form of arguments: text if they are valid UTF-8, so that people can read saved settings; otherwise bytes.
mod words {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Word {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(
        words: &[OsString],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let word = |word: &OsString| match word.clone().into_string() {
            Ok(text) => Word::Text(text),
            Err(word) => Word::Bytes(word.into_vec()),
        };
        serializer.collect_seq(words.iter().map(word))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<OsString>, D::Error> {
        let words = Vec::<Word>::deserialize(deserializer)?;
        let word = |word| match word {
            Word::Text(text) => text.into(),
            Word::Bytes(bytes) => OsString::from_vec(bytes),
        };
        Ok(words.into_iter().map(word).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::os::unix::ffi::OsStringExt;

    /// Returns a configuration of each agent with each option, as a run saves it.
    fn full() -> [Value; 4] {
        let common = json!({"env": {"A": "b"}, "env-allow": ["AWS_*"]});
        let with = |mut options: Value| {
            let all = options.as_object_mut().unwrap();
            all.extend(common.as_object().unwrap().clone());
            options
        };
        let claude = with(json!({
            "fallback-model": "sonnet", "effort": "high", "max-turns": 5, "tools": ["Bash"], "allowed-tools": ["Bash(ls)"],
            "disallowed-tools": ["Web"], "system-prompt": "a", "append-system-prompt": "b", "setting-sources": ["user"],
            "settings": {"a": 1}, "hooks": true, "add-dirs": ["/srv"], "strict-mcp": true,
        }));
        let codex = with(json!({
            "effort": "high", "system-prompt": "a", "append-system-prompt": "b", "config": {"a": 1}, "analytics": true,
        }));
        let acp = with(json!({"auth-method": "key"}));
        let of = |options| json!({"options": options, "program": ["agent", "-a"], "model": "large", "args": ["-b"]});
        [
            of(json!("command")),
            of(json!({ "claude": claude })),
            of(json!({ "codex": codex })),
            of(json!({"acp": {"preset": "gemini", "options": acp}})),
        ]
    }

    #[test]
    fn a_saved_configuration_has_these_keys() {
        for saved in full() {
            let read: AgentConfig = serde_json::from_value(saved.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), saved);
        }
        let [_, claude, codex, acp] = full();
        for (options, keys) in [
            (&claude["options"]["claude"], ClaudeOptions::KEYS),
            (&codex["options"]["codex"], CodexOptions::KEYS),
            (&acp["options"]["acp"]["options"], AcpOptions::KEYS),
        ] {
            let missing = keys.iter().filter(|key| options.get(key.name).is_none());
            assert_eq!(missing.map(|key| key.name).collect::<Vec<_>>(), [""; 0]);
        }
        for (preset, name) in [
            (AcpPreset::Gemini, "gemini"),
            (AcpPreset::Opencode, "opencode"),
            (AcpPreset::Claude, "claude"),
            (AcpPreset::Other, "other"),
        ] {
            assert_eq!(serde_json::to_value(preset).unwrap(), name);
        }
    }

    proptest! {
        #[test]
        fn any_arguments_are_saved_unchanged(
            argv in proptest::collection::vec(proptest::collection::vec(1u8.., 0..8), 0..4),
        ) {
            let argv: Vec<OsString> = argv.into_iter().map(OsString::from_vec).collect();
            let agent = AgentConfig::command(argv);
            let json = serde_json::to_string(&agent).unwrap();
            prop_assert_eq!(serde_json::from_str::<AgentConfig>(&json).unwrap(), agent);
        }
    }

    #[test]
    fn text_arguments_are_saved_as_readable_text() {
        let agent = AgentConfig::command(vec!["claude".into(), "-p".into()]);
        insta::assert_snapshot!(serde_json::to_string(&agent).unwrap(), @r#"{"options":"command","program":["claude","-p"]}"#);
    }

    #[test]
    fn saved_agent_reads_back_equal() {
        let saved = [
            r#"{"options":"command","program":["a"]}"#,
            r#"{"options":{"claude":{}},"program":["claude"]}"#,
            r#"{"options":{"claude":{"effort":"high","settings":{"a":"s3cret"},"env":{"A":"s3cret"}}},"program":["claude"],"model":"m","args":["-x"]}"#,
            r#"{"options":{"codex":{"config":{"a":"s3cret"},"env":{"A":"s3cret"}}},"program":["codex"]}"#,
            r#"{"options":{"acp":{"preset":"gemini","options":{}}},"program":["gemini"]}"#,
            r#"{"options":{"acp":{"preset":"other","options":{"auth-method":"k","env":{"A":"s3cret"}}}},"program":["a","b"],"model":"m"}"#,
        ];
        for text in saved {
            let mut agent: AgentConfig = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&agent).unwrap(), text);
            assert!(!format!("{agent:?}").contains("s3cret"), "{agent:?}");
            agent.redact_values();
            let shown = serde_json::to_string(&agent).unwrap();
            assert!(!shown.contains("s3cret"), "{shown}");
            assert_eq!(shown.matches('…').count(), text.matches("s3cret").count());
        }
        let unknown = r#"{"options":{"codex":{"sandbox":"none"}},"program":["codex"]}"#;
        serde_json::from_str::<AgentConfig>(unknown).unwrap_err();
    }
}
