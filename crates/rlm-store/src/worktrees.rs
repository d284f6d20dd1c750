//! The worktrees of runs: how they are created, found and rolled back.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::git::processes::GitProcesses;
use crate::git::worktree::{PLACE, worktree_of_branch};
use crate::git::{self, COMMAND_TIMEOUT, Git, GitCall, Hooks};
use crate::{Error, Project, RunId, Worktree, WorktreeStatus, runs, state_dir};

/// The time limit for git to fill a worktree.
const CHECKOUT_TIMEOUT: Duration = Duration::from_secs(600);

impl Project {
    /// Creates a worktree for a new run, which commits if `commits` is set. The worktree begins at the current commit, on a new branch `rlm/NAME`.
    /// Returns the worktree and the number of uncommitted files, whose changes are not in it. The worktree also gets the directory that
    /// [`within`](Self::within) returns. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if there is no repository, no commit, or a worktree or branch of that name already exists, and if git fails; others if the
    /// disk fails. Nothing is left in these cases.
    pub fn add_worktree(
        &self,
        name: &RunId,
        run: &RunId,
        commits: bool,
    ) -> Result<(Worktree, usize), Error> {
        let refuse = |why: String| Error::git(self.root(), why);
        if self.git().top().is_none() {
            return Err(refuse(
                "not a git working tree (no repository, or a bare one), so it can't have worktrees: git init, or omit --worktree".into(),
            ));
        }
        if commits {
            self.git().refuse_commits_anywhere().map_err(refuse)?;
        }
        if runs::exists(self, run) {
            return Err(Error::run_exists(run.clone()));
        }
        let Some(base) = self.git().head_commit_now() else {
            return Err(refuse(
                "the repository has no commit yet, so a worktree can't begin: commit something, or omit --worktree".into(),
            ));
        };
        let left = self.git().change_count().unwrap_or(0);
        let hooks = match commits {
            true => Hooks::Run,
            false => Hooks::Off,
        };
        let worktree = self.worktree_at(name, &base, hooks, "--worktree NAME")?;
        let made = worktree.directory(self.within());
        made.inspect_err(|_| self.remove_worktree(&worktree.path, Some(&worktree.branch)))?;
        Ok((worktree, left))
    }

    /// Creates a worktree at a commit, on a new branch `rlm/NAME`; `other` is the option for another name.
    pub(crate) fn worktree_at(
        &self,
        name: &RunId,
        base: &str,
        hooks: Hooks,
        other: &str,
    ) -> Result<Worktree, Error> {
        let refuse = |why: String| Error::git(self.root(), why);
        let (path, branch) = (self.worktree_path(name), format!("rlm/{name}"));
        if state_dir::exists(&path) {
            return Err(refuse(format!(
                "`{}` already exists: choose another {other}, or remove it: git worktree remove {}",
                path.display(),
                path.display()
            )));
        }
        if self
            .git()
            .commit_of(&format!("refs/heads/{branch}"))
            .is_some()
        {
            return Err(refuse(format!(
                "branch {branch} already exists: choose another {other}, or delete it: git branch -D {branch}"
            )));
        }
        let _rollback = GitProcesses::begin_rollback();
        self.check_out(&path, &[], &["-b", &branch], base, hooks)
            .inspect_err(|_| self.remove_worktree(&path, Some(&branch)))?;
        Ok(Worktree {
            path,
            branch,
            base: base.to_owned(),
        })
    }

    /// Returns the path of the worktree with this name.
    pub(crate) fn worktree_path(&self, name: &RunId) -> PathBuf {
        self.state_dir().join(PLACE).join(name.as_str())
    }

