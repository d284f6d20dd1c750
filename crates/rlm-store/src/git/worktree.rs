//! The worktrees of runs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, state_dir, state_directory};

/// The directory of the runs' worktrees in the state directory.
pub(crate) const PLACE: &str = "worktrees";

/// A run's own worktree, in the state directory of its project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The absolute path of the worktree.
    pub path: PathBuf,
    /// The branch of the worktree.
    pub branch: String,
    /// The commit at which that branch begins.
    pub base: String,
}

/// The state of a run's worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorktreeStatus {
    /// The number of commits on its branch since the worktree began.
    pub commits: u32,
    /// The number of uncommitted files in it.
    pub changed: u32,
}

/// Returns the project of a run's worktree; `None` for other directories.
pub(crate) fn project_of_worktree(tree: &Path) -> Option<&Path> {
    let state = tree.parent().filter(|it| it.ends_with(PLACE))?.parent()?;
    let is_state = state.file_name() == Some(state_directory().as_ref());
    let root = state.parent().filter(|_| is_state)?;
    state_dir::is_dir(&state.join("runs")).then_some(root)
}

/// Returns the worktrees of runs in this state directory.
pub(crate) fn all(state: &Path) -> Vec<PathBuf> {
    let mut paths = state_dir::entries(&state.join(PLACE)).unwrap_or_default();
    paths.retain(|path| state_dir::is_dir(path));
    paths
}

impl Worktree {
    /// Returns the directory at this path in the worktree. Creates it if the commit doesn't have it, because git stores no empty directories.
    pub(crate) fn directory(&self, within: &Path) -> Result<PathBuf, Error> {
        let mut directory = self.path.clone();
        let mut make = |name| {
            directory.push(name);
            // A commit may have a link there, which would lead the agent out of the worktree.
            match state_dir::exists(&directory) {
                true => state_dir::open_directory(&directory).map(drop),
                false => state_dir::make_private_directory(&directory),
            }
        };
        let made = within.iter().try_for_each(&mut make);
        // `join` with an empty path would add a slash to the worktree's path.
        let directory: PathBuf = self.path.iter().chain(within).collect();
        made.map_err(|e| Error::io("can't create directory", &directory, e))?;
        Ok(directory)
    }
}

/// Finds the path at which git has a branch checked out.
pub(crate) fn worktree_of_branch<'a>(list: &'a str, branch: &str) -> Option<&'a Path> {
    let full = format!("branch refs/heads/{branch}");
    let mut blocks = list.split("\n\n");
    let block = blocks.find(|block| block.lines().any(|line| line == full))?;
    block
        .lines()
        .next()?
        .strip_prefix("worktree ")
        .map(Path::new)
}
