//! `rlm resume`

use std::path::Path;
use std::process::ExitCode;

use loop_runner::{Project, RunEntry, RunId, RunState, Runner, WorkTree};

use crate::args::ResumeArgs;
use crate::exit::{Code, Failure};
use crate::render::{Beginning, Screen};
use crate::resolve;
use crate::session::{Session, refuse_nested};

pub(crate) fn execute(directory: &Path, args: ResumeArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin()?;
    refuse_nested(args.nested)?;
    let project = Project::find(directory)?;
    let entry = choose(&project, args.run.as_deref())?;
    let (run, saved) = match (entry.state, entry.head) {
        (_, Err(why)) => {
            return Err(Failure {
                code: Code::Failed,
                message: format!("run `{}` can't be resumed: {why}", entry.id),
            });
        }
        (_, Ok(head)) => (entry.id, head),
    };
    if let (Some(end), false) = (
        &saved.machine.end,
        args.from.is_some() || args.what.max_iterations.is_some(),
    ) && end.reason.is_final()
    {
        return Err(Failure::usage(format!(
            "run `{run}` has ended: {}; there is nothing to resume",
            end.reason
        )));
    }
    let (at, cut) = saved.machine.resumes_at();
    if let Some(from) = args.from
        && from > at
    {
        return Err(Failure::usage(format!(
            "--from {from}: run `{run}` is only at iteration {at}"
        )));
    }
    let here = std::env::current_dir()
        .map_err(|e| Failure::usage(format!("the working directory is gone: {e}")))?;
    let settings = resolve::resumed(args.what, args.agent_command, &saved.settings, &here)?;
    let (runner, news) = session.block_on(async {
        let work_tree = WorkTree::take(&project, &run, &session.gate()).await?;
        Runner::open(
            project.clone(),
            run,
            work_tree,
            settings,
            args.from,
            session.options(),
        )
        .await
    })?;
    let screen = Screen::new(args.show.json);
    let beginning = Beginning::Again {
        at: args.from.unwrap_or(at),
        discarded: args.from.is_some(),
        cut,
    };
    screen.begin(&beginning, &project, runner.head());
    session.carry_out(runner, news, screen)
}

/// Finds the run that is meant: the named one, or the only one that can be resumed.
fn choose(project: &Project, name: Option<&str>) -> Result<RunEntry, Failure> {
    if let Some(name) = name {
        return Ok(project.run(&name.parse::<RunId>()?)?);
    }
    let mut runs = project.runs()?;
    let damaged: Vec<String> = runs
        .iter()
        .filter(|r| r.state == RunState::Damaged)
        .map(|r| r.id.to_string())
        .collect();
    if let Some(live) = runs.iter().find(|run| run.state == RunState::Running) {
        let message = format!(
            "run `{}` is at work in this project; wait for it or stop it",
            live.id
        );
        return Err(Failure {
            code: Code::Held,
            message,
        });
    }
    runs.retain(RunEntry::is_resumable);
    match runs.len() {
        1 => Ok(runs.remove(0)),
        0 if damaged.is_empty() => Err(Failure::not_found(
            "nothing to resume here: no run was stopped or cut; `rlm status --json` shows all",
        )),
        0 => Err(Failure {
            code: Code::Failed,
            message: format!("only damaged state here: {}", damaged.join(", ")),
        }),
        _ => {
            let names: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
            Err(Failure::usage(format!(
                "several runs can be resumed, name one: {}",
                names.join(", ")
            )))
        }
    }
}
