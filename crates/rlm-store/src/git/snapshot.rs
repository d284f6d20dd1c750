//! The changes of an iteration: the working tree as a git tree before and after it, and the difference of the two.
//!
//! A working tree without changes is the tree of its commit. Otherwise the changed files are added to a copy of the index, and their objects go into a
//! directory of the run. So neither the index nor the objects of the repository change.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::changes::{Changes, compare};
use super::commit::CommitPlan;
use super::run::{GitCall, GitText, Hooks, INDEX, QUERY_TIMEOUT, TOO_MUCH, run_up_to_limit};
use super::{Git, GitError, is_object_name};
use crate::state_dir;

/// The directory of the snapshots in the directory of a run.
const FOLDER: &str = "snapshots";
/// The largest number of changed files in a snapshot, and their largest total size in bytes. With more, there is none: an iteration must not wait for
/// the hashing of files that belong into `.gitignore`.
const MAX_FILES: usize = 5_000;
const MAX_BYTES: u64 = 64 << 20;
/// The limit for each call of git with the objects of a snapshot: a filter of the repository can hang.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
impl Git {
    /// Returns the changes since the snapshot `before`, and the new snapshot. Without `before`, or if its objects are gone, there are no changes to
    /// report. Blocks.
    ///
    /// # Errors
    ///
    /// An error if git fails, or if the changed files are too many or too large. [`GitError::TimedOut`] if git doesn't list these files within 2 s or
    /// store and compare them within 10 s each; later calls then fail at once, because a run must not wait for git after each iteration.
    pub fn changes_since(
        &self,
        before: Option<&str>,
        run_dir: &Path,
    ) -> Result<(Option<Changes>, String), GitError> {
        if self.is_unresponsive.load(Ordering::Relaxed) {
            return Err(GitError::TimedOut(QUERY_TIMEOUT));
        }
        let changes = self.take_snapshot(before, run_dir);
        let is_late = matches!(changes, Err(GitError::TimedOut(_)));
        self.is_unresponsive.fetch_or(is_late, Ordering::Relaxed);
        changes
    }

    fn take_snapshot(
        &self,
        before: Option<&str>,
        run_dir: &Path,
    ) -> Result<(Option<Changes>, String), GitError> {
        let top = self.top().ok_or_else(GitError::not_a_repository)?;
        let folder = run_dir.join(FOLDER);
        let plan = self.plan_within(QUERY_TIMEOUT)?;
        let commit = plan.before.clone().filter(|_| plan.is_empty());
        if let Some(commit) = &commit
            && before.is_none_or(|before| before == commit)
        {
            // The repository has all objects of both, so this saves two directories and a process.
            remove_snapshots(&folder, None);
            return Ok((before.map(|_| Changes::default()), commit.clone()));
        }
        let store = ObjectStore::new(self, top, &folder)?;
        let after = match commit {
            Some(commit) => commit,
            None => self.store_tree(&plan, &store)?,
        };
        let changes = match before {
            Some(before) if before == after => Some(Changes::default()),
            Some(before) if is_object_name(before) => match store.changes(before, &after) {
                Err(e @ GitError::TimedOut(_)) => return Err(e),
                // The objects of the old snapshot can be gone, for example after a transfer of the run.
                changes => changes.ok(),
            },
            _ => None,
        };
        remove_snapshots(&folder, Some(&store.own));
        Ok((changes, after))
    }

    /// Stores the working tree as a tree, without the files that no commit of a run includes.
    fn store_tree(&self, plan: &CommitPlan, store: &ObjectStore<'_>) -> Result<String, GitError> {
        let (files, bytes) = plan.size(store.top);
        if files > MAX_FILES || bytes > MAX_BYTES {
            return Err(GitError::Failed(TOO_MUCH.into()));
        }
        self.copy_index(&store.index).map_err(GitError::Failed)?;
        let paths = plan.paths.iter().map(String::as_str);
        store.git(&{ ["add", "--all", "--"].into_iter().chain(paths) }.collect::<Vec<_>>())?;
        store.git(&["write-tree"])
    }
}

/// The objects of one new snapshot, and git with this store.
struct ObjectStore<'a> {
    git: &'a Git,
    top: &'a Path,
    /// The directory of the new snapshot.
    own: PathBuf,
    objects: PathBuf,
    index: PathBuf,
    /// The directories with the objects of the repository and of the earlier snapshot.
    alternates: String,
}

