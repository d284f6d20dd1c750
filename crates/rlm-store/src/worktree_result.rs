//! The result of a run that worked in its own worktree: what it is, how it comes home, and how it is dropped.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::git::{self, COMMAND_TIMEOUT, Git, GitCall, GitError, Hooks};
use crate::{Error, Project, Worktree};

/// The maximum number of commits and of files that a result lists.
const MAX_LISTED: usize = 20;
/// The time limit for a merge and for a commit, whose hooks may run tests.
const MERGE_TIMEOUT: Duration = Duration::from_secs(600);

/// The work in a run's worktree that the project's own working tree doesn't have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorktreeResult {
    /// The branch of the project's own working tree; `None` if it has none (a detached HEAD).
    pub into: Option<String>,
    /// The number of commits that are only on the branch of the worktree.
    pub commits: usize,
    /// The newest of these commits: short name and subject; 20 at most.
    pub newest: Vec<String>,
    /// The changed files and lines of these commits, as git counts them; `None` if there are none.
    pub changes: Option<String>,
    /// The number of uncommitted files in the worktree.
    pub uncommitted: usize,
    /// The first of these files; 20 at most.
    pub files: Vec<String>,
}

impl WorktreeResult {
    /// Whether there is nothing to merge and nothing to lose.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commits == 0 && self.uncommitted == 0
    }
}

/// How a merge ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The working tree has the result.
    Yes,
    /// These files conflict. The merge was undone.
    Conflicts(Vec<String>),
}

impl Project {
    /// Returns the work in the worktree that this project's working tree doesn't have. Blocks for some seconds.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if git can't read it: the error has git's reason.
    pub fn worktree_result(&self, worktree: &Worktree) -> Result<WorktreeResult, Error> {
        let (here, there) = (self.git(), Git::find(&worktree.path));
        let branch = format!("refs/heads/{}", worktree.branch);
        if here.commit_of(&branch).is_none() {
            let why = format!(
                "the branch {} is gone: it was removed or renamed",
                worktree.branch
            );
            return Err(Error::git(self.root(), why));
        }
        let only_there = format!("HEAD..{branch}");
        let list = ["log", "--format=%h %s", &only_there];
        let log = here.output(&list).map_err(|e| self.git_error(&e))?;
        let log: Vec<&str> = log.lines().collect();
        let changes = match log.is_empty() {
            true => None,
            false => {
                let range = format!("HEAD...{branch}");
                let stat = here.output(&["diff", "--shortstat", "--no-ext-diff", &range]);
                stat.ok().map(|stat| stat.trim().to_owned())
            }
        };
        let files = match worktree.path.is_dir() {
            true => there.changes().map_err(|e| self.git_error(&e))?,
            false => Vec::new(),
        };
        let owned = |line: &&str| (*line).to_owned();
        Ok(WorktreeResult {
            into: here.branch(),
            commits: log.len(),
            newest: log.iter().take(MAX_LISTED).map(owned).collect(),
            changes: changes.filter(|stat| !stat.is_empty()),
            uncommitted: files.len(),
            files: files
                .into_iter()
                .take(MAX_LISTED)
                .map(|it| it.path)
                .collect(),
        })
    }

    /// Commits the uncommitted files of the worktree on its branch, if there are any, and merges the branch into the branch of this project's working
    /// tree. The hooks of the repository run. After a conflict, the merge is undone; the commit in the worktree stays. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if git refuses, for example because uncommitted changes here are in the way: the error has git's reason, and this working
    /// tree is as before.
    pub fn merge_worktree(&self, worktree: &Worktree, message: &str) -> Result<Merged, Error> {
        let (here, there) = (self.git(), Git::find(&worktree.path));
        if let Some(what) = here
            .operation_in_progress()
            .map_err(|e| self.git_error(&e))?
        {
            let why = format!("the repository is in the middle of {what}: finish or abort it");
            return Err(Error::git(self.root(), why));
        }
        if worktree.path.is_dir() {
            if there.branch().as_ref() != Some(&worktree.branch) {
                let why = format!(
                    "another branch than {0} is checked out there; git switch {0}",
                    worktree.branch
                );
                return Err(Error::git(&worktree.path, why));
            }
            self.commit_rest(&there, &worktree.path, message)?;
        }
        let top = here.top().unwrap_or(self.root());
        let merge = ["merge", "--no-edit", "--quiet", &worktree.branch];
        let Err(refused) = self.with_hooks(top, &merge) else {
            return Ok(Merged::Yes);
        };
        // A conflict, or a hook that failed, leaves a merge in progress.
        let conflicts = ["diff", "--name-only", "--diff-filter=U", "--no-ext-diff"];
        let conflicts = here.output(&conflicts).unwrap_or_default();
        if here
            .operation_in_progress()
            .is_ok_and(|what| what.is_some())
        {
            self.with_hooks(top, &["merge", "--abort"])?;
        }
        match conflicts.is_empty() {
            true => Err(refused),
            false => Ok(Merged::Conflicts(
                conflicts.lines().map(str::to_owned).collect(),
            )),
        }
    }

