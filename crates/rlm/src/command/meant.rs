//! Which run is meant: the one that was named, or the only one that it can be.

use std::path::Path;

use rlm_store::{Project, RunEntry, RunId, RunState, index};

use crate::args::ManyArgs;
use crate::command::live::not_live;
use crate::exit::Failure;
use crate::hint;

/// Finds the run to reach: the named one, of this project or another, or the only one of this project that is live.
pub(super) fn live(here: Project, name: Option<&str>) -> Result<(Project, RunEntry), Failure> {
    let Some(name) = name else {
        let run = only_live(&here)?;
        return Ok((here, run));
    };
    let nothing =
        |Failure { code, message }| Failure::new(code, format!("nothing reached: {message}"));
    let (project, run) = of_any_project(here, name).map_err(nothing)?;
    match run.is_live() {
        true => Ok((project, run)),
        false => Err(not_live(&run)),
    }
}

fn only_live(project: &Project) -> Result<RunEntry, Failure> {
    let mut live = project.runs()?;
    live.retain(RunEntry::is_live);
    match live.len() {
        1 => Ok(live.remove(0)),
        0 => Err(Failure::not_found(
            "nothing reached: no run of this project is live; `rlm status` shows all",
        )),
        _ => Err(several("are live", &live)),
    }
}

/// Finds the run to resume: the named one, or the only one that can be.
pub(super) fn resumable(project: &Project, name: Option<&str>) -> Result<RunEntry, Failure> {
    if let Some(name) = name {
        let run = project.run(&name.parse::<RunId>()?)?;
        if run.state == RunState::Empty {
            return Err(Failure::not_found(format!(
                "run `{name}` died before anything was saved; start it: {} run --run-id {name} …",
                hint::rlm()
            )));
        }
        return Ok(run);
    }
    let mut runs = project.runs()?;
    let damaged: Vec<String> = runs
        .iter()
        .filter(|r| r.state == RunState::Damaged)
        .map(|r| r.id.to_string())
        .collect();
    // One in a tree of its own is in nobody's way.
    let is_here = |run: &RunEntry| {
        let head = run.head.as_ref();
        head.is_ok_and(|head| head.settings.worktree.is_none())
    };
    if let Some(live) = runs.iter().find(|run| run.is_live() && is_here(run)) {
        let (id, rlm) = (&live.id, hint::rlm());
        let message =
            format!("run `{id}` is at work in this project; wait for it, or: {rlm} stop {id}");
        return Err(Failure::held(message));
    }
    let gave_up = runs.iter().rev().find_map(gave_up);
    runs.retain(RunEntry::is_resumable);
    match runs.len() {
        1 => Ok(runs.remove(0)),
        0 if gave_up.is_some() => Err(Failure::not_found(format!(
            "no run was stopped or cut here; {}",
            gave_up.unwrap_or_default()
        ))),
        0 if damaged.is_empty() => Err(Failure::not_found(
            "nothing to resume here: no run was stopped or cut; `rlm status` shows all",
        )),
        0 => Err(Failure::failed(format!(
            "only damaged state here: {}; what is safe to do: {} checkpoints verify",
            damaged.join(", "),
            hint::rlm()
        ))),
        _ => Err(several("can be resumed", &runs)),
    }
}

/// Says how a run that gave up can be taken up again, if this one did.
fn gave_up(run: &RunEntry) -> Option<String> {
    let head = run.head.as_ref().ok()?;
    let reason = &head.machine.end.as_ref()?.reason;
    let again = hint::go_on(&run.id, reason)?;
    Some(format!("run {} ended ({reason}): {again}", run.id))
}

/// Finds the runs that are meant: the named one, which may be a live one of another project, or all of this one, of which there must be one.
pub(super) fn named_or_all(
    here: Project,
    args: &ManyArgs,
) -> Result<(Project, Vec<RunEntry>), Failure> {
    let Some(name) = &args.run else {
        let runs = here.runs()?;
        return match runs.is_empty() {
            true => Err(no_run_yet()),
            false => Ok((here, runs)),
        };
    };
    let (project, run) = of_any_project(here, name)?;
    Ok((project, vec![run]))
}

/// Finds the run that is meant: the named one, which may be a live one of another project, or the newest of this one.
pub(super) fn named_or_newest(
    directory: &Path,
    name: Option<&str>,
) -> Result<(Project, RunEntry), Failure> {
    let here = Project::find(directory)?;
    match name {
        Some(name) => of_any_project(here, name),
        None => {
            let newest = here.runs()?.pop().ok_or_else(no_run_yet)?;
            Ok((here, newest))
        }
    }
}

fn no_run_yet() -> Failure {
    Failure::not_found(
        "no run here yet; start one: rlm run -p 'what to do', or see it work first: rlm demo",
    )
}

/// Finds a run of this project, or else a live one of another.
pub(crate) fn of_any_project(here: Project, name: &str) -> Result<(Project, RunEntry), Failure> {
    let run = name.parse()?;
    let missing = match here.run(&run) {
        Ok(entry) => return Ok((here, entry)),
        Err(e) if !e.is_not_found() => return Err(e.into()),
        Err(e) => e,
    };
    let mut found = index::find(&run);
    match (found.pop(), found.is_empty()) {
        (Some((project, entry)), true) => {
            hint::called_in(project.root());
            Ok((project, entry))
        }
        (None, _) => Err(missing.into()),
        (Some((last, _)), false) => {
            let places = found.iter().map(|(project, _)| project).chain([&last]);
            let places = places.map(|project| hint::quoted(&project.root().to_string_lossy()));
            let places: Vec<String> = places.map(|place| format!("-C {place}")).collect();
            Err(Failure::usage(format!(
                "runs of several projects are named `{run}`, say which is meant: {}",
                places.join(", or ")
            )))
        }
    }
}

pub(super) fn several(what: &str, runs: &[RunEntry]) -> Failure {
    let names: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    Failure::usage(format!(
        "several runs {what}, name one: {}",
        names.join(", ")
    ))
}