impl<'a> ObjectStore<'a> {
    fn new(git: &'a Git, top: &'a Path, folder: &Path) -> Result<Self, GitError> {
        state_dir::make_private_directory(folder).map_err(GitError::NotRun)?;
        let mut earlier = state_dir::entries(folder).map_err(GitError::NotRun)?;
        earlier.sort();
        let newest = earlier.last().and_then(|path| path.file_name()?.to_str());
        let number = newest.and_then(|name| name.parse::<u64>().ok());
        let number = number.map_or(0, |number| number.wrapping_add(1));
        let own = folder.join(format!("{number:020}"));
        let objects = own.join("objects");
        state_dir::make_private_directory(&own).map_err(GitError::NotRun)?;
        state_dir::make_private_directory(&objects).map_err(GitError::NotRun)?;
        let before = earlier.iter().map(|path| path.join("objects"));
        let all = before.chain([git.places()?.objects.clone()]);
        let all: Vec<String> = all.map(|path| path.display().to_string()).collect();
        Ok(Self {
            git,
            top,
            index: own.join("index"),
            own,
            objects,
            alternates: all.join(":"),
        })
    }

    fn git<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String, GitError> {
        self.git_up_to_limit(arguments)?.whole()
    }

    fn git_up_to_limit<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<GitText, GitError> {
        let environment = [
            (INDEX, self.index.as_os_str()),
            ("GIT_OBJECT_DIRECTORY", self.objects.as_os_str()),
            (
                "GIT_ALTERNATE_OBJECT_DIRECTORIES",
                OsStr::new(&self.alternates),
            ),
        ];
        let private = ["-c", "core.sharedRepository=0600"].map(OsStr::new);
        let arguments = arguments.iter().map(AsRef::as_ref);
        let arguments: Vec<&OsStr> = private.into_iter().chain(arguments).collect();
        let call = GitCall {
            directory: self.top,
            arguments: &arguments,
            environment: &environment,
            hooks: Hooks::Off,
            timeout: SNAPSHOT_TIMEOUT,
        };
        run_up_to_limit(&call, self.git.processes())
    }

    fn changes(&self, before: &str, after: &str) -> Result<Changes, GitError> {
        compare(&|arguments| self.git_up_to_limit(arguments), before, after)
    }
}

