//! A tool as the lab sees it: the commands of its verbs, with places for the lab's files.

use std::path::Path;

use rlm_survivors::quoted;
use serde::{Deserialize, Serialize};

/// The verbs of `rlm`.
const OURS: &str = include_str!("../tools/rlm.toml");
/// The verbs of `rlm` with a real agent.
const OURS_WITH_REAL_AGENT: &str = include_str!("../tools/rlm-real-agent.toml");
/// The promise of a finished job, as most loop runners know it.
const PROMISE: &str = "<promise>COMPLETE</promise>";
/// The longest file of verbs.
const LONGEST_FILE: usize = 64 << 10;

/// A loop runner and its verbs. Each verb is a command for bash.
///
/// Only `start` is necessary. It contains `{agent}`, the agent's program, and can contain `{prompt}` (the prompt file), `{check}` (a program that
/// exits with 0 if the job is done) and `{iterations}` (a number of iterations).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The name in the output.
    pub name: String,
    /// Starts the loop, and works until the loop ends.
    pub start: String,
    /// Kills the tool without a chance to save; `{pid}` is the process of `start`. Without this verb the lab sends SIGKILL to that process.
    #[serde(default)]
    pub kill: Option<String>,
    /// Continues the loop after a kill, and works until the loop ends. Without this verb the lab uses `start` again.
    #[serde(default)]
    pub restart: Option<String>,
    /// Exits with 0 if the tool reports that the work is done. Without this verb, exit code 0 of the tool is this report.
    #[serde(default)]
    pub finish: Option<String>,
    /// The name under which the tool finds the agent on the `PATH`; `agent` if it is absent.
    #[serde(default)]
    pub agent: Option<String>,
    /// The line with which an agent reports that the work is done; `<promise>COMPLETE</promise>` if it is absent.
    #[serde(default)]
    pub promise: Option<String>,
    /// Sends `{message}` to the agent. Without this verb the lab appends the message to the prompt file, as users of such tools do.
    #[serde(default)]
    pub message: Option<String>,
}

/// The values for the places in a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) agent: &'a Path,
    pub(crate) prompt: &'a Path,
    pub(crate) check: &'a Path,
    pub(crate) iterations: u32,
}

impl Tool {
    /// Returns the tool with only this command. `agent` is the name under which it finds the agent on the `PATH`.
    ///
    /// # Errors
    /// If the command has no place for the agent, and the agent has no name.
    pub fn of_command(name: &str, start: &str, agent: Option<&str>) -> Result<Self, String> {
        Self {
            name: name.into(),
            start: start.into(),
            kill: None,
            restart: None,
            finish: None,
            agent: agent.map(str::to_owned),
            promise: None,
            message: None,
        }
        .checked()
    }

    /// Parses a file of verbs.
    ///
    /// # Errors
    /// The first mistake in the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST_FILE {
            return Err(format!("the file has more than {LONGEST_FILE} bytes"));
        }
        let tool: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        tool.checked()
    }

    /// Returns `rlm`, with this program.
    ///
    /// # Panics
    /// Never: the tests parse the file.
    #[must_use]
    pub fn ours(program: &Path) -> Self {
        Self::of_rlm(OURS, program)
    }

    /// Returns `rlm` for a real agent, with this program.
    ///
    /// # Panics
    /// Never: the tests parse the file.
    #[must_use]
    pub fn ours_with_real_agent(program: &Path) -> Self {
        Self::of_rlm(OURS_WITH_REAL_AGENT, program)
    }

    fn of_rlm(verbs: &str, program: &Path) -> Self {
        let tool = Self::parse(verbs).expect("the tests parse this file");
        let with_path = |verb: &str| match verb.strip_prefix("rlm ") {
            Some(rest) => format!("{} {rest}", quoted(program)),
            None => verb.to_owned(),
        };
        Self {
            start: with_path(&tool.start),
            restart: tool.restart.as_deref().map(with_path),
            message: tool.message.as_deref().map(with_path),
            ..tool
        }
    }

    fn checked(self) -> Result<Self, String> {
        match &self.agent {
            None if !self.start.contains("{agent}") => {
                return Err("the start command needs {agent} in place of the agent's program, or the name under which the tool finds its agent".to_owned());
            }
            Some(agent) if Path::new(agent).file_name() != Some(agent.as_ref()) => {
                return Err("the agent must be a name, not a path".to_owned());
            }
            _ => {}
        }
        if let Some(message) = &self.message
            && !message.contains("{message}")
        {
            return Err("the message command needs {message} in place of the text".to_owned());
        }
        Ok(self)
    }

    /// Returns whether the tool has a place for the job's check.
    pub(crate) fn takes_check(&self) -> bool {
        self.start.contains("{check}")
    }

    /// Returns whether the tool has a place for a number of iterations.
    pub(crate) fn takes_iterations(&self) -> bool {
        self.start.contains("{iterations}")
    }

    /// Returns the line with which an agent reports that the work is done.
    pub(crate) fn promise(&self) -> &str {
        self.promise.as_deref().unwrap_or(PROMISE)
    }

    /// Returns the name of the agent's program.
    pub(crate) fn agent_name(&self) -> &str {
        self.agent.as_deref().unwrap_or("agent")
    }

    /// Returns the command that continues the loop after a kill.
    pub(crate) fn again(&self) -> &str {
        self.restart.as_deref().unwrap_or(&self.start)
    }
}

/// Puts the values into the places of a command.
pub(crate) fn filled(command: &str, places: Places<'_>) -> String {
    command
        .replace("{agent}", &quoted(places.agent))
        .replace("{prompt}", &quoted(places.prompt))
        .replace("{check}", &quoted(places.check))
        .replace("{iterations}", &places.iterations.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_a_start_is_enough() {
        let tool = Tool::parse("name = 'x'\nstart = 'x {agent}'").expect("it is valid");
        assert_eq!((tool.again(), tool.takes_check()), ("x {agent}", false));
    }

    #[test]
    fn mistake_in_a_file_is_named() {
        for (text, word) in [
            ("name = 'x'\nstart = 'x'", "{agent}"),
            ("name = 'x'", "start"),
            ("name = 'x'\nstart = 'x'\nagent = 'a/b'", "not a path"),
            ("name = 'x'\nstart = '{agent}'\nstop = 'y'", "stop"),
            ("name = 'x'\nstart = '{agent}'\nmessage = 'y'", "{message}"),
        ] {
            let why = Tool::parse(text).expect_err(text);
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn contenders_are_valid() {
        for text in [
            include_str!("../tools/rlm.toml"),
            include_str!("../tools/rlm-real-agent.toml"),
            include_str!("../tools/bare.toml"),
            include_str!("../tools/counted.toml"),
            include_str!("../tools/rlm-promise.toml"),
            include_str!("../tools/ralphify.toml"),
            include_str!("../tools/ralph-py.toml"),
            include_str!("../tools/ralphy.toml"),
            include_str!("../tools/ralph-orchestrator.toml"),
            include_str!("../tools/ralph-starter.toml"),
            include_str!("../tools/ralph-tui.toml"),
        ] {
            Tool::parse(text).expect(text);
        }
    }

    #[test]
    fn every_place_gets_its_value() {
        let places = Places {
            agent: Path::new("/a"),
            prompt: Path::new("/p q"),
            check: Path::new("/c"),
            iterations: 3,
        };
        let command = filled("x -n {iterations} {check} {agent} <{prompt}", places);
        assert_eq!(command, "x -n 3 /c /a <'/p q'");
    }
}
