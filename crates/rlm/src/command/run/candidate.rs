//! Finds the run that `--resume-or-start` continues.

use std::path::Path;

use rlm_store::{Project, RunEntry, RunId, RunState};

use super::ended_run::EndedRun;
use crate::command::resume;
use crate::config::Config;
use crate::exit::{Code, Failure};
use crate::hint;

/// The result of the search for `--resume-or-start`.
pub(super) enum ResumeCandidate {
    None,
    Ended(EndedRun),
    /// A saved run to continue.
    Resumable(RunId),
}

/// Looks for the run that `--resume-or-start` continues.
pub(super) fn find(
    directory: &Path,
    named: Option<RunId>,
    what: Config,
) -> impl FnOnce() -> Result<(ResumeCandidate, Config), Failure> + Send + 'static {
    let directory = directory.to_owned();
    move || {
        let project = Project::find(&directory)?;
        project.refuse_tracked_state()?;
        let mut runs = project.runs()?;
        match &named {
            Some(name) => {
                runs.retain(|run| run.id == *name && run.state != RunState::Empty);
                if let Some(run) = runs.first() {
                    refuse(&project, run)?;
                    if let Some(over) = EndedRun::of(run, &what) {
                        return Ok((ResumeCandidate::Ended(over), what));
                    }
                }
            }
            None => {
                let newest = runs.last();
                let transferred = newest.and_then(|run| refuse_transferred(run).err());
                let unfinished = newest.is_some_and(is_unfinished);
                runs.retain(|run| run.is_resumable() && !run.is_stopped_by_person());
                if let (Some(transferred), true, true) = (transferred, unfinished, runs.is_empty())
                {
                    return Err(transferred);
                }
            }
        }
        let found = match runs.len() {
            0 => ResumeCandidate::None,
            1 => ResumeCandidate::Resumable(runs.remove(0).id),
            _ => {
                let names: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
                return Err(Failure::usage(format!(
                    "several runs can be resumed; name one with --run-id: {}",
                    names.join(", ")
                )));
            }
        };
        Ok((found, what))
    }
}

/// Refuses a run that was transferred, as a resume does.
fn refuse_transferred(run: &RunEntry) -> Result<(), Failure> {
    let head = run.head.as_ref().ok();
    match head.and_then(|head| head.transfer.as_ref()) {
        Some(transferred) => Err(resume::transferred_error(&run.id, transferred)),
        None => Ok(()),
    }
}

/// Returns whether the run was stopped or crashed, even if it was transferred and continues elsewhere.
fn is_unfinished(run: &RunEntry) -> bool {
    let head = run.head.as_ref();
    head.is_ok_and(|head| head.machine.is_unfinished())
}

/// Refuses a run that is live, was transferred, or was stopped by a person.
fn refuse(project: &Project, run: &RunEntry) -> Result<(), Failure> {
    let (id, rlm) = (&run.id, hint::program_command());
    if run.is_live() {
        let pid = project.holder(id).map(|holder| holder.process.pid);
        let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        return Err(Failure::held(format!(
            "run `{id}` is live{pid}; nothing was changed"
        )));
    }
    refuse_transferred(run)?;
    match run.is_stopped_by_person() {
        true => Err(Failure::new(
            Code::Stopped,
            format!(
                "run `{id}` was stopped by a person; only a person can continue it: {rlm} resume {id}"
            ),
        )),
        false => Ok(()),
    }
}