    /// Checks out a worktree by git with this configuration.
    pub(crate) fn check_out(
        &self,
        path: &Path,
        configuration: &[&str],
        options: &[&str],
        commit: &str,
        hooks: Hooks,
    ) -> Result<(), Error> {
        self.prepare()?;
        let place = self.state_dir().join(PLACE);
        state_dir::make_private_directory(&place)
            .map_err(|e| Error::io("can't create worktrees in", &place, e))?;
        let mut arguments: Vec<&OsStr> = configuration.iter().map(OsStr::new).collect();
        arguments.extend(["worktree", "add", "--quiet"].map(OsStr::new));
        arguments.extend(options.iter().map(OsStr::new));
        arguments.extend([path.as_os_str(), commit.as_ref()]);
        let call = GitCall {
            directory: self.root(),
            arguments: &arguments,
            environment: &[],
            hooks,
            timeout: CHECKOUT_TIMEOUT,
        };
        let made = git::run_with(&call, self.git().processes.as_ref());
        let refuse = |e| Error::git(self.root(), format!("can't create the worktree: {e}"));
        made.map(drop).map_err(refuse)
    }

    /// Removes a worktree whose creation failed. Git may have written its files already, because it runs the hooks after that. The worktree has only
    /// committed files, so nothing is lost.
    pub(crate) fn remove_worktree(&self, path: &Path, branch: Option<&str>) {
        // The rolled-back command may have been stopped, which must not stop the rollback.
        let rollback = GitProcesses::begin_rollback();
        let processes = rollback.processes();
        let remove: [&OsStr; 4] = [
            "worktree".as_ref(),
            "remove".as_ref(),
            "--force".as_ref(),
            path.as_os_str(),
        ];
        // The worktree or the branch may never have been created.
        let _never_made = git::run(self.root(), &remove, COMMAND_TIMEOUT, processes.as_ref());
        if let Some(branch) = branch {
            let remove = ["branch", "--quiet", "-D", branch];
            let _never_made = git::run(self.root(), &remove, COMMAND_TIMEOUT, processes.as_ref());
        }
    }

    /// Returns the project for a run with this worktree. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if the worktree is missing; the text explains how to restore it.
    pub fn in_worktree(&self, worktree: &Worktree) -> Result<Self, Error> {
        let Worktree { path, branch, .. } = worktree;
        let refuse = |why: String| Err(Error::git(path, why));
        if !path.is_dir() {
            let list = self.git().output(&["worktree", "list", "--porcelain"]);
            let list = list.unwrap_or_default();
            if let Some(there) =
                worktree_of_branch(&list, branch).filter(|it| *it != path && it.is_dir())
            {
                return refuse(format!(
                    "the run's worktree was moved to `{}`: git worktree move {} {}",
                    there.display(),
                    there.display(),
                    path.display()
                ));
            }
            return refuse(format!(
                "the run's worktree is missing, with its uncommitted changes; its commits are on {branch}: git worktree prune; git worktree add {} {branch}",
                path.display()
            ));
        }
        let git = Git::find(path);
        if git.top() != Some(path) {
            return refuse(format!(
                "git no longer knows this worktree: git worktree repair {}",
                path.display()
            ));
        }
        Ok(self.clone().with_tree(path.clone(), git))
    }

    /// Returns the project for a run that works in the project's own working tree.
    #[must_use]
    pub fn in_project_tree(self) -> Self {
        if self.tree() == self.root() {
            return self;
        }
        let root = self.root().to_owned();
        let git = Git::find(&root);
        self.with_tree(root, git)
    }

    /// Returns the run's worktree, if the project was found from within one.
    #[must_use]
    pub fn worktree(&self) -> Option<Worktree> {
        if self.tree() == self.root() {
            return None;
        }
        let branch = self.git().output(&["symbolic-ref", "--short", "HEAD"]);
        Some(Worktree {
            path: self.tree().to_owned(),
            branch: branch.ok()?,
            base: self.git().head_commit_now()?,
        })
    }

    /// Returns the commits and changes of a run's worktree; `None` if git doesn't respond. Blocks for some seconds at most.
    #[must_use]
    pub fn worktree_state(&self, worktree: &Worktree) -> Option<WorktreeStatus> {
        let git = Git::find(&worktree.path);
        let range = format!("{}..refs/heads/{}", worktree.base, worktree.branch);
        let commits = git.query(&["rev-list", "--count", &range])?;
        Some(WorktreeStatus {
            commits: commits.parse().ok()?,
            changed: u32::try_from(git.change_count()?).ok()?,
        })
    }
}
