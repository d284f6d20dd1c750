//! Where the parts of a repository are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::processes::GitProcesses;
use super::run::{GitError, run};

/// A flag that git doesn't know, and so prints as it is: it separates the paths, which can contain line breaks.
const BETWEEN: &str = "--next-place";

/// Where the parts of a repository are. No part moves while this program runs, so git is asked once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The top of the working tree.
    pub(super) top: PathBuf,
    /// Git's directory for this working tree.
    pub(super) git_dir: PathBuf,
    /// The objects of the repository.
    pub(super) objects: PathBuf,
    /// The index of this working tree.
    pub(super) index: PathBuf,
}

impl Places {
    /// Asks git for the repository that contains `directory`. Blocks.
    pub(super) fn find(
        directory: &Path,
        limit: Duration,
        processes: Option<&GitProcesses>,
    ) -> Result<Self, GitError> {
        let question = [
            "rev-parse",
            "--show-toplevel",
            BETWEEN,
            "--absolute-git-dir",
            BETWEEN,
            "--git-path",
            "objects",
            BETWEEN,
            "--git-path",
            "index",
        ];
        let answer = run(directory, &question, limit, processes)?;
        Self::read(directory, &answer)
            .ok_or_else(|| GitError::Failed("git names no place of the repository".into()))
    }

    /// Reads git's answer in `directory`, to which git's paths can be relative.
    fn read(directory: &Path, answer: &str) -> Option<Self> {
        let separator = format!("\n{BETWEEN}\n");
        let mut paths = answer.split(&separator).map(|path| directory.join(path));
        Some(Self {
            top: paths.next()?,
            git_dir: paths.next()?,
            objects: paths.next()?,
            index: paths.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::run::COMMAND_TIMEOUT;
    use super::*;

    fn git(directory: &Path, arguments: &[&str]) {
        let name = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
        let arguments = name.iter().chain(arguments);
        let mut git = Command::new("git");
        let status = git.current_dir(directory).args(arguments).status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn places_are_found_below_the_top_and_in_a_path_with_a_line_break() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (top, below) = (place.join("a\nb"), place.join("a\nb/c"));
        fs_err::create_dir_all(&below).unwrap();
        git(&top, &["init", "-q"]);
        let found = Places::find(&below, COMMAND_TIMEOUT, None).unwrap();
        assert_eq!(
            (found.top, &found.git_dir),
            (top.clone(), &top.join(".git"))
        );
        let same =
            |one: &Path, other: &Path| one.canonicalize().unwrap() == other.canonicalize().unwrap();
        assert!(same(&found.objects, &top.join(".git/objects")));
        assert_eq!(found.index.file_name(), Some("index".as_ref()));
    }

    #[test]
    fn index_of_a_worktree_is_its_own_and_the_objects_are_shared() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let top = place.join("top");
        fs_err::create_dir(&top).unwrap();
        git(&top, &["init", "-q"]);
        git(&top, &["commit", "-q", "--allow-empty", "-m", "a"]);
        git(&top, &["worktree", "add", "-q", "../other"]);
        let found = Places::find(&place.join("other"), COMMAND_TIMEOUT, None).unwrap();
        let own = top.join(".git/worktrees/other");
        let expected = Places {
            top: place.join("other"),
            index: own.join("index"),
            git_dir: own,
            objects: top.join(".git/objects"),
        };
        assert_eq!(found, expected);
    }
}
