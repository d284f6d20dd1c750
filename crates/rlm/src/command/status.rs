//! `rlm status` with its liveness probe, and `rlm ps`: the state of runs.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use loop_runner::control::ProcessHealth;
use rlm_store::{Project, RunEntry, in_parallel, index};

use crate::args::{PsArgs, StatusArgs};
use crate::command::fleet::FleetRun;
use crate::command::{pick, select};
use crate::exit::{Code, Failure};
use crate::hint::program_command;
use crate::output;
use crate::render::{Live, RunStatusView, json_line, print, problem};

pub(crate) fn execute(directory: &Path, args: &StatusArgs) -> Result<ExitCode, Failure> {
    let StatusArgs { runs: args, alive } = args;
    if let Some(target) = FleetRun::named(directory, args.run.as_deref())? {
        return target.status(args.json, *alive);
    }
    let run = pick::named(directory, !args.json, args.run.as_deref())?;
    let (project, runs) = select::named_or_all(Project::find(directory)?, run.as_deref())?;
    if let ([run], true) = (runs.as_slice(), *alive) {
        return probe(&project, run);
    }
    let now = jiff::Timestamp::now();
    let damaged = { runs.iter() }.any(|run| run.head.is_err() || run.loss.is_some());
    let shown = in_parallel(&runs, |run| {
        let life = run.is_live().then(|| {
            let holder = project.holder_of(run);
            ProcessHealth::of(&project, &run.id, holder.as_ref(), LIST_TIMEOUT)
        });
        RunStatusView::of(run, life.as_ref(), now)
    });
    if runs.len() > 1 && !args.json {
        let list = RunStatusView::list(&shown, rlm_terminal::columns());
        output::line(&list);
        anstream::eprintln!("details: {} status RUN", program_command());
    } else {
        let _gone = { shown.iter() }.find(|status| !print(args.json, status));
    }
    Ok(Code::of_state(damaged && args.run.is_some()).into())
}

/// The time in which each run must respond for a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The time in which the run must respond to a liveness probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks whether a process works on the run and its loop is not stuck.
fn probe(project: &Project, run: &RunEntry) -> Result<ExitCode, Failure> {
    let id = &run.id;
    let dead = |why: &str| Failure::failed(format!("run `{id}` {why}"));
    if !run.is_live() {
        return Err(dead("is not alive: no process works on it"));
    }
    let holder = project.holder_of(run);
    match &ProcessHealth::of(project, id, holder.as_ref(), PROBE_TIMEOUT) {
        ProcessHealth::OtherVersion(message) => return Err(Failure::failed(message.clone())),
        life => {
            if let Some(trouble) = problem(life) {
                return Err(dead(&trouble));
            }
        }
    }
    output::line(&format!("run {id} is alive"));
    Ok(Code::Done.into())
}

pub(crate) fn ps(directory: &Path, args: &PsArgs) -> Result<ExitCode, Failure> {
    let own = own(directory);
    let live = match args.all {
        // With --all, live runs are found from any directory, even outside of a project.
        true => index::live(),
        false => own?,
    };
    if live.is_empty() && !args.json {
        let elsewhere = index::live().len();
        let hint = match elsewhere {
            0 => format!(
                "to see all runs: {0} status; to start one: {0} run --help",
                program_command()
            ),
            some => format!("{some} in other projects: {} ps --all", program_command()),
        };
        anstream::eprintln!("no live run; {hint}");
        return Ok(Code::Done.into());
    }
    let now = jiff::Timestamp::now();
    let shown = in_parallel(&live, |(project, run)| {
        let holder = project.holder_of(run);
        let life = ProcessHealth::of(project, &run.id, holder.as_ref(), LIST_TIMEOUT);
        Live::of(project.root(), run, holder.as_ref(), &life, now)
    });
    if args.json {
        // A reader that closed the output ends the list.
        let _gone = shown.iter().all(|live| output::line(&json_line(live)));
        return Ok(Code::Done.into());
    }
    let list = Live::list(&shown, args.all, rlm_terminal::columns());
    output::line(&list);
    Ok(Code::Done.into())
}

/// Returns the live runs of the project at `directory`.
fn own(directory: &Path) -> Result<Vec<(Project, RunEntry)>, Failure> {
    let here = Project::find(directory)?;
    let mut own = here.runs()?;
    own.retain(RunEntry::is_live);
    index::repair(&here, &own);
    Ok(own.into_iter().map(|run| (here.clone(), run)).collect())
}
