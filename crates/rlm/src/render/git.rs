//! The commits of a run, and the commands for its own worktree.

use std::fmt;

use rlm_store::{Project, RunId, Worktree, WorktreeStatus};
use rlm_terminal::style::{WARNING_STYLE, styled};
use rlm_text::count;
use rlm_text::escape::plain;
use serde_json::{Value, json};

use crate::hint::{program_command, quoted};

/// The number of digits that are shown of a commit.
const SHORT: usize = 12;

/// Returns the line about the files that an iteration changed, with the agent's own summary.
pub(crate) fn changes(files: u32, lines: (u64, u64), summary: Option<&str>) -> String {
    if files == 0 {
        return "changed no files".to_owned();
    }
    let files = count(files as usize, "file", "files");
    // Empty files, or files that are not text.
    let lines = match lines {
        (0, 0) => String::new(),
        (added, removed) => format!(" (+{added} -{removed})"),
    };
    let summary = summary.map(|summary| format!(": {}", plain(summary)));
    format!("changed {files}{lines}{}", summary.unwrap_or_default())
}

/// Returns the line about the commit of an iteration, with the files that it leaves out.
pub(crate) fn committed(iteration: u32, commit: &str, left_out: &[String]) -> String {
    let short: String = commit.chars().take(SHORT).collect();
    let mut text = format!("iteration {iteration} committed: {}", plain(&short));
    if !left_out.is_empty() {
        let out = plain(&left_out.join(", "));
        text.push_str(&format!("; {} {out}", styled(WARNING_STYLE, "left out:")));
    }
    text
}

pub(crate) fn committed_json(iteration: u32, commit: &str, left_out: &[String]) -> Value {
    json!({"event": "iteration_committed", "iteration": iteration, "commit": commit, "left_out": left_out})
}

/// A run's own worktree, and its git status.
#[derive(Debug)]
pub(crate) struct RunWorktree {
    run: RunId,
    tree: Worktree,
    state: Option<WorktreeStatus>,
}

impl RunWorktree {
    /// Reads the status with git, which takes some seconds at most.
    pub(crate) fn of(project: &Project, run: RunId, tree: Worktree) -> Self {
        let state = project.worktree_state(&tree);
        Self { run, tree, state }
    }

    pub(crate) fn json(&self) -> Value {
        let Worktree { path, branch, base } = &self.tree;
        let state = self.state.as_ref();
        json!({
            "path": path,
            "branch": branch,
            "base": base,
            "commits": state.map(|state| state.commits),
            "changed": state.map(|state| state.changed),
        })
    }
}

impl fmt::Display for RunWorktree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worktree { path, branch, .. } = &self.tree;
        let path = plain(&quoted(&path.to_string_lossy()));
        write!(f, "branch {branch}")?;
        let Some(WorktreeStatus { commits, changed }) = self.state else {
            return write!(f, ", in {path}");
        };
        let commits = commits as usize;
        write!(f, " has {}", count(commits, "commit", "commits"))?;
        if changed > 0 {
            let files = count(changed as usize, "file is", "files are");
            write!(f, ", and {files} not committed in {path}")?;
        }
        let (rlm, run) = (program_command(), &self.run);
        if commits > 0 || changed > 0 {
            write!(f, "\n  merge it:  {rlm} merge {run}")?;
        }
        write!(f, "\n  remove it: {rlm} drop {run}")
    }
}

/// Returns the end of the command that removes a run's own branch; `branch` is already quoted. Any other branch belongs to somebody else.
pub(crate) fn remove_branch(branch: &str) -> String {
    let is_own = branch.trim_start_matches('\'').starts_with("rlm/");
    match is_own {
        true => format!(" && git branch -D {branch}"),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_as_far_as_they_are_known() {
        assert_eq!(changes(0, (0, 0), Some("I read")), "changed no files");
        assert_eq!(changes(2, (0, 0), None), "changed 2 files");
        let both = changes(1, (3, 1), Some("I moved it"));
        assert_eq!(both, "changed 1 file (+3 -1): I moved it");
    }

    #[test]
    fn commit_is_reported_with_excluded_files() {
        let shown = committed(3, "0123456789abcdef", &["big\u{1b}[2J.bin (60 MiB)".into()]);
        let shown = anstream::adapter::strip_str(&shown).to_string();
        insta::assert_snapshot!(shown, @r"iteration 3 committed: 0123456789ab; left out: big\u{1b}[2J.bin (60 MiB)");
    }

    #[test]
    fn branch_of_a_person_is_not_suggested_for_deletion() {
        let branches = [
            "rlm/r1",
            "'rlm/a b'",
            "main",
            "'my branch'",
            "feature/rlm/x",
        ];
        let shown = branches.map(remove_branch).join(";");
        assert_eq!(
            shown,
            " && git branch -D rlm/r1; && git branch -D 'rlm/a b';;;"
        );
    }

    #[test]
    fn end_shows_the_work_and_commands_to_merge_or_remove_it() {
        let tree = || Worktree {
            path: "/p/.rlm/worktrees/r1".into(),
            branch: "rlm/r1".into(),
            base: "0123".into(),
        };
        let end = |state| {
            let tree = tree();
            let run = "r1".parse().unwrap();
            RunWorktree { run, tree, state }.to_string()
        };
        let state = |commits, changed| Some(WorktreeStatus { commits, changed });
        let ends = [state(3, 0), state(1, 2), state(0, 1), None].map(end);
        insta::assert_snapshot!(ends.join("\n"), @r"
        branch rlm/r1 has 3 commits
          merge it:  rlm merge r1
          remove it: rlm drop r1
        branch rlm/r1 has 1 commit, and 2 files are not committed in /p/.rlm/worktrees/r1
          merge it:  rlm merge r1
          remove it: rlm drop r1
        branch rlm/r1 has 0 commits, and 1 file is not committed in /p/.rlm/worktrees/r1
          merge it:  rlm merge r1
          remove it: rlm drop r1
        branch rlm/r1, in /p/.rlm/worktrees/r1
        ");
    }
}
