//! Where runs live: a working tree, its state directory `.rlm`, and where in that each run has its files.

use std::io;
use std::path::{Path, PathBuf};

use crate::git::{Git, tree};
use crate::{Error, RunId, state_dir};

/// As long as the state directory's `.gitignore` may be, which somebody may have added to.
const LONGEST_IGNORE: u64 = 4096;

/// A working tree and its state directory `.rlm`.
///
/// The state lies at the top of the git repository, or in the working directory itself where there is none. A run that has a working tree of its own
/// keeps its state there too.
#[derive(Clone, Debug)]
pub struct Project {
    directory: PathBuf,
    root: PathBuf,
    /// The same as `root`, unless it is a run's own.
    tree: PathBuf,
    git: Git,
}

impl Project {
    /// Finds the project of a directory. Writes nothing.
    ///
    /// # Errors
    ///
    /// When `directory` is not a directory that can be entered, its path is not UTF-8, it is in a repository that git does not touch because that
    /// belongs to another user, or its `.rlm` belongs to another user.
    pub fn find(directory: &Path) -> Result<Self, Error> {
        let this = Self::find_to_stop(directory)?;
        state_dir::check_owner(&this.root, &this.state_dir()).map_err(Error::foreign)?;
        Ok(this)
    }

    /// Finds the project of a directory, also where its `.rlm` belongs to another user: to end a run by force, for which the locks count and not the
    /// state.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find), but for `.rlm`.
    pub fn find_to_stop(directory: &Path) -> Result<Self, Error> {
        let directory = fs_err::canonicalize(directory)
            .and_then(|path| fs_err::read_dir(&path).map(|_| path))
            .and_then(in_words)
            .map_err(|e| Error::directory(directory, e))?;
        let git = Git::find(&directory);
        if let Some(why) = git.refusal() {
            return Err(Error::git(&directory, why));
        }
        let tree = git.top().unwrap_or(&directory).to_owned();
        let root = tree::home(&tree).unwrap_or(&tree).to_owned();
        Ok(Self {
            root,
            directory,
            tree,
            git,
        })
    }

    /// Refuses a project whose state git tracks: the state came with a clone, and nobody here made it. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] when it does; the text has the command that ends it.
    pub fn refuse_tracked_state(&self) -> Result<(), Error> {
        if self.git.top().is_none() || !state_dir::exists(&self.state_dir()) {
            return Ok(());
        }
        let git = self.git.at(&self.root);
        // A git that fails is no reason to refuse: the commands that need git report it themselves.
        let tracked = git.ask(&["ls-files", "-z", "--cached", "--", ":(top,literal).rlm"]);
        match tracked.is_some_and(|tracked| !tracked.is_empty()) {
            true => Err(Error::tracked(&self.root)),
            false => Ok(()),
        }
    }

    pub(crate) fn with_tree(self, tree: PathBuf, git: Git) -> Self {
        Self { tree, git, ..self }
    }

    /// Returns the directory that the project was found from, absolute.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the top of the project's own working tree, where its state and its configuration lie.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the top of the working tree that is worked in: another one for a run that has its own.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Returns where in that working tree the project was found from; empty at its top.
    #[must_use]
    pub fn within(&self) -> &Path {
        let within = self.directory.strip_prefix(&self.tree);
        within.unwrap_or(Path::new(""))
    }

    /// Returns git for this project, to say where its commands are known.
    pub fn git_mut(&mut self) -> &mut Git {
        &mut self.git
    }

    /// Returns git for this project. Before that, it replaces a FIFO or a huge file in the place of the state directory's `.gitignore`: git would
    /// wait for the one, and read the other whole.
    pub fn git(&self) -> &Git {
        if state_dir::exists(&self.ignore_file()) {
            // A run that can't replace it ends at its next save.
            let _stays = self.ignore_state();
        }
        &self.git
    }

    fn ignore_file(&self) -> PathBuf {
        self.state_dir().join(".gitignore")
    }

    /// Hides the state directory from git.
    fn ignore_state(&self) -> io::Result<()> {
        let ignore = self.ignore_file();
        match state_dir::open_bounded(&ignore, LONGEST_IGNORE) {
            Ok(_) => Ok(()),
            Err(_) => state_dir::replace(&ignore, b"*\n"),
        }
    }

    /// Returns the directory that holds a directory for each run.
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
        self.root.join(".rlm")
    }

    /// Makes the state directory, private and invisible to git.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        let state = self.state_dir();
        let fail = |e| Error::io("can't keep state in", &state, e);
        state_dir::make_private_directory(&state).map_err(fail)?;
        state_dir::make_private_directory(&self.runs_dir()).map_err(fail)?;
        self.ignore_state().map_err(fail)
    }
}

/// Refuses a path that can't be said in a saved state, in a prompt or to git.
fn in_words(path: PathBuf) -> io::Result<PathBuf> {
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
    fn x117g_a_directory_whose_path_can_not_be_said_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(OsStr::from_bytes(b"caf\xe9"));
        if fs_err::create_dir(&odd).is_err() {
            println!("skipped: this file system takes no name that is not UTF-8");
            return;
        }
        let refused = Project::find(&odd).unwrap_err().to_string();
        assert!(refused.contains("its path is not UTF-8"), "{refused}");
    }
}
