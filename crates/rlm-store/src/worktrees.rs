//! The project with working trees of runs' own: how they are made, found and taken back.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::git::looks::Looks;
use crate::git::tree::{PLACE, place_of};
use crate::git::{self, Call, Git, Hooks, LIMIT};
use crate::{Error, Project, RunId, Worktree, WorktreeState, runs, state_dir};

/// How long git may take to fill a working tree.
const CHECKOUT: Duration = Duration::from_secs(600);
impl Project {
    /// Makes a working tree for a run that is new, and `commits` or does not, from the commit that the present one is based on, on a new branch `rlm/NAME`. Returns it with
    /// the number of files whose changes are not in it, because they are not committed. What is [`within`](Self::within) the present tree is there
    /// too. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] when there is no repository, no commit, or a tree or a branch of that name, and when git fails; others when the disk does.
    /// Then nothing is left.
    pub fn add_worktree(
        &self,
        name: &RunId,
        run: &RunId,
        commits: bool,
    ) -> Result<(Worktree, usize), Error> {
        let refuse = |why: String| Error::git(self.root(), why);
        if self.git().top().is_none() {
            return Err(refuse(
                "it is no working tree of git (no repository, or a bare one), so that it can't have another one: git init, or leave --worktree out".into(),
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
                "it has no commit yet, from which a working tree could begin: commit something, or leave --worktree out".into(),
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

    /// Makes a working tree from a commit, on a new branch `rlm/NAME`; `other` is the option that gives it another name.
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
                "`{}` is there already: choose another {other}, or remove it: git worktree remove {}",
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
                "the branch {branch} is there already: choose another {other}, or delete it: git branch -D {branch}"
            )));
        }
        let _owed = Looks::owe();
        self.check_out(&path, &[], &["-b", &branch], base, hooks)
            .inspect_err(|_| self.remove_worktree(&path, Some(&branch)))?;
        Ok(Worktree {
            path,
            branch,
            base: base.to_owned(),
        })
    }

    /// Returns where the working tree of this name lies.
    pub(crate) fn worktree_path(&self, name: &RunId) -> PathBuf {
        self.state_dir().join(PLACE).join(name.as_str())
    }

    /// Lets git, with this configuration, fill a working tree.
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
            .map_err(|e| Error::io("can't keep working trees in", &place, e))?;
        let mut arguments: Vec<&OsStr> = configuration.iter().map(OsStr::new).collect();
        arguments.extend(["worktree", "add", "--quiet"].map(OsStr::new));
        arguments.extend(options.iter().map(OsStr::new));
        arguments.extend([path.as_os_str(), commit.as_ref()]);
        let call = Call {
            directory: self.root(),
            arguments: &arguments,
            environment: &[],
            hooks,
            patience: CHECKOUT,
        };
        let made = git::run_with(&call, self.git().looks.as_ref());
        let refuse = |e| Error::git(self.root(), format!("no working tree could be made: {e}"));
        made.map(drop).map_err(refuse)
    }

    /// Takes back what git has begun to make: a hook that refuses comes after the tree. Nothing is in it but what was committed.
    pub(crate) fn remove_worktree(&self, path: &Path, branch: Option<&str>) {
        // What is being taken back may have been stopped, which this must not be.
        let owed = Looks::owe();
        let looks = owed.looks();
        let remove: [&OsStr; 4] = [
            "worktree".as_ref(),
            "remove".as_ref(),
            "--force".as_ref(),
            path.as_os_str(),
        ];
        // Either may never have been made.
        let _never_made = git::run(self.root(), &remove, LIMIT, looks.as_ref());
        if let Some(branch) = branch {
            let remove = ["branch", "--quiet", "-D", branch];
            let _never_made = git::run(self.root(), &remove, LIMIT, looks.as_ref());
        }
    }

    /// Returns the project as a run sees it that has this working tree. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] when the working tree is not there any more; the text says how it can be had again.
    pub fn in_worktree(&self, worktree: &Worktree) -> Result<Self, Error> {
        let Worktree { path, branch, .. } = worktree;
        let refuse = |why: String| Err(Error::git(path, why));
        if !path.is_dir() {
            let list = self.git().answer(&["worktree", "list", "--porcelain"]);
            let list = list.unwrap_or_default();
            if let Some(there) = place_of(&list, branch).filter(|it| *it != path && it.is_dir()) {
                return refuse(format!(
                    "the working tree of the run was moved to `{}`: git worktree move {} {}",
                    there.display(),
                    there.display(),
                    path.display()
                ));
            }
            return refuse(format!(
                "the working tree of the run is gone, and what was not committed in it; its commits are on {branch}: git worktree prune; git worktree add {} {branch}",
                path.display()
            ));
        }
        let git = Git::find(path);
        if git.top() != Some(path) {
            return refuse(format!(
                "git does not know this working tree any more: git worktree repair {}",
                path.display()
            ));
        }
        Ok(self.clone().with_tree(path.clone(), git))
    }

    /// Returns the project as a run sees it that works in the project's own working tree.
    #[must_use]
    pub fn in_root(self) -> Self {
        if self.tree() == self.root() {
            return self;
        }
        let root = self.root().to_owned();
        let git = Git::find(&root);
        self.with_tree(root, git)
    }

    /// Returns the run's own working tree that this is, when it was found from within one.
    #[must_use]
    pub fn worktree(&self) -> Option<Worktree> {
        if self.tree() == self.root() {
            return None;
        }
        let branch = self.git().answer(&["symbolic-ref", "--short", "HEAD"]);
        Some(Worktree {
            path: self.tree().to_owned(),
            branch: branch.ok()?,
            base: self.git().head_commit_now()?,
        })
    }

    /// Looks at the working tree of a run; `None` where git does not say. Blocks for some seconds at most.
    #[must_use]
    pub fn worktree_state(&self, worktree: &Worktree) -> Option<WorktreeState> {
        let git = Git::find(&worktree.path);
        let range = format!("{}..refs/heads/{}", worktree.base, worktree.branch);
        let commits = git.ask(&["rev-list", "--count", &range])?;
        Some(WorktreeState {
            commits: commits.parse().ok()?,
            changed: u32::try_from(git.change_count()?).ok()?,
        })
    }
}
