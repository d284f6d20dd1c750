//! The agents that a phase can have, as they are saved with a run: a variant each, and options in a file beside this one.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::{Deserialize, Serialize};

mod acp;
mod claude;
mod codex;
mod hidden;

pub use acp::{AcpOptions, AcpPreset};
pub use claude::ClaudeOptions;
pub use codex::CodexOptions;
pub use hidden::Hidden;

/// The agent of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentSettings {
    /// Any program, one process an attempt, with the prompt on its standard input.
    Command {
        /// The program and its arguments.
        #[serde(with = "words")]
        argv: Vec<OsString>,
    },
    /// Claude Code, in duplex.
    Claude {
        /// The program, and arguments that come before the driver's own.
        #[serde(with = "words")]
        program: Vec<OsString>,
        /// The model; the agent's own choice when there is none.
        #[serde(default)]
        model: Option<String>,
        /// Arguments that come behind the driver's own.
        #[serde(with = "words", default)]
        args: Vec<OsString>,
        /// What else it is told.
        #[serde(default)]
        options: Box<ClaudeOptions>,
    },
    /// Codex, in duplex.
    Codex {
        /// The program, and arguments that come before the driver's own.
        #[serde(with = "words")]
        program: Vec<OsString>,
        /// The model; the agent's own choice when there is none.
        #[serde(default)]
        model: Option<String>,
        /// Arguments that come behind the driver's own.
        #[serde(with = "words", default)]
        args: Vec<OsString>,
        /// What else it is told.
        #[serde(default)]
        options: Box<CodexOptions>,
    },
    /// An agent that speaks the Agent Client Protocol.
    Acp {
        /// Which one.
        preset: AcpPreset,
        /// The program, and arguments that come before the driver's own.
        #[serde(with = "words")]
        program: Vec<OsString>,
        /// The model; the agent's own choice when there is none.
        #[serde(default)]
        model: Option<String>,
        /// Arguments that come behind the driver's own.
        #[serde(with = "words", default)]
        args: Vec<OsString>,
        /// What else it is told.
        #[serde(default)]
        options: Box<AcpOptions>,
    },
}

/// What every agent with a driver of its own is started with, to be changed.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program, and arguments that come before the driver's own.
    pub program: &'a mut Vec<OsString>,
    /// The model.
    pub model: &'a mut Option<String>,
    /// Arguments that come behind the driver's own.
    pub args: &'a mut Vec<OsString>,
}

impl AgentSettings {
    /// Returns the agent's short name, as its driver has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
            Self::Claude { .. } => "claude",
            Self::Codex { .. } => "codex",
            Self::Acp { preset, .. } => preset.name(),
        }
    }

    /// Returns whether a driver speaks with it, so that it can be told what it may do, which model and which session to
    /// take and which MCP servers there are.
    #[must_use]
    pub fn is_driven(&self) -> bool {
        !matches!(self, Self::Command { .. })
    }

    /// Returns whether both are one agent, perhaps of another version, so that one knows the sessions of the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let unknown =
            |agent: &Self| matches!(agent, Self::Acp { preset, .. } if *preset == AcpPreset::Other);
        self.name() == other.name() && (!unknown(self) || self.program() == other.program())
    }

    /// Returns the program that is started, and its arguments before all others.
    #[must_use]
    pub fn program(&self) -> &[OsString] {
        match self {
            Self::Command { argv: program }
            | Self::Claude { program, .. }
            | Self::Codex { program, .. }
            | Self::Acp { program, .. } => program,
        }
    }

    /// Returns the model, if one was chosen.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Command { .. } => None,
            Self::Claude { model, .. } | Self::Codex { model, .. } | Self::Acp { model, .. } => {
                model.as_deref()
            }
        }
    }

    /// Returns the variables of its environment that it is given besides ours.
    #[must_use]
    pub fn env(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Command { .. } => None,
            Self::Claude { options, .. } => Some(&options.env.0),
            Self::Codex { options, .. } => Some(&options.env.0),
            Self::Acp { options, .. } => Some(&options.env.0),
        }
    }

    /// Returns the names of its own options that were chosen and may keep it from something, which no other agent would
    /// understand.
    #[must_use]
    pub fn restrictions(&self) -> Vec<&'static str> {
        match self {
            Self::Command { .. } => Vec::new(),
            // What it may do can stand there: OpenCode and Gemini have variables for that.
            Self::Acp { options, .. } if options.env.is_empty() => Vec::new(),
            Self::Acp { .. } => vec!["env"],
            Self::Claude { options, .. } => options.restrictions(),
            Self::Codex { options, .. } => options.restrictions(),
        }
    }

    /// Returns what it is started with; `None` for a command.
    #[must_use]
    pub fn start_mut(&mut self) -> Option<Start<'_>> {
        match self {
            Self::Command { .. } => None,
            Self::Claude {
                program,
                model,
                args,
                ..
            }
            | Self::Codex {
                program,
                model,
                args,
                ..
            }
            | Self::Acp {
                program,
                model,
                args,
                ..
            } => Some(Start {
                program,
                model,
                args,
            }),
        }
    }

    /// Returns whether it says what it costs, and whether it counts its tokens, so that budgets can be kept.
    #[must_use]
    pub fn reports(&self) -> (bool, bool) {
        match self {
            Self::Command { .. } => (false, false),
            Self::Claude { .. } => (true, true),
            Self::Codex { .. } => (false, true),
            Self::Acp { preset, .. } => preset.reports(),
        }
    }

    /// Takes the values of variables and the like out.
    pub(crate) fn hide_values(&mut self) {
        match self {
            Self::Command { .. } => {}
            Self::Claude { options, .. } => options.hide_values(),
            Self::Codex { options, .. } => options.hide_values(),
            Self::Acp { options, .. } => options.env.hide(),
        }
    }
}

