//! `rlm clean`: lists the runs to delete and to keep, asks, and deletes.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use rlm_store::{KeepReason, Project, RemovalRules, RunEntry, state_dir};

use crate::args::CleanArgs;
use crate::command::{pick, select};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::output;
use crate::render::{self, CleanEntry, CleanResult};
use crate::session::refuse_inside;

const DEFAULT_DAYS: u64 = 7;
/// The command that the note about removed transcripts names.
const BY: &str = "rlm clean --transcripts";
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn execute(directory: &Path, args: &CleanArgs) -> Result<ExitCode, Failure> {
    refuse_inside("clean", args.nested || args.dry_run)?;
    let project = Project::find(directory)?.in_project_tree();
    let runs = match args.runs.is_empty() {
        true => project.runs()?,
        false => named(directory, &project, args)?,
    };
    let now = SystemTime::now();
    let mut plan: Vec<CleanEntry> = runs
        .iter()
        .map(|run| plan_entry(&project, run, args, now))
        .collect();
    keep_newest(&mut plan, args.keep.unwrap_or(0));
    let to_delete = plan
        .iter()
        .filter(|it| it.result == CleanResult::Removed)
        .count();
    if args.dry_run || (to_delete > 0 && !args.yes) {
        for it in &mut plan {
            it.is_planned = true;
        }
        show(&plan, args.json);
    }
    if args.dry_run {
        return Ok(Code::Done.into());
    }
    if to_delete > 0 && !args.yes && !is_confirmed("delete them? This can't be undone [y/N] ")? {
        anstream::eprintln!("nothing was deleted");
        return Ok(Code::Done.into());
    }
    project.remove_interrupted_transfers();
    let mut failed = false;
    for it in &mut plan {
        it.is_planned = false;
        if it.result == CleanResult::Removed
            && let Err(why) = remove(&project, it, args)
        {
            it.result = CleanResult::Failed(why);
            failed = true;
        }
    }
    show(&plan, args.json);
    Ok(Code::of_state(failed).into())
}

/// Deletes a run or its transcripts as planned, unless the run changed while a person was asked.
fn remove(project: &Project, it: &CleanEntry, args: &CleanArgs) -> Result<(), String> {
    let now = project
        .run(&it.run)
        .map_err(|e| hint::with_command(&e, e.hint()))?;
    let now = plan_entry(project, &now, args, SystemTime::now());
    if (now.state, now.last) != (it.state, it.last) || now.result != CleanResult::Removed {
        return Err("the run has changed since it was listed; run the command again".into());
    }
    let removed = match args.transcripts {
        true => project.remove_transcripts(&it.run, BY),
        false => project.remove(&it.run),
    };
    removed.map_err(|e| hint::with_command(&e, e.hint()))
}

fn named(directory: &Path, project: &Project, args: &CleanArgs) -> Result<Vec<RunEntry>, Failure> {
    let run = |name: &String| {
        let chosen = pick::named(directory, !args.json, Some(name))?;
        let name = chosen.as_deref().unwrap_or(name);
        Ok(project.run(&select::run_id(project, name)?)?)
    };
    args.runs.iter().map(run).collect()
}

/// Returns what will happen to a run.
fn plan_entry(project: &Project, run: &RunEntry, args: &CleanArgs, now: SystemTime) -> CleanEntry {
    let head = run.head.as_ref().ok();
    let last = head.map(|head| SystemTime::from(head.machine.last_at));
    let changed = || {
        let metadata = state_dir::metadata(&project.run_dir(&run.id));
        Some(metadata.ok()?.modified())
    };
    let last = last.or_else(changed);
    // If the clock was set back, the age counts as zero.
    let age = last.and_then(|at| now.duration_since(at).ok());
    let age = age.unwrap_or_default();
    let end = head.and_then(|head| head.machine.end.as_ref());
    let days = match (args.days, args.runs.is_empty()) {
        (Some(days), _) => days,
        (None, true) => DEFAULT_DAYS,
        (None, false) => 0,
    };
    let space = project.disk_usage(&run.id);
    let rules = RemovalRules {
        age: DAY.saturating_mul(u32::try_from(days).unwrap_or(u32::MAX)),
        named: !args.runs.is_empty(),
        all: args.all,
        transcripts: args.transcripts,
    };
    let kept = rules.keep(run, project.has_transcripts(&run.id), age);
    let fate = kept.map_or(CleanResult::Removed, CleanResult::Kept);
    let tree = head.and_then(|head| head.settings.worktree.clone());
    CleanEntry {
        run: run.id.clone(),
        state: run.state,
        why: match &run.head {
            Ok(_) => end.map(|end| end.reason.to_string()),
            Err(why) => Some(why.clone()),
        },
        age,
        bytes: match args.transcripts {
            true => space.transcripts,
            false => space.total(),
        },
        transcripts: args.transcripts,
        last,
        tree: tree.filter(|tree| state_dir::is_dir(&tree.path)),
        result: fate,
        is_planned: false,
    }
}

/// Keeps the newest runs of those that would be deleted.
fn keep_newest(plan: &mut [CleanEntry], keep: usize) {
    let mut to_delete: Vec<_> = plan
        .iter_mut()
        .filter(|it| it.result == CleanResult::Removed)
        .collect();
    to_delete.sort_by_key(|it| it.age);
    for it in to_delete.into_iter().take(keep) {
        it.result = CleanResult::Kept(KeepReason::Newest);
    }
}

fn show(plan: &[CleanEntry], json: bool) {
    let mut lines = vec![render::cleaned(plan)];
    if json {
        lines = plan.iter().map(render::json_line).collect();
    }
    // Without a reader the deletion continues.
    let _gone = lines.iter().all(|line| output::line(line));
}

/// Asks a person; without a terminal, requires `--yes`.
pub(super) fn is_confirmed(question: &str) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage(
            "no person can be asked, because standard input is not a terminal: use --yes, or --dry-run to see what would happen",
        ));
    }
    anstream::eprint!("{question}");
    let mut answer = String::new();
    let read = stdin.read_line(&mut answer);
    Ok(read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
