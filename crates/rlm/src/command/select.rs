//! Selects the run of a command: the named one, or the only possible one.

use std::path::Path;

use rlm_store::{Project, RunEntry, RunId, RunState, index};

use crate::command::live::not_live;
use crate::exit::Failure;
use crate::hint;

/// Finds a live run: the named one, of this project or another, or the only live one of this project.
pub(super) fn live(here: Project, name: Option<&str>) -> Result<(Project, RunEntry), Failure> {
    let Some(name) = name else {
        let run = only_live(&here)?;
        return Ok((here, run));
    };
    let is_live = |run: &RunId| here.run(run).is_ok_and(|run| run.is_live());
    let (project, run) = of_any_project(here.clone(), name).map_err(|mut failure| {
        failure.choices.retain(is_live);
        failure.message = format!("no live run: {}", failure.message);
        failure
    })?;
    match run.is_live() {
        true => Ok((project, run)),
        false => Err(not_live(&run)),
    }
}

/// Returns the id of the run that a person means: a whole id, the beginning or the end of one id, or `last`.
///
/// If no run of this project matches, returns the name itself: it can be a run of another project, or the caller reports that it doesn't exist.
pub(super) fn run_id(project: &Project, name: &str) -> Result<RunId, Failure> {
    let mut found = match name {
        "" => Vec::new(),
        name => project.matching_runs(name)?,
    };
    match found.len() {
        0 => Ok(name.parse()?),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<&str> = found.iter().map(RunId::as_str).collect();
            let failure = Failure::usage(format!(
                "several runs match `{name}`; write more of one: {}",
                names.join(", ")
            ));
            Err(failure.with_choices(found))
        }
    }
}

fn only_live(project: &Project) -> Result<RunEntry, Failure> {
    let mut live = project.runs()?;
    live.retain(RunEntry::is_live);
    match live.len() {
        1 => Ok(live.remove(0)),
        0 => Err(Failure::not_found(format!(
            "no live run in this project; `{} status` shows all runs",
            hint::program_command()
        ))),
        _ => Err(several("are live", &live)),
    }
}

/// Finds the run to resume: the named one, or the only one that can be resumed.
pub(super) fn resumable(project: &Project, name: Option<&str>) -> Result<RunEntry, Failure> {
    if let Some(name) = name {
        let run = project.run(&run_id(project, name)?)?;
        if run.state == RunState::Empty {
            return Err(Failure::not_found(format!(
                "run `{0}` crashed before its first save; start it again: {1} run --run-id {0} …",
                run.id,
                hint::program_command()
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
    // A live run in its own worktree doesn't block a resume here.
    let is_here = |run: &RunEntry| {
        let head = run.head.as_ref();
        head.is_ok_and(|head| head.settings.worktree.is_none())
    };
    if let Some(live) = runs.iter().find(|run| run.is_live() && is_here(run)) {
        let (id, rlm) = (&live.id, hint::program_command());
        let message =
            format!("run `{id}` is live in this project; wait for it, or: {rlm} stop {id}");
        return Err(Failure::held(message));
    }
    let gave_up = runs.iter().rev().find_map(continue_command);
    runs.retain(RunEntry::is_resumable);
    match runs.len() {
        1 => Ok(runs.remove(0)),
        0 if gave_up.is_some() => Err(Failure::not_found(format!(
            "nothing to resume here: no run was stopped or crashed; {}",
            gave_up.unwrap_or_default()
        ))),
        0 if damaged.is_empty() => Err(Failure::not_found(format!(
            "nothing to resume here: no run was stopped or crashed; `{} status` shows all runs",
            hint::program_command()
        ))),
        0 => Err(Failure::failed(format!(
            "all saved runs here are damaged: {}; for a safe next command: {} checkpoints verify",
            damaged.join(", "),
            hint::program_command()
        ))),
        _ => Err(several("can be resumed", &runs)),
    }
}

/// Returns how to continue this run, if it ended at a limit or failed.
fn continue_command(run: &RunEntry) -> Option<String> {
    let head = run.head.as_ref().ok()?;
    let reason = &head.machine.end.as_ref()?.reason;
    let again = hint::resume_hint(&run.id, reason)?;
    Some(format!(
        "run {} ended ({reason}); to continue it: {again}",
        run.id
    ))
}

/// Finds the runs of a command: the named one, which may be a live run of another project, or all runs of this project. At least one must exist.
pub(super) fn named_or_all(
    here: Project,
    name: Option<&str>,
) -> Result<(Project, Vec<RunEntry>), Failure> {
    let Some(name) = name else {
        let runs = here.runs()?;
        return match runs.is_empty() {
            true => Err(no_run_yet()),
            false => Ok((here, runs)),
        };
    };
    let (project, run) = of_any_project(here, name)?;
    Ok((project, vec![run]))
}

/// Finds the run of a command: the named one, which may be a live run of another project, or the newest one of this project.
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
    let (rlm, program) = (hint::program_command(), hint::program());
    Failure::not_found(format!(
        "no run here yet; start one: {rlm} run --until 'cargo test' -p 'TASK', or see one: {program} demo"
    ))
}

/// Finds a run of this project, or else a live run of another project.
pub(crate) fn of_any_project(here: Project, name: &str) -> Result<(Project, RunEntry), Failure> {
    let run = run_id(&here, name)?;
    let missing = match here.run(&run) {
        Ok(entry) => return Ok((here, entry)),
        Err(e) if !e.is_not_found() => return Err(e.into()),
        Err(e) => e,
    };
    let mut found = index::find(&run);
    match (found.pop(), found.is_empty()) {
        (Some((project, entry)), true) => {
            hint::set_directory(project.root());
            Ok((project, entry))
        }
        (None, _) => Err(missing.into()),
        (Some((last, _)), false) => {
            let places = found.iter().map(|(project, _)| project).chain([&last]);
            let places = places.map(|project| hint::quoted(&project.root().to_string_lossy()));
            let places: Vec<String> = places.map(|place| format!("-C {place}")).collect();
            Err(Failure::usage(format!(
                "several projects have a run `{run}`; choose one: {}",
                places.join(", or ")
            )))
        }
    }
}

pub(super) fn several(what: &str, runs: &[RunEntry]) -> Failure {
    let names: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    let failure = Failure::usage(format!(
        "several runs {what}; name one: {}",
        names.join(", ")
    ));
    failure.with_choices(runs.iter().map(|run| run.id.clone()))
}