/// Arguments as text where they are text, so that people can read saved settings, and as bytes where they are not.
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
    use std::os::unix::ffi::OsStringExt;

    proptest! {
        #[test]
        fn any_arguments_are_saved_as_they_are(
            argv in proptest::collection::vec(proptest::collection::vec(1u8.., 0..8), 0..4),
        ) {
            let argv: Vec<OsString> = argv.into_iter().map(OsString::from_vec).collect();
            let agent = AgentSettings::Command { argv };
            let json = serde_json::to_string(&agent).unwrap();
            prop_assert_eq!(serde_json::from_str::<AgentSettings>(&json).unwrap(), agent);
        }
    }

    #[test]
    fn arguments_that_are_text_can_be_read() {
        let agent = AgentSettings::Command {
            argv: vec!["claude".into(), "-p".into()],
        };
        insta::assert_snapshot!(serde_json::to_string(&agent).unwrap(), @r#"{"Command":{"argv":["claude","-p"]}}"#);
    }

    /// Each form in which an agent was ever saved.
    #[test]
    fn c64b_an_agent_is_read_as_it_was_saved() {
        let saved = [
            r#"{"Command":{"argv":["a"]}}"#,
            r#"{"Claude":{"program":["claude"]}}"#,
            r#"{"Claude":{"program":["claude"],"model":"m","args":["-x"],"options":{"effort":"high","env":{"A":"s3cret"},"settings":{"a":"s3cret"}}}}"#,
            r#"{"Codex":{"program":["codex"],"model":null,"args":[],"options":{"config":{"a":"s3cret"},"env":{"A":"s3cret"}}}}"#,
            r#"{"Acp":{"preset":"gemini","program":["gemini"],"model":null,"args":[],"options":{}}}"#,
            r#"{"Acp":{"preset":"other","program":["a","b"],"model":"m","args":[],"options":{"auth-method":"k","env":{"A":"s3cret"}}}}"#,
        ];
        for text in saved {
            let mut agent: AgentSettings = serde_json::from_str(text).unwrap();
            let again = serde_json::to_string(&agent).unwrap();
            assert_eq!(
                serde_json::from_str::<AgentSettings>(&again).unwrap(),
                agent
            );
            assert!(!format!("{agent:?}").contains("s3cret"), "{agent:?}");
            agent.hide_values();
            let shown = serde_json::to_string(&agent).unwrap();
            assert!(!shown.contains("s3cret"), "{shown}");
            assert_eq!(shown.matches('…').count(), text.matches("s3cret").count());
        }
        let unknown = r#"{"Codex":{"program":["codex"],"options":{"sandbox":"none"}}}"#;
        serde_json::from_str::<AgentSettings>(unknown).unwrap_err();
    }

    #[test]
    fn agents_are_the_same_by_what_they_know_of_each_other() {
        let agent = |preset, program: &str| AgentSettings::Acp {
            preset,
            program: vec![program.into()],
            model: None,
            args: Vec::new(),
            options: Box::default(),
        };
        let (one, two) = (agent(AcpPreset::Other, "a"), agent(AcpPreset::Other, "b"));
        assert!(one.is_same(&one) && !one.is_same(&two));
        let (old, new) = (agent(AcpPreset::Gemini, "a"), agent(AcpPreset::Gemini, "b"));
        assert!(old.is_same(&new) && !old.is_same(&one));
        assert!(!agent(AcpPreset::Claude, "a").is_same(&one));
    }
}
