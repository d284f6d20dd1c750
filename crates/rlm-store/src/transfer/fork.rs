//! Forks: a new run that continues after an iteration of another run.

use std::path::Path;

use cancellable_sleep::SleepGate;
use checkpoint_store::Writer;
use loop_state::{Lineage, StopReason, TimedInput};
use uuid::Uuid;

use super::progress::{Cancel, StagingDirectory, run_cancellable};
use crate::git::Hooks;
use crate::git::worktree::Worktree;
use crate::run_head::Origin;
use crate::runs::options;
use crate::sessions;
use crate::{
    AttemptOutcome, AttemptRecord, Error, Hint, Notifications, Project, RunHead, RunId,
    StateSelector, runs,
};

/// The point at which a fork begins, and its name.
#[derive(Clone, Debug)]
pub struct ForkPoint {
    /// The iteration of the other run after which the fork continues.
    pub iteration: u32,
    /// The name of that iteration's phase; the default is the current phase, or the only one with such an iteration.
    pub phase: Option<String>,
    /// The name of the new run.
    pub run: RunId,
}

/// A forked run.
#[derive(Debug)]
pub struct Forked {
    /// The saved head.
    pub head: RunHead,
    /// The name of the phase of the iteration that it continues from.
    pub phase: String,
    /// The commit with the work of that iteration.
    pub commit: String,
    /// The worktree of the new run.
    pub worktree: Worktree,
    /// The stop reason of the other run, if it ended with that iteration.
    pub ended: Option<StopReason>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Project {
    /// Creates a new run that continues after an iteration of `parent`, in its own worktree at the commit of that iteration. Only reads the other
    /// run, which may be live; changes nothing else in the project, and starts nothing.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is no such run or iteration, [`Error::is_usage`] if the iteration is in no commit ([`AttemptRecord::commit`]
    /// shows that) or the new run exists.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel a fork that has begun. A cancelled token of the gate ends it early, and it leaves nothing behind.
    pub async fn fork(
        &self,
        parent: &RunId,
        point: ForkPoint,
        gate: &SleepGate,
    ) -> Result<Forked, Error> {
        let parent = parent.clone();
        run_cancellable(self, gate, move |project, cancel| {
            fork(project, &parent, point, cancel)
        })
        .await
    }
}

fn fork(
    project: &Project,
    parent: &RunId,
    point: ForkPoint,
    cancel: &Cancel,
) -> Result<Forked, Error> {
    let now = project.state_at(parent, StateSelector::Newest)?.head;
    let present = now.machine.phase_rules().name.clone();
    let rows = project.checkpoints(parent)?.attempts;
    let row = find_attempt(parent, &rows, &point, &present).map_err(|e| {
        let from = now.machine.parent.as_ref();
        let from = from.filter(|it| e.is_not_found() && point.iteration <= it.iteration);
        from.map_or(e, |it| {
            let iteration = point.iteration;
            let problem = format!(
                "continues run `{}`, which made iteration {iteration}: fork that run",
                it.run
            );
            let error = Error::not_transferable(parent, problem);
            match it.run.parse() {
                Ok(run) => error.with_hint(Hint::Fork { run, iteration }),
                Err(_) => error,
            }
        })
    })?;
    let no_commit = |hint| Error::not_committed(parent, row.iteration, hint);
    let commit = row.commit.clone();
    let commit = commit.ok_or_else(|| match forkable_iterations(&rows, &now) {
        Some(instead) => no_commit(instead),
        None => no_commit("let the run commit later iterations".into())
            .with_hint(Hint::Commit(parent.clone())),
    })?;
    if project.git().top().is_none() || project.git().commit_of(&commit).is_none() {
        return Err(no_commit(format!(
            "commit {commit} of the iteration is missing in this repository: fetch it from another clone"
        )));
    }
    if runs::exists(project, &point.run) {
        return Err(Error::run_exists(point.run));
    }
    cancel.check()?;
    let save = row.last;
    let incoming = StagingDirectory::new(project)?;
    let store = |e| Error::store(parent, "forked", e);
    let parent_dir = project.run_dir(parent);
    checkpoint_store::fork(&parent_dir, save, incoming.path(), &options(true)).map_err(store)?;
    let (mut writer, loaded) =
        Writer::<RunHead, TimedInput>::open(incoming.path(), options(false)).map_err(store)?;
    let mut head = loaded
        .head
        .ok_or_else(|| runs::nothing_saved(project, parent))?;
    let hooks = match head.settings.commit {
        true => Hooks::Run,
        false => Hooks::Off,
    };
    let worktree = project.worktree_at(&point.run, &commit, hooks, "--run-id ID")?;
    let made = (|| {
        let ended = head.machine.end.take().map(|end| end.reason);
        let lineage = Lineage {
            run: parent.to_string(),
            iteration: row.iteration,
            seq: save.get(),
        };
        let (session, unkept) = sessions::copy_or_note(&parent_dir, &head, incoming.path());
        head.machine = head.machine.fork(lineage, session);
        relocate(&mut head, project.root(), &worktree)?;
        head.origin = Some(Box::new(Origin {
            events: loaded.events.len() as u64,
            head: head.machine.clone(),
        }));
        head.run = point.run.clone();
        head.scope = Uuid::new_v4().simple().to_string();
        head.git_commit = Some(commit.clone());
        head.git_changed = Some(0);
        head.snapshot = Some(commit.clone());
        head.pause_reason = None;
        head.notifications = Notifications::default();
        (head.transfer, head.transfers) = (None, 0);
        (head.last_request, head.exported) = (0, 0);
        writer.append(&head, &[]).map_err(store)?;
        drop(writer);
        cancel.check()?;
        incoming.promote(project, &head.run)?;
        Ok(Forked {
            head,
            phase: row.phase_name.clone(),
            commit,
            worktree: worktree.clone(),
            ended,
            notes: unkept.into_iter().collect(),
        })
    })();
    made.inspect_err(|_| project.remove_worktree(&worktree.path, Some(&worktree.branch)))
}

/// Moves the run to another worktree.
fn relocate(head: &mut RunHead, root: &Path, worktree: &Worktree) -> Result<(), Error> {
    let within = head.settings.directory.strip_prefix(head.tree(root));
    head.settings.directory = worktree.directory(within.unwrap_or(Path::new("")))?;
    head.settings.worktree = Some(worktree.clone());
    Ok(())
}

/// Finds the attempt that completed the selected iteration.
fn find_attempt<'a>(
    run: &RunId,
    rows: &'a [AttemptRecord],
    point: &ForkPoint,
    present: &str,
) -> Result<&'a AttemptRecord, Error> {
    let number = point.iteration;
    let of_number = |row: &&AttemptRecord| {
        row.iteration == number && point.phase.as_ref().is_none_or(|it| *it == row.phase_name)
    };
    // If an iteration was redone, its last attempt counts.
    let complete: Vec<&AttemptRecord> = { rows.iter().rev() }
        .filter(of_number)
        .filter(|row| {
            matches!(
                row.outcome,
                AttemptOutcome::Complete | AttemptOutcome::Failed(_)
            )
        })
        .collect();
    let (mut complete, discarded): (Vec<_>, Vec<_>) =
        complete.into_iter().partition(|row| !row.discarded);
    complete.extend(discarded);
    let here = complete.iter().find(|row| row.phase_name == present);
    let mut names: Vec<&str> = complete.iter().map(|row| row.phase_name.as_str()).collect();
    names.dedup();
    match (here, names.as_slice()) {
        (Some(row), _) => Ok(row),
        (None, [_]) => Ok(complete[0]),
        (None, []) if rows.iter().any(|row| of_number(&row)) => Err(Error::not_transferable(
            run,
            format!("has not completed iteration {number}; choose an existing one"),
        )
        .with_hint(Hint::ChooseState(run.clone()))),
        (None, []) => {
            let phase = point.phase.as_ref();
            let of = phase.map_or_else(String::new, |phase| format!(" of phase `{phase}`"));
            Err(Error::no_such_state(run, format!("iteration {number}{of}")))
        }
        (None, _) => Err(Error::not_transferable(
            run,
            format!(
                "has an iteration {number} in several phases: choose one with --phase, of {}",
                names.join(", ")
            ),
        )),
    }
}

/// The largest number of iterations in a message.
const NAMED: usize = 8;

/// Returns which iterations can be forked instead; `None` for a run that does not commit.
fn forkable_iterations(rows: &[AttemptRecord], now: &RunHead) -> Option<String> {
    let committed = rows.iter().rev().filter(|row| row.commit.is_some());
    let committed: Vec<String> = { committed.take(NAMED) }
        .map(|row| row.iteration.to_string())
        .collect();
    match (committed.is_empty(), now.settings.commit) {
        (false, _) => Some(format!("committed iterations: {}", committed.join(", "))),
        (true, true) => Some("no iteration of this run is committed yet".into()),
        (true, false) => None,
    }
}
