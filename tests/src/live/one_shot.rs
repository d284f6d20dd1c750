//! A real agent CLI as a program that takes one prompt and ends. Loop runners other than `rlm` start their agents in this way.

use std::path::PathBuf;
use std::process::ExitCode;

use super::real::RealAgent;
use super::{install, isolation};
use crate::Sandbox;
use crate::model::FakeModel;

/// The agents, each with the arguments for a prompt on standard input and no questions.
const AGENTS: [(RealAgent, &str); 4] = [
    (RealAgent::Claude, "-p --dangerously-skip-permissions"),
    (
        RealAgent::Codex,
        "exec --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check -",
    ),
    (RealAgent::Gemini, "--yolo --skip-trust"),
    (RealAgent::Opencode, "run"),
];

/// An installed agent CLI.
#[derive(Debug)]
pub struct OneShotAgent {
    real: RealAgent,
    arguments: &'static str,
    folder: PathBuf,
}

impl OneShotAgent {
    /// Returns the agent with this program, and installs it if necessary: only outside of the isolation, because inside there is no registry.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn find(program: &str) -> Result<Self, String> {
        let known = { AGENTS.iter() }.find(|(real, _)| real.program() == program);
        let (real, arguments) = *known.ok_or_else(|| {
            let names: Vec<&str> = AGENTS.iter().map(|(real, _)| real.program()).collect();
            format!("no such agent; the known ones are {}", names.join(", "))
        })?;
        let folder = install::agent(program, !isolation::is_inside())?;
        Ok(Self {
            real,
            arguments,
            folder,
        })
    }

    /// Returns the program with its pinned version, such as `claude 2.1.329`.
    #[must_use]
    pub fn versioned(&self) -> String {
        let program = self.real.program();
        let versions = install::versions();
        let version = versions.iter().find(|(name, _)| *name == program);
        format!("{program} {}", version.map_or("", |(_, version)| version))
    }

    /// Writes the settings without which the agent would wait for a person.
    pub fn prepare(&self, sandbox: &Sandbox, model: &FakeModel) {
        self.real.prepare(sandbox, model);
    }

    /// Returns the shell lines that become the agent, which talks only to this model. The agent gets the arguments of the shell, if there are any.
    #[must_use]
    pub fn shell_lines(&self, model: &FakeModel) -> String {
        let variables = self.real.variables(&self.folder, model).into_iter();
        let exports = variables.map(|(name, value)| {
            let value = value.replace('\'', r"'\''");
            format!("export {name}='{value}'\n")
        });
        let program = self.folder.join(self.real.program());
        format!(
            "{}[ $# -gt 0 ] || set -- {}\nexec '{}' \"$@\"\n",
            exports.collect::<String>(),
            self.arguments,
            program.display()
        )
    }
}

/// Starts this program again in a network that has only loopback.
///
/// Returns `None` inside of that network, and outside the exit code of the other process.
///
/// # Errors
/// If this machine doesn't allow such a network.
pub fn isolated() -> Result<Option<ExitCode>, String> {
    match isolation::enter() {
        isolation::Isolation::Inside => Ok(None),
        isolation::Isolation::Left(code) => Ok(Some(code)),
        isolation::Isolation::None(why) => Err(why),
    }
}