/// Removes all snapshots except `newest`.
fn remove_snapshots(folder: &Path, newest: Option<&Path>) {
    for path in state_dir::entries(folder).unwrap_or_default() {
        if Some(path.as_path()) != newest {
            // The next snapshot tries again.
            let _stays = state_dir::remove_tree(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    struct Repository(tempfile::TempDir);

    impl Repository {
        fn new() -> Self {
            let repository = Self(tempfile::tempdir().unwrap());
            repository.git(&["init", "--quiet"]);
            repository.write(".git/info/exclude", ".rlm\n");
            repository
        }

        fn git(&self, arguments: &[&str]) -> String {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
            let mut git = Command::new("git");
            let output = git.args(identity).args(arguments);
            let output = output.current_dir(self.0.path()).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        }

        fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            fs_err::write(self.0.path().join(path), text).unwrap();
        }

        fn commit(&self) {
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--message", "a commit"]);
        }

        fn changes_since(&self, before: Option<&str>) -> (Option<Changes>, String) {
            let run_dir = self.0.path().join(".rlm/runs/r");
            fs_err::create_dir_all(&run_dir).unwrap();
            let git = Git::find(self.0.path());
            git.changes_since(before, &run_dir).unwrap()
        }

        /// Returns the snapshot now, and the changes since `before` as lines.
        fn lines_since(&self, before: &str) -> (String, Vec<String>) {
            let (changes, after) = self.changes_since(Some(before));
            let files = changes.unwrap().files.into_iter();
            let files = files.map(|file| format!("{} {:?}", file.path, file.lines));
            (after, files.collect())
        }
    }

    #[test]
    fn each_iteration_shows_only_its_own_changes() {
        let repository = Repository::new();
        repository.write("a", "1\n2\n");
        repository.write("ignored", "x");
        repository.write(".gitignore", "ignored\n");
        repository.commit();
        let (changes, clean) = repository.changes_since(None);
        assert_eq!(changes, None);
        assert_eq!(clean, repository.git(&["rev-parse", "HEAD"]).trim());

        repository.write("a", "1\n3\n");
        repository.write("new file", "one\n");
        let (first, lines) = repository.lines_since(&clean);
        assert_eq!(lines, ["a Some((1, 1))", "new file Some((1, 0))"]);

        // The next iteration shows neither of them again.
        repository.write("new file", "one\ntwo\n");
        repository.write("picture", b"\0\x01");
        let (second, lines) = repository.lines_since(&first);
        assert_eq!(lines, ["new file Some((1, 0))", "picture None"]);

        // A commit changes no file.
        repository.commit();
        let (third, lines) = repository.lines_since(&second);
        assert_eq!(lines, Vec::<String>::new());
        assert_eq!(third, repository.git(&["rev-parse", "HEAD"]).trim());

        fs_err::remove_file(repository.0.path().join("a")).unwrap();
        let (_, lines) = repository.lines_since(&third);
        assert_eq!(lines, ["a Some((0, 2))"]);
    }

    #[test]
    fn a_snapshot_leaves_the_index_and_the_objects_of_the_repository_alone() {
        let repository = Repository::new();
        repository.write("a", "1\n");
        repository.commit();
        let (_, clean) = repository.changes_since(None);
        repository.write("a", "2\n");
        repository.write("staged", "new\n");
        repository.git(&["add", "staged"]);
        // Git shows a file that was added and then removed as changed.
        repository.write("gone", "x\n");
        repository.git(&["add", "gone"]);
        fs_err::remove_file(repository.0.path().join("gone")).unwrap();
        let seen = || {
            let status = repository.git(&["status", "--porcelain"]);
            status + &repository.git(&["count-objects", "-v"])
        };
        let before = seen();
        let (changed, lines) = repository.lines_since(&clean);
        assert_eq!(lines, ["a Some((1, 1))", "staged Some((1, 0))"]);
        assert_eq!(seen(), before);
        let run_dir = repository.0.path().join(".rlm/runs/r");
        assert_eq!(state_dir::entries(&run_dir.join(FOLDER)).unwrap().len(), 1);
        // The objects of a snapshot can be lost; then there is nothing to compare with.
        fs_err::remove_dir_all(run_dir.join(FOLDER)).unwrap();
        repository.write("a", "3\n");
        let (changes, _) = repository.changes_since(Some(&changed));
        assert_eq!(changes, None);
    }

    #[test]
    fn v7a_minified_file_leaves_the_patches_of_the_other_files() {
        let repository = Repository::new();
        let line = "x".repeat(2 << 20);
        repository.write("bundle.js", &line);
        for n in 1..=5 {
            repository.write(&format!("small{n}"), "one\n");
        }
        repository.commit();
        let (_, before) = repository.changes_since(None);
        repository.write("bundle.js", line + "y");
        for n in 1..=5 {
            repository.write(&format!("small{n}"), "two\n");
        }
        let (changes, _) = repository.changes_since(Some(&before));
        let changes = changes.unwrap();
        let without: Vec<_> = { changes.files.iter() }
            .filter(|file| file.summary.is_some())
            .map(|file| file.path.as_str())
            .collect();
        assert_eq!(without, ["bundle.js"], "{changes}");
        assert_eq!(changes.patch.matches("\n+two").count(), 5, "{changes}");
    }

    #[test]
    fn unchanged_clean_tree_needs_no_snapshot_directory() {
        let repository = Repository::new();
        repository.write("a", "1\n");
        repository.commit();
        let snapshots = || {
            let folder = repository.0.path().join(".rlm/runs/r").join(FOLDER);
            state_dir::entries_if_any(&folder).unwrap().len()
        };
        let (changes, clean) = repository.changes_since(None);
        assert_eq!((changes, snapshots()), (None, 0));
        repository.write("a", "2\n");
        let (changed, _) = repository.lines_since(&clean);
        assert_eq!(snapshots(), 1);
        repository.write("a", "1\n");
        let (again, lines) = repository.lines_since(&changed);
        assert_eq!((again.as_str(), lines.len()), (clean.as_str(), 1));
        let (changes, again) = repository.changes_since(Some(&clean));
        assert_eq!(
            (changes, again, snapshots()),
            (Some(Changes::default()), clean, 0)
        );
    }

    #[test]
    fn hanging_filter_is_waited_for_once() {
        let repository = Repository::new();
        repository.git(&["config", "filter.hangs.clean", "sleep 1000"]);
        repository.write(".gitattributes", "a filter=hangs\n");
        repository.write("a", "1\n");
        let run_dir = repository.0.path().join(".rlm/runs/r");
        fs_err::create_dir_all(&run_dir).unwrap();
        let git = Git::find(repository.0.path());
        let first = git.changes_since(None, &run_dir).unwrap_err();
        assert!(
            matches!(first, GitError::TimedOut(SNAPSHOT_TIMEOUT)),
            "{first}"
        );
        let later = git.changes_since(None, &run_dir).unwrap_err();
        assert!(
            matches!(later, GitError::TimedOut(QUERY_TIMEOUT)),
            "{later}"
        );
    }

    #[test]
    fn an_empty_repository_and_hostile_names_work() {
        let repository = Repository::new();
        let (_, empty) = repository.changes_since(None);
        repository.write("a\nb\t*", "1\n");
        repository.write(":(top)x", "1\n");
        let (_, lines) = repository.lines_since(&empty);
        assert_eq!(lines, [":(top)x Some((1, 0))", "a\nb\t* Some((1, 0))"]);
    }
}