    /// Removes the worktree with its uncommitted files, and its branch if a run created it (`rlm/…`). Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if git refuses: the error has git's reason.
    pub fn drop_worktree(&self, worktree: &Worktree) -> Result<(), Error> {
        let path = worktree.path.as_os_str();
        let remove: [&OsStr; 4] = [
            "worktree".as_ref(),
            "remove".as_ref(),
            "--force".as_ref(),
            path,
        ];
        let processes = self.git().processes.as_ref();
        let run = |words: &[&OsStr]| {
            git::run(self.root(), words, COMMAND_TIMEOUT, processes)
                .map(drop)
                .map_err(|e| self.git_error(&e))
        };
        match worktree.path.is_dir() {
            true => run(&remove)?,
            false => run(&["worktree".as_ref(), "prune".as_ref()])?,
        }
        if !worktree.branch.starts_with("rlm/") {
            return Ok(());
        }
        let words = ["branch", "--quiet", "-D", &worktree.branch];
        run(&words.map(OsStr::new))
    }

    /// Commits what a commit of the run itself would include: not the archives and reports of `rlm`, which may hold secrets.
    fn commit_rest(&self, git: &Git, tree: &Path, message: &str) -> Result<(), Error> {
        let plan = git.plan().map_err(|e| self.git_error(&e))?;
        if plan.is_empty() {
            return Ok(());
        }
        let paths = plan.paths.iter().map(String::as_str);
        let add: Vec<&str> = ["add", "--all", "--"].into_iter().chain(paths).collect();
        self.with_hooks(tree, &add)?;
        let staged = [
            "diff",
            "--cached",
            "--quiet",
            "--no-ext-diff",
            "--ignore-submodules=none",
        ];
        match git.output(&staged) {
            Ok(_) => Ok(()),
            Err(_) => self.with_hooks(tree, &["commit", "--quiet", "--message", message]),
        }
    }

    fn with_hooks(&self, directory: &Path, words: &[&str]) -> Result<(), Error> {
        let call = GitCall {
            directory,
            arguments: words,
            environment: &[],
            hooks: Hooks::Run,
            timeout: MERGE_TIMEOUT,
        };
        git::run_with(&call, self.git().processes.as_ref())
            .map(drop)
            .map_err(|e| self.git_error(&e))
    }

    fn git_error(&self, error: &GitError) -> Error {
        Error::git(self.root(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(place: &Path, arguments: &[&str]) -> String {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let mut git = Command::new("git");
        let output = git.args(identity).args(arguments).current_dir(place);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(place: &Path, text: &str) {
        fs_err::write(place.join("file"), text).unwrap();
        git(place, &["add", "--all"]);
        git(place, &["commit", "--quiet", "--message", text]);
    }

    /// Makes a repository with one commit, and a worktree on this branch.
    fn with_worktree(branch: &str) -> (tempfile::TempDir, Project, Worktree) {
        let dir = tempfile::tempdir().unwrap();
        let (root, path) = (dir.path().join("root"), dir.path().join("tree"));
        fs_err::create_dir(&root).unwrap();
        git(&root, &["init", "--quiet"]);
        commit(&root, "first");
        let add = ["worktree", "add", "--quiet", "-b", branch];
        git(&root, &[&add[..], &[path.to_str().unwrap()]].concat());
        let base = git(&root, &["rev-parse", "HEAD"]);
        let project = Project::find(&root).unwrap();
        let branch = branch.to_owned();
        (dir, project, Worktree { path, branch, base })
    }

    #[test]
    fn merge_with_conflicts_is_aborted() {
        let (_dir, project, worktree) = with_worktree("rlm/r1");
        commit(&worktree.path, "theirs");
        commit(project.root(), "ours");
        let merged = project.merge_worktree(&worktree, "rest").unwrap();
        assert_eq!(merged, Merged::Conflicts(vec!["file".into()]));
        assert_eq!(project.git().operation_in_progress().unwrap(), None);
        let text = fs_err::read_to_string(project.root().join("file")).unwrap();
        assert_eq!(text, "ours");
    }

    #[test]
    fn dropped_worktree_keeps_a_branch_of_the_user() {
        for (branch, stays) in [("rlm/r1", false), ("mine", true)] {
            let (_dir, project, worktree) = with_worktree(branch);
            project.drop_worktree(&worktree).unwrap();
            assert!(!worktree.path.exists());
            let kept = project.git().commit_of(&format!("refs/heads/{branch}"));
            assert_eq!(kept.is_some(), stays, "{branch}");
        }
    }
}
