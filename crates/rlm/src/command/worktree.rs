//! `rlm merge` and `rlm drop`: bring the result of a run in its own worktree home, or remove it.

use std::path::Path;
use std::process::ExitCode;

use rlm_store::{Merged, Project, RunEntry, Worktree, WorktreeResult};

use crate::args::WorktreeArgs;
use crate::command::clean::is_confirmed;
use crate::command::{pick, select};
use crate::exit::{Code, Failure};
use crate::hint::program_command;
use crate::output;
use crate::render::{self, WorktreeStep, WorktreeView};
use crate::session::{Session, refuse_inside};

/// A run with its own worktree, and the work in it.
struct Target {
    project: Project,
    run: RunEntry,
    worktree: Worktree,
    result: WorktreeResult,
}

pub(crate) fn merge(directory: &Path, args: &WorktreeArgs) -> Result<ExitCode, Failure> {
    refuse_inside("merge", args.nested || args.dry_run)?;
    let run = pick::named(directory, !args.json, args.run.as_deref())?;
    let session = Session::begin(true, false)?;
    let target = find(&session, directory, run)?;
    if target.result.is_empty() {
        show(&target, WorktreeStep::NothingToMerge, args);
        return Ok(Code::Done.into());
    }
    if !is_approved(&target, WorktreeStep::Merge, args, "merge it? [y/N] ")? {
        return Ok(Code::Done.into());
    }
    let Target {
        project, worktree, ..
    } = &target;
    let (project, tree) = (project.clone(), worktree.clone());
    let message = format!("Uncommitted work of run {}", target.run.id);
    let merged = session.prepare(move || Ok(project.merge_worktree(&tree, &message)?))?;
    match merged {
        Merged::Yes => {
            show(&target, WorktreeStep::Merged, args);
            Ok(Code::Done.into())
        }
        Merged::Conflicts(files) => Err(Failure::failed(format!(
            "these files conflict: {}; nothing is changed here. To resolve it by hand: git merge {}",
            files.join(", "),
            worktree.branch
        ))),
    }
}

pub(crate) fn discard(directory: &Path, args: &WorktreeArgs) -> Result<ExitCode, Failure> {
    refuse_inside("drop", args.nested || args.dry_run)?;
    let run = pick::named(directory, !args.json, args.run.as_deref())?;
    let session = Session::begin(true, false)?;
    let target = find(&session, directory, run)?;
    let question = "remove it? This can't be undone [y/N] ";
    if !is_approved(&target, WorktreeStep::Drop, args, question)? {
        return Ok(Code::Done.into());
    }
    let (project, tree) = (target.project.clone(), target.worktree.clone());
    session.prepare(move || Ok(project.drop_worktree(&tree)?))?;
    show(&target, WorktreeStep::Dropped, args);
    Ok(Code::Done.into())
}

/// Finds the run, which must have its own worktree and must not be live, and reads the work in that worktree.
fn find(session: &Session, directory: &Path, name: Option<String>) -> Result<Target, Failure> {
    let directory = directory.to_owned();
    session.prepare(move || {
        let project = Project::find(&directory)?.in_project_tree();
        let name = name.as_deref().unwrap_or("last");
        let run = project.run(&select::run_id(&project, name)?)?;
        let (id, rlm) = (&run.id, program_command());
        if run.is_live() {
            return Err(Failure::held(format!(
                "run `{id}` is live; wait for it, or: {rlm} stop {id}"
            )));
        }
        let head = run.head.as_ref().map_err(|why| Failure::failed(why.clone()))?;
        let Some(worktree) = head.settings.worktree.clone() else {
            return Err(Failure::usage(format!(
                "run `{id}` worked in this working tree, so its result is already here; only a run with --worktree has its own"
            )));
        };
        let result = project.worktree_result(&worktree)?;
        Ok(Target { project, run, worktree, result })
    })
}

/// Shows what will happen. Returns whether a person agreed, or didn't want to be asked.
fn is_approved(
    target: &Target,
    step: WorktreeStep,
    args: &WorktreeArgs,
    question: &str,
) -> Result<bool, Failure> {
    if args.dry_run || !args.yes {
        show(target, step, args);
    }
    if args.dry_run {
        return Ok(false);
    }
    let is_approved = args.yes || is_confirmed(question)?;
    if !is_approved {
        anstream::eprintln!("nothing was changed");
    }
    Ok(is_approved)
}

fn show(target: &Target, step: WorktreeStep, args: &WorktreeArgs) {
    let view = WorktreeView {
        step,
        run: target.run.id.as_str(),
        worktree: &target.worktree,
        result: &target.result,
    };
    let line = match args.json {
        true => render::json_line(&view),
        false => view.to_string(),
    };
    // Without a reader the command continues.
    let _gone = output::line(&line);
}
