//! The project: a working tree, its state directory `.rlm`, and the directories of the runs in it.

use std::io;
use std::path::{Path, PathBuf};

use crate::git::{Git, worktree};
use crate::{Error, RunId, state_dir, state_directory};

/// The longest accepted `.gitignore` of the state directory; somebody may have added to it.
const LONGEST_IGNORE: u64 = 4096;

/// A working tree and its state directory `.rlm`.
///
/// The state is at the top of the git repository, or in the working directory if there is no repository. A run with its own worktree keeps its state
/// there too.
#[derive(Clone, Debug)]
pub struct Project {
    directory: PathBuf,
    root: PathBuf,
    /// The same as `root`, except for a run with its own worktree.
    tree: PathBuf,
    git: Git,
}

impl Project {
    /// Finds the project of a directory. Writes nothing.
    ///
    /// # Errors
    ///
    /// An error if `directory` can't be entered, its path is not UTF-8, it is in a repository that git refuses because it belongs to another user, or
    /// its `.rlm` belongs to another user.
    pub fn find(directory: &Path) -> Result<Self, Error> {
        let this = Self::find_for_stop(directory)?;
        state_dir::check_owner(&this.root, &this.state_dir()).map_err(Error::other_owner)?;
        Ok(this)
    }

    /// Returns the project with this top, which an earlier process found. Writes nothing, and doesn't ask git, so it is fast for many projects.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find), except the error about the repository.
    pub fn at(root: &Path) -> Result<Self, Error> {
        let root = fs_err::canonicalize(root)
            .and_then(|path| fs_err::read_dir(&path).map(|_| path))
            .and_then(require_utf8)
            .map_err(|e| Error::directory(root, e))?;
        let this = Self {
            directory: root.clone(),
            tree: root.clone(),
            git: Git::at(&root),
            root,
        };
        state_dir::check_owner(&this.root, &this.state_dir()).map_err(Error::other_owner)?;
        Ok(this)
    }

    /// Finds the project of a directory even if its `.rlm` belongs to another user. This is for ending a run by force, where only the locks count,
    /// not the state.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find), without the error about `.rlm`.
    pub fn find_for_stop(directory: &Path) -> Result<Self, Error> {
        let directory = fs_err::canonicalize(directory)
            .and_then(|path| fs_err::read_dir(&path).map(|_| path))
            .and_then(require_utf8)
            .map_err(|e| Error::directory(directory, e))?;
        let git = Git::find(&directory);
        if let Some(why) = git.unusable_reason() {
            return Err(Error::git(&directory, why));
        }
        let tree = git.top().unwrap_or(&directory).to_owned();
        let root = worktree::project_of_worktree(&tree)
            .unwrap_or(&tree)
            .to_owned();
        Ok(Self {
            root,
            directory,
            tree,
            git,
        })
    }

    /// Returns an error if git tracks the state of the project: then the state came with a clone, and no run here created it. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] in that case; the text has the command that fixes it.
    pub fn refuse_tracked_state(&self) -> Result<(), Error> {
        if self.git.top().is_none() || !state_dir::exists(&self.state_dir()) {
            return Ok(());
        }
        let git = self.git.in_tree(&self.root);
        // A git failure is no error here: the commands that need git report it themselves.
        let state = format!(":(top,literal){}", state_directory());
        let tracked = git.query(&["ls-files", "-z", "--cached", "--", &state]);
        match tracked.is_some_and(|tracked| !tracked.is_empty()) {
            true => Err(Error::tracked(&self.root)),
            false => Ok(()),
        }
    }

    pub(crate) fn with_tree(self, tree: PathBuf, git: Git) -> Self {
        Self { tree, git, ..self }
    }

    /// Returns the absolute directory that the project was found from.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the top of the project's own working tree, which has its state and its configuration.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the top of the working tree that the run uses: another one for a run with its own worktree.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Returns the path from the top of the working tree to the directory that the project was found from; empty at the top.
    #[must_use]
    pub fn within(&self) -> &Path {
        let within = self.directory.strip_prefix(&self.tree);
        within.unwrap_or(Path::new(""))
    }

    /// Returns git for this project, so that the caller can register its processes.
    pub fn git_mut(&mut self) -> &mut Git {
        &mut self.git
    }

    /// Returns git for this project. Before that, replaces the `.gitignore` of the state directory if it is a FIFO, on which git would hang, or a
    /// huge file, which git would read as a whole.
    pub fn git(&self) -> &Git {
        if state_dir::exists(&self.ignore_file()) {
            // If this fails, the run ends at its next save.
            let _stays = self.ignore_state();
        }
        &self.git
    }

    fn ignore_file(&self) -> PathBuf {
        self.state_dir().join(".gitignore")
    }

    /// Adds the state directory's `.gitignore`.
    fn ignore_state(&self) -> io::Result<()> {
        let ignore = self.ignore_file();
        match state_dir::open_bounded(&ignore, LONGEST_IGNORE) {
            Ok(_) => Ok(()),
            Err(_) => state_dir::replace(&ignore, b"*\n"),
        }
    }

    /// Returns the directory with one directory for each run.
    pub(crate) fn runs_dir(&self) -> PathBuf {
        self.state_dir().join("runs")
    }

    /// Returns the directory of one run.
    #[must_use]
    pub fn run_dir(&self, run: &RunId) -> PathBuf {
        self.runs_dir().join(run.as_str())
    }

    /// Returns the state directory `.rlm`.
    pub fn state_dir(&self) -> PathBuf {
        self.root.join(state_directory())
    }

    /// Creates the state directory, private and ignored by git.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        let state = self.state_dir();
        let fail = |e| Error::io("can't store state in", &state, e);
        state_dir::make_private_directory(&state).map_err(fail)?;
        state_dir::make_private_directory(&self.runs_dir()).map_err(fail)?;
        self.ignore_state().map_err(fail)
    }
}

/// Returns an error if a saved state, a prompt or git can't represent the path.
fn require_utf8(path: PathBuf) -> io::Result<PathBuf> {
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(io::Error::other("its path is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn x117g_non_utf_8_directory_is_refused_before_anything_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(OsStr::from_bytes(b"caf\xe9"));
        if fs_err::create_dir(&odd).is_err() {
            println!("skipped: this file system accepts only UTF-8 names");
            return;
        }
        let refused = Project::find(&odd).unwrap_err().to_string();
        assert!(refused.contains("its path is not UTF-8"), "{refused}");
    }
}
