//! Queries the version and the login of an agent without a prompt: under a guard, within a deadline, and without leftovers.
//!
//! The module `login` beside each driver has the query for its agent.

mod program;

use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) use program::{Output, Program};

/// The time that `--version` may take.
const VERSION: Duration = Duration::from_secs(10);
/// The maximum length of a reported login method or service, in bytes.
const MAX_NAME: usize = 40;
/// The maximum number of reported characters of an agent's error text.
const MAX_ERROR: usize = 200;
/// The maximum length of a version, in bytes.
const MAX_VERSION: usize = 50;

/// The reason why an agent did not respond, for people.
pub(crate) type Failure = String;

/// Whether an agent is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoggedIn {
    /// The agent reports a login.
    Yes,
    /// The agent reports that it has none.
    No,
    /// The agent can't report it, or did not respond.
    Unknown,
}

/// The login of an agent, as the agent reports it. It never contains an address, a person's name or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Whether the agent is logged in.
    pub state: LoggedIn,
    /// How it is logged in, or why that is unknown, for people.
    pub detail: Option<String>,
}

impl Login {
    pub(crate) fn yes(detail: impl Into<String>) -> Self {
        Self {
            state: LoggedIn::Yes,
            detail: Some(detail.into()),
        }
    }

    pub(crate) fn no() -> Self {
        Self {
            state: LoggedIn::No,
            detail: None,
        }
    }

    /// Makes a login that is unknown for this reason.
    #[must_use]
    pub fn unknown(why: impl Into<String>) -> Self {
        Self {
            state: LoggedIn::Unknown,
            detail: Some(why.into()),
        }
    }
}

/// The result of [`AgentConfig::probe`](crate::AgentConfig::probe).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The version, if the agent reports one; or why the agent can't be used, for people.
    pub version: Result<Option<String>, String>,
    /// The login.
    pub login: Login,
}

impl Probe {
    /// Makes the result for an agent that did not respond, for this reason.
    #[must_use]
    pub fn failed(why: &str) -> Self {
        Self {
            version: Err(why.to_owned()),
            login: Login::unknown(why),
        }
    }
}

/// The facts about an agent's login that are known without a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoginFacts {
    /// The version of the agent with which this version of the crate is tested.
    pub tested_version: Option<&'static str>,
    /// How a person logs in: a command, or a sentence.
    pub how_to: &'static str,
    /// The environment variables that can hold the login.
    pub variables: &'static [&'static str],
}

/// Runs `--version`. Returns the version, or the reason why there is none, and the standard output.
pub(crate) async fn version(program: Program<'_>) -> (Result<Option<String>, String>, String) {
    let deadline = program.deadline.min(Instant::now() + VERSION);
    version_in(program.until(deadline).run(&["--version"]).await)
}

fn version_in(output: Result<Output, Failure>) -> (Result<Option<String>, String>, String) {
    let output = match output {
        Ok(output) => output,
        Err(why) => return (Err(why), String::new()),
    };
    let version = match output.exit.success() {
        true => Ok(version_word(&output.stdout).map(str::to_owned)),
        false => {
            let why = after_colon(&output.stderr);
            Err(format!("`--version` failed: {}{why}", output.exit))
        }
    };
    (version, output.stdout)
}

/// Returns the first word of a text that looks like a version.
pub(crate) fn version_word(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find(|word| version_numbers(word).is_some() && word.len() <= MAX_VERSION)
}

/// Returns the three numbers that a version begins with.
pub(crate) fn version_numbers(version: &str) -> Option<[u64; 3]> {
    let core = version.split(['-', '+']).next()?;
    let numbers: Result<Vec<u64>, _> = core.split('.').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

/// Returns a colon and the first line of an agent's error text, or nothing.
pub(crate) fn after_colon(text: &str) -> String {
    let line = { text.lines().map(str::trim) }.find(|line| !line.is_empty());
    line.map_or(String::new(), |line| {
        let line: String = line.chars().take(MAX_ERROR).collect();
        format!(": {line}")
    })
}

/// Returns the text if it looks like the name of a method or service, and not like an address or a sentence.
pub(crate) fn method_name(text: &str) -> Option<&str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    (text.len() <= MAX_NAME && !text.is_empty() && text.chars().all(harmless)).then_some(text)
}

#[cfg(test)]
mod tests {
    use agent_subprocess::Exit;

    use super::*;

    fn output(code: i32, stdout: &str, stderr: &str) -> Result<Output, Failure> {
        Ok(Output {
            exit: Exit {
                code: Some(code),
                signal: None,
            },
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        })
    }

    #[test]
    fn the_output_of_each_agent_contains_its_version() {
        let printed = [
            output(0, "2.1.329 (Claude Code)\n", ""),
            output(0, "codex-cli 0.169.0-alpha.2\n", ""),
            output(0, "1.18.33\n", "a warning"),
            output(0, "", ""),
            output(
                1,
                "",
                "\n  Error: claude native binary not installed.\n\nEither",
            ),
            Err("no response within 10 s".to_owned()),
        ];
        let found: Vec<_> = printed
            .map(|output| match version_in(output).0 {
                Ok(version) => version.unwrap_or_else(|| "none".to_owned()),
                Err(why) => why,
            })
            .into();
        insta::assert_snapshot!(found.join("\n"), @r"
        2.1.329
        0.169.0-alpha.2
        1.18.33
        none
        `--version` failed: exit status 1: Error: claude native binary not installed.
        no response within 10 s
        ");
        assert_eq!(version_numbers("2.1"), None);
    }
}
