//! The parts of the page that only this program knows.

use std::io::{self, Write as _};
use std::process::{self, Child, Command, Stdio};

use loop_runner::control::ProcessHealth;
use rlm_report::CommandLineTerms;
use rlm_store::{Project, RunEntry, RunId, Timeline};
use rlm_view::{AgentChoice, CommandResult, Program, RunTexts};
use serde_json::Value;

use crate::agents::{self, AgentKind};
use crate::command::report;
use crate::config::limit_names;
use crate::hint;
use crate::render::RunStatusView;

/// This program, for its page.
#[derive(Debug)]
pub(super) struct ThisProgram;

impl Program for ThisProgram {
    fn describe(
        &self,
        project: &Project,
        run: &RunEntry,
        health: Option<&ProcessHealth>,
    ) -> RunTexts {
        let status = hint::with_project(project.root(), || {
            RunStatusView::of(run, health, jiff::Timestamp::now())
        });
        let (agent, now, next) = (status.agent(), status.now(), status.next());
        RunTexts {
            agent: agent.unwrap_or_default().to_owned(),
            now: now.map(str::to_owned),
            next: next.map(str::to_owned),
            reason: status.reason().map(str::to_owned),
            last_check: status.last_check().map(str::to_owned),
        }
    }

    fn report_terms(&self, project: &Project, timeline: &Timeline) -> CommandLineTerms {
        hint::with_project(project.root(), || report::terms(timeline))
    }

    fn run(&self, project: &Project, arguments: &[String]) -> CommandResult {
        match output(project, arguments, None) {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                CommandResult {
                    is_success: output.status.success(),
                    output: String::from_utf8_lossy(&text).trim().to_owned(),
                }
            }
            Err(e) => CommandResult {
                is_success: false,
                output: format!("can't start rlm: {e}"),
            },
        }
    }

    fn start(&self, project: &Project, arguments: &[String]) -> io::Result<Child> {
        let mut command = command(project, arguments)?;
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    }

    fn limits(&self) -> Vec<&'static str> {
        limit_names()
    }

    fn command(&self, project: Option<&Project>) -> String {
        let program = hint::program();
        match project {
            Some(project) => {
                let root = hint::quoted(&project.root().to_string_lossy());
                format!("{program} -C {root}")
            }
            None => program.to_owned(),
        }
    }
    fn agents(&self) -> Vec<AgentChoice> {
        let with_a_name = agents::KNOWN.iter().map(|known| AgentChoice {
            name: known.name.into(),
            is_installed: which::which(known.name).is_ok(),
        });
        let own = AgentChoice {
            name: AgentKind::Api.name().into(),
            is_installed: true,
        };
        let own = cfg!(feature = "api").then_some(own);
        with_a_name.chain(own).collect()
    }

    fn run_command(&self, project: &Project, arguments: &[String], prompt: Option<&str>) -> String {
        let prompt = prompt.map(|prompt| format!("--prompt={prompt}"));
        let words = arguments.iter().chain(&prompt);
        let words = words.map(|word| hint::quoted(word));
        let program = self.command(Some(project));
        std::iter::once(program)
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn start_run(
        &self,
        project: &Project,
        arguments: &[String],
        prompt: Option<&str>,
    ) -> Result<RunId, String> {
        let mut arguments = arguments.to_vec();
        arguments.push("--json".into());
        // A prompt can be too long for an argument, and other users can read arguments.
        arguments.extend(prompt.map(|_| "--prompt-file=-".into()));
        let output = output(project, &arguments, prompt);
        let output = output.map_err(|e| format!("can't start rlm: {e}"))?;
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let mut events = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let run = events.find(|it| it["event"] == "detached");
        let run = run.and_then(|it| it["run"].as_str()?.parse().ok());
        run.ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Returns the command that runs this program in the directory of a project.
fn command(project: &Project, arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("-C").arg(project.root()).args(arguments);
    Ok(command)
}

/// Runs this program in the directory of a project, until it exits.
fn output(
    project: &Project,
    arguments: &[String],
    input: Option<&str>,
) -> io::Result<process::Output> {
    let mut command = command(project, arguments)?;
    let Some(input) = input else {
        return command.stdin(Stdio::null()).output();
    };
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // The program reads all of its input before it prints much. If it refuses its arguments first, it says why.
    if let Some(mut stdin) = child.stdin.take() {
        let _refused = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}
