//! The output of `rlm merge` and `rlm drop`.

use std::fmt;

use rlm_store::{Worktree, WorktreeResult};
use rlm_text::count;
use rlm_text::escape::plain;
use serde::Serialize;

use crate::hint::{program_command, quoted};

/// The step of a command with a worktree: its preview or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorktreeStep {
    /// The preview of a merge.
    Merge,
    Merged,
    NothingToMerge,
    /// The preview of a removal.
    Drop,
    Dropped,
}

/// The worktree of a run, and the work in it that is nowhere else.
#[derive(Debug, Serialize)]
pub(crate) struct WorktreeView<'a> {
    pub(crate) step: WorktreeStep,
    pub(crate) run: &'a str,
    pub(crate) worktree: &'a Worktree,
    #[serde(flatten)]
    pub(crate) result: &'a WorktreeResult,
}

impl fmt::Display for WorktreeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            run,
            worktree,
            result,
            ..
        } = self;
        let branch = plain(&worktree.branch);
        let into = result
            .into
            .as_deref()
            .map_or_else(|| "the current commit".into(), plain);
        let (rlm, run) = (program_command(), plain(run));
        let commits = count(result.commits, "commit", "commits");
        match self.step {
            WorktreeStep::Merge if result.commits == 0 => write!(f, "merge {branch} into {into}")?,
            WorktreeStep::Merge => write!(f, "merge {branch} into {into}: {commits}")?,
            WorktreeStep::Merged => {
                return write!(
                    f,
                    "merged {branch} into {into}; to remove its worktree: {rlm} drop {run}"
                );
            }
            WorktreeStep::NothingToMerge => {
                return write!(
                    f,
                    "nothing to merge: {into} has all of {branch}; to remove its worktree: {rlm} drop {run}"
                );
            }
            WorktreeStep::Drop => {
                let path = plain(&quoted(&worktree.path.to_string_lossy()));
                write!(f, "remove the worktree {path}")?;
                if worktree.branch.starts_with("rlm/") {
                    write!(f, " and the branch {branch}")?;
                }
                if result.is_empty() {
                    return write!(f, "; nothing is lost, because {into} has all of it");
                }
                // The branch of a person stays, with its commits.
                let is_lost = result.commits > 0 && worktree.branch.starts_with("rlm/");
                if !is_lost {
                    if result.commits > 0 {
                        write!(f, "; {branch} keeps {commits}")?;
                    }
                    return uncommitted(f, result, ", and lost");
                }
                write!(f, "; lost: {commits} that {into} doesn't have")?;
            }
            WorktreeStep::Dropped => {
                return write!(
                    f,
                    "removed the worktree of run {run}; its state stays: {rlm} status {run}"
                );
            }
        }
        if let Some(changes) = &result.changes {
            write!(f, " ({changes})")?;
        }
        for commit in &result.newest {
            write!(f, "\n  {}", plain(commit))?;
        }
        more(f, result.commits, result.newest.len())?;
        let fate = match self.step {
            WorktreeStep::Merge => "; this commits them on its branch first",
            _ => ", and lost",
        };
        uncommitted(f, result, fate)
    }
}

fn uncommitted(f: &mut fmt::Formatter<'_>, result: &WorktreeResult, fate: &str) -> fmt::Result {
    if result.uncommitted == 0 {
        return Ok(());
    }
    let files = count(result.uncommitted, "file is", "files are");
    write!(f, "\n{files} not committed there{fate}:")?;
    for file in &result.files {
        write!(f, "\n  {}", plain(file))?;
    }
    more(f, result.uncommitted, result.files.len())
}

fn more(f: &mut fmt::Formatter<'_>, all: usize, shown: usize) -> fmt::Result {
    match all - shown {
        0 => Ok(()),
        more => write!(f, "\n  … and {more} more"),
    }
}
