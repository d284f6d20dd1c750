//! The parts that only the program knows: how it words the state of a run, and how it starts its own commands.

use std::io;
use std::process::Child;

use loop_runner::control::ProcessHealth;
use rlm_report::CommandLineTerms;
use rlm_store::{Project, RunEntry, RunId, Timeline};

/// The texts about a run that `rlm status` prints too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTexts {
    /// The agent and its permissions.
    pub agent: String,
    /// The activity of a live run, or what it waits for, without the time since then.
    pub now: Option<String>,
    /// A command for the user, and its effect.
    pub next: Option<String>,
    /// Why the run ended.
    pub reason: Option<String>,
    /// How the last iteration ended.
    pub last_outcome: Option<String>,
    /// How the last check ended.
    pub last_check: Option<String>,
}

/// The result of a command of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// Whether the command succeeded.
    pub is_success: bool,
    /// The output of the command, for a person.
    pub output: String,
}

/// An agent that a new run can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentChoice {
    /// The name of the agent on the command line.
    pub name: String,
    /// Whether a run would find it.
    pub is_installed: bool,
}

/// The program that serves the pages.
///
/// All functions may block for some seconds: the server calls them on threads for blocking work.
pub trait Program: Send + Sync + 'static {
    /// Returns the texts about a run. `health` is the report of its process, if it is live.
    fn describe(
        &self,
        project: &Project,
        run: &RunEntry,
        health: Option<&ProcessHealth>,
    ) -> RunTexts;

    /// Returns the texts of a report that depend on the command line.
    fn report_terms(&self, project: &Project, timeline: &Timeline) -> CommandLineTerms;

    /// Runs the program in the directory of a project with these arguments, until it exits. If it takes longer than a browser waits, the result says
    /// how to see its effect, and the program continues.
    fn run(&self, project: &Project, arguments: &[String]) -> CommandResult;

    /// Starts the program in the directory of a project with these arguments. Its output and its error messages are pipes.
    ///
    /// # Errors
    ///
    /// An error if it can't be started.
    fn start(&self, project: &Project, arguments: &[String]) -> io::Result<Child>;

    /// Requests that a started program rolls its work back, and ends. The program has not been waited for.
    fn interrupt(&self, child: &Child);

    /// Returns the names of the limits that a person can change.
    fn limits(&self) -> Vec<&'static str>;

    /// Returns how a shell calls the program, so that it finds the runs of a project.
    fn command(&self, project: Option<&Project>) -> String;

    /// Quotes a word for a shell, if necessary.
    fn quoted(&self, word: &str) -> String;

    /// Returns the agents that a new run can name without more options.
    fn agents(&self) -> Vec<AgentChoice>;

    /// Returns the command line of a run with these arguments and this prompt, for a shell.
    fn run_command(&self, project: &Project, arguments: &[String], prompt: Option<&str>) -> String;

    /// Starts a run in the background, with these arguments and this prompt. Returns its id as soon as it works; the error is a text for a person.
    /// If the start takes longer than a browser waits, the error says how to see the run, and the start continues.
    fn start_run(
        &self,
        project: &Project,
        arguments: &[String],
        prompt: Option<&str>,
    ) -> Result<RunId, String>;
}
