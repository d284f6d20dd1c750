//! The parts of the page that only this program knows.

use std::io::{self, Write as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use loop_runner::control::ProcessHealth;
use rlm_report::CommandLineTerms;
use rlm_store::{Project, RunEntry, RunId, Timeline};
use rlm_view::{AgentChoice, CommandResult, Program, RunTexts};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::agents::{self, AgentKind};
use crate::command::report;
use crate::config::limit_names;
use crate::hint;
use crate::render::{RunStatusView, doing};

/// The time after which a page no longer waits for a command.
const COMMAND_WAIT: Duration = Duration::from_secs(50);

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
        // The page shows the time since then itself, and keeps it up to date.
        let head = run.head.as_ref().ok();
        RunTexts {
            agent: status.agent().unwrap_or_default().to_owned(),
            now: head.and_then(|head| doing(run, head, health, None)),
            next: status.next().map(str::to_owned),
            last_outcome: status.last_outcome().map(str::to_owned),
            reason: status.reason().map(str::to_owned),
            last_check: status.last_check().map(str::to_owned),
        }
    }

    fn report_terms(&self, project: &Project, timeline: &Timeline) -> CommandLineTerms {
        hint::with_project(project.root(), || report::terms(timeline))
    }

    fn run(&self, project: &Project, arguments: &[String]) -> CommandResult {
        match self.output(project, arguments, None) {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                let is_success = output.status.success();
                CommandResult {
                    is_success,
                    output: match text.is_empty() && !is_success {
                        true => without_a_message(output.status),
                        false => text,
                    },
                }
            }
            Err(why) => CommandResult {
                is_success: false,
                output: why,
            },
        }
    }

    fn start(&self, project: &Project, arguments: &[String]) -> io::Result<Child> {
        let mut command = command(project, arguments)?;
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    }

    fn interrupt(&self, child: &Child) {
        let pid = Pid::from_raw(child.id().cast_signed());
        if let Some(pid) = pid {
            // It may have ended meanwhile; its pid is not reused before the wait.
            let _ended = kill_process(pid, Signal::TERM);
        }
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

    fn quoted(&self, word: &str) -> String {
        hint::quoted(word)
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
        let output = self.output(project, &arguments, prompt)?;
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let mut events = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let run = events.find(|it| it["event"] == "detached");
        let run = run.and_then(|it| it["run"].as_str()?.parse().ok());
        run.ok_or_else(|| match output.stderr.trim_ascii() {
            [] => without_a_message(output.status),
            text => String::from_utf8_lossy(text).into_owned(),
        })
    }
}

impl ThisProgram {
    /// Runs this program in the directory of a project, until it exits. The error is a text for a person.
    fn output(
        &self,
        project: &Project,
        arguments: &[String],
        input: Option<&str>,
    ) -> Result<Output, String> {
        let cant_start = |e| format!("can't start rlm: {e}");
        let command = command(project, arguments).map_err(cant_start)?;
        let output = output_within(COMMAND_WAIT, command, input).map_err(cant_start)?;
        output.ok_or_else(|| {
            format!(
                "the command has not ended after {}s, and still works; to see its effect, load this page again later, or run: {} ps",
                COMMAND_WAIT.as_secs(),
                self.command(Some(project))
            )
        })
    }
}

/// Returns the text for a command that failed without a message.
fn without_a_message(status: ExitStatus) -> String {
    format!("rlm failed without a message ({status})")
}

/// Returns the command that runs this program in the directory of a project.
fn command(project: &Project, arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("-C").arg(project.root()).args(arguments);
    Ok(command)
}

/// Runs a command until it exits. Returns `None` if it takes longer than `limit`; then it continues, and a thread reaps it.
fn output_within(
    limit: Duration,
    mut command: Command,
    input: Option<&str>,
) -> io::Result<Option<Output>> {
    let stdin = input.map_or_else(Stdio::null, |_| Stdio::piped());
    command.stdin(stdin);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let input = input.map(str::to_owned);
    let (to, ended) = mpsc::channel();
    std::thread::spawn(move || {
        // The program reads all of its input before it prints much. If it refuses its arguments first, it says why.
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            let _refused = stdin.write_all(input.as_bytes());
        }
        // After the limit, the caller no longer waits.
        let _late = to.send(child.wait_with_output());
    });
    ended.recv_timeout(limit).ok().transpose()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_of_a_command_are_returned() {
        let command = sh("cat; echo why >&2; exit 3");
        let output = output_within(Duration::from_secs(100), command, Some("text"));
        let output = output.unwrap().unwrap();
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"text"[..], &b"why\n"[..])
        );
        assert_eq!(
            without_a_message(output.status),
            "rlm failed without a message (exit status: 3)"
        );
    }

    #[test]
    fn command_that_takes_too_long_continues() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = sh("until test -e go; do sleep 0.01; done; touch done");
        command.current_dir(folder.path());
        let output = output_within(Duration::from_millis(10), command, Some("text"));
        assert!(output.unwrap().is_none());
        fs_err::write(folder.path().join("go"), "").unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while !folder.path().join("done").exists() {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
    }
}
