//! Working trees of a run's own.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, state_dir};

/// Where the working trees of runs lie below the state directory.
pub(crate) const PLACE: &str = "worktrees";

/// A working tree of a run's own, below the state directory of its project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// Where it lies; absolute.
    pub path: PathBuf,
    /// The branch that was made for it.
    pub branch: String,
    /// The commit from which that branch begins.
    pub base: String,
}

/// How a run's own working tree stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorktreeState {
    /// How many commits its branch has over the commit it began from.
    pub commits: u32,
    /// How many files in it are not committed.
    pub changed: u32,
}

/// Returns the project to which a working tree of a run belongs, if it is one.
pub(crate) fn home(tree: &Path) -> Option<&Path> {
    let state = tree.parent().filter(|it| it.ends_with(PLACE))?.parent()?;
    let is_state = state.file_name() == Some(".rlm".as_ref());
    let root = state.parent().filter(|_| is_state)?;
    state_dir::is_dir(&state.join("runs")).then_some(root)
}

/// Returns the working trees of runs that lie in this state directory.
pub(crate) fn all(state: &Path) -> Vec<PathBuf> {
    let mut paths = state_dir::entries(&state.join(PLACE)).unwrap_or_default();
    paths.retain(|path| state_dir::is_dir(path));
    paths
}

impl Worktree {
    /// Returns the directory at this place in the tree, and makes it where the commit does not have it: git knows no empty ones.
    pub(crate) fn directory(&self, within: &Path) -> Result<PathBuf, Error> {
        let mut directory = self.path.clone();
        let mut make = |name| {
            directory.push(name);
            // A commit may have a link there, which would lead the agent out of the tree.
            match state_dir::exists(&directory) {
                true => state_dir::open_directory(&directory).map(drop),
                false => state_dir::make_private_directory(&directory),
            }
        };
        let made = within.iter().try_for_each(&mut make);
        // `join` would end the path of the tree itself in a slash.
        let directory: PathBuf = self.path.iter().chain(within).collect();
        made.map_err(|e| Error::io("can't make the directory", &directory, e))?;
        Ok(directory)
    }
}

/// Finds where git has a branch checked out.
pub(crate) fn place_of<'a>(list: &'a str, branch: &str) -> Option<&'a Path> {
    let full = format!("branch refs/heads/{branch}");
    let mut blocks = list.split("\n\n");
    let block = blocks.find(|block| block.lines().any(|line| line == full))?;
    block
        .lines()
        .next()?
        .strip_prefix("worktree ")
        .map(Path::new)
}
