//! The parts of the page that only this program knows.

use std::process::{Command, Stdio};

use loop_runner::control::ProcessHealth;
use rlm_report::CommandLineTerms;
use rlm_store::{Project, RunEntry, Timeline};
use rlm_view::{CommandResult, Program, RunTexts};

use crate::command::report;
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
        let result = std::env::current_exe().and_then(|this| {
            let mut command = Command::new(this);
            command.arg("-C").arg(project.root()).args(arguments);
            command.stdin(Stdio::null()).output()
        });
        match result {
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
}
