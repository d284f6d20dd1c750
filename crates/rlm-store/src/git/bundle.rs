//! The git part of a transfer: exports the history and the uncommitted changes, and adds them to the repository at the destination.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::commit::{names, of_files, pathspec_without};
use super::processes::{GitProcesses, Rollback};
use super::run::INDEX;
use super::{COMMAND_TIMEOUT, Git, GitCall, GitError, Hooks, run, run_with};
use crate::state_dir;

/// The time limit for git to write or read a whole history.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(3600);
/// The prefix of the temporary refs to the contents of a bundle.
const REFS: &str = "refs/rlm/transfer";
/// A transfer makes only temporary commits, so it needs no real author.
const TEMPORARY_AUTHOR: [&str; 4] = ["-c", "user.name=rlm", "-c", "user.email=rlm@localhost"];
/// Options by which git checks objects from elsewhere.
pub(crate) const UNTRUSTED_OPTIONS: [&str; 4] = [
    "-c",
    "fetch.fsckObjects=true",
    "-c",
    "advice.detachedHead=false",
];

/// The commit and the branch of a working tree, and its uncommitted files.
#[derive(Debug)]
pub(crate) struct CheckoutState {
    pub(crate) commit: String,
    pub(crate) branch: Option<String>,
    /// The uncommitted files as a text, if there are any.
    pub(crate) uncommitted: Option<String>,
    pub(crate) has_submodules: bool,
}

/// The temporary refs to the contents of a bundle. Dropping them removes them.
#[derive(Debug)]
#[must_use]
pub(crate) struct TemporaryRefs {
    top: PathBuf,
    names: Vec<String>,
    rollback: Rollback,
}

impl Drop for TemporaryRefs {
    fn drop(&mut self) {
        // The command that created them may have been stopped, which must not stop their removal.
        let processes = self.rollback.processes();
        for name in &self.names {
            // A ref may never have been created; a ref that stays is harmless.
            let _never_made = run(
                &self.top,
                &["update-ref", "-d", name],
                COMMAND_TIMEOUT,
                processes.as_ref(),
            );
        }
    }
}

impl TemporaryRefs {
    fn new(git: &Git, name: &str, with_dirty: bool) -> Result<Self, GitError> {
        let top = git.top().ok_or_else(GitError::not_a_repository)?.to_owned();
        let kinds = ["tip", "dirty"]
            .into_iter()
            .take(1 + usize::from(with_dirty));
        let names = kinds.map(|kind| format!("{REFS}/{name}/{kind}")).collect();
        let rollback = GitProcesses::begin_rollback();
        Ok(Self {
            top,
            names,
            rollback,
        })
    }
}

impl Git {
    /// Returns the commit, the branch and the uncommitted files of the working tree; an error with the fix if it can't be transferred. Blocks.
    pub(crate) fn checkout_state(&self) -> Result<CheckoutState, String> {
        let text = |e: GitError| e.to_string();
        let Some(top) = self.top() else {
            return Err(
                "not a git working tree, so its files can't be exported: git init, commit, and export again; or use --state-only, and copy the files yourself".into(),
            );
        };
        if let Some(what) = self.operation_in_progress().map_err(text)? {
            return Err(format!(
                "the repository is in the middle of {what}, which can't be exported: finish it or abort it"
            ));
        }
        let Some(commit) = self.commit_of("HEAD") else {
            return Err("the repository has no commit yet, so its files can't be exported: commit them, or use --state-only".into());
        };
        let changed = self.changes().map_err(text)?;
        let uncommitted = (!changed.is_empty()).then(|| {
            format!(
                "{} ({})",
                of_files(changed.len(), "not committed"),
                names(top, &changed)
            )
        });
        Ok(CheckoutState {
            commit,
            branch: self
                .output(&["symbolic-ref", "--quiet", "--short", "HEAD"])
                .ok(),
            uncommitted,
            has_submodules: top.join(".gitmodules").exists(),
        })
    }

    /// Creates a commit of everything that is uncommitted and not ignored, without a branch; the index stays unchanged. Blocks.
    pub(crate) fn snapshot(&self, before: &str, index: &Path) -> Result<String, String> {
        let text = |e: GitError| e.to_string();
        let top = self
            .top()
            .ok_or_else(GitError::not_a_repository)
            .map_err(text)?;
        self.copy_index(index)?;
        let environment = [(INDEX, index.as_os_str())];
        let processes = self.processes.as_ref();
        let git = |words: &[&str]| {
            let call = GitCall {
                directory: top,
                arguments: words,
                environment: &environment,
                hooks: Hooks::Off,
                timeout: HISTORY_TIMEOUT,
            };
            run_with(&call, processes).map_err(text)
        };
        let files = pathspec_without(&self.differences().map_err(text)?.written);
        let files = files.iter().map(String::as_str);
        git(&["add", "--all", "--"]
            .into_iter()
            .chain(files)
            .collect::<Vec<_>>())?;
        let tree = git(&["write-tree"])?;
        let made = [
            "commit-tree",
            "-p",
            before,
            "-m",
            "rlm: uncommitted changes",
            &tree,
        ];
        git(&[&TEMPORARY_AUTHOR[..], &made].concat())
    }

    /// Copies git's index to a new file. The copy has the stored times of the files, so that git doesn't read all files again. It also has the time
    /// of the index itself: git reads a file again if it changed at that time or later, because the stored times can't show such a change. A
    /// repository without an index has no files in it, and there is no copy. Blocks.
    pub(super) fn copy_index(&self, to: &Path) -> Result<(), String> {
        let index = &self.places().map_err(|e| e.to_string())?.index;
        let copy = |mut from: File| {
            let mut copy = state_dir::create_new(to)?;
            io::copy(&mut from, &mut copy)?;
            copy.set_modified(from.metadata()?.modified()?)
        };
        match state_dir::open(index) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            from => from.and_then(copy),
        }
        .map_err(|e| format!("can't copy git's index: {e}"))
    }

    /// Writes the history of a commit, and the uncommitted changes on top of it, to a file. Blocks.
    pub(crate) fn bundle(
        &self,
        name: &str,
        commit: &str,
        dirty: Option<&str>,
        to: &Path,
    ) -> Result<(), String> {
        let text = |e: GitError| e.to_string();
        if self
            .output(&["rev-parse", "--is-shallow-repository"])
            .is_ok_and(|it| it == "true")
        {
            return Err("the repository is a shallow clone without the full history: git fetch --unshallow, or use --state-only".into());
        }
        let top = self
            .top()
            .ok_or_else(GitError::not_a_repository)
            .map_err(text)?;
        let refs = TemporaryRefs::new(self, name, dirty.is_some()).map_err(text)?;
        for (name, commit) in refs.names.iter().zip(std::iter::once(commit).chain(dirty)) {
            self.output(&["update-ref", name, commit]).map_err(text)?;
        }
        let mut words: Vec<&OsStr> = ["bundle", "create", "--quiet"].map(OsStr::new).into();
        words.push(to.as_os_str());
        words.extend(refs.names.iter().map(OsStr::new));
        run(top, &words, HISTORY_TIMEOUT, self.processes.as_ref())
            .map(drop)
            .map_err(text)
    }

    /// Writes the history of a commit without that of `since` to a file. Returns `false`, without a file, if that leaves no commit. In the bundle, the
    /// ref of the commit has the commit as its name. Blocks.
    pub(crate) fn bundle_since(
        &self,
        commit: &str,
        since: Option<&str>,
        to: &Path,
    ) -> Result<bool, String> {
        if since.is_some_and(|since| self.is_ancestor(commit, since)) {
            return Ok(false);
        }
        let Some(since) = since else {
            return self.bundle(commit, commit, None, to).map(|()| true);
        };
        let text = |e: GitError| e.to_string();
        let top = self.top().ok_or_else(GitError::not_a_repository);
        let top = top.map_err(text)?;
        let refs = TemporaryRefs::new(self, commit, false).map_err(text)?;
        let without = format!("^{since}");
        let mut words: Vec<&OsStr> = ["bundle", "create", "--quiet"].map(OsStr::new).into();
        words.push(to.as_os_str());
        for name in &refs.names {
            self.output(&["update-ref", name, commit]).map_err(text)?;
            words.push(OsStr::new(name));
        }
        words.push(OsStr::new(&without));
        run(top, &words, HISTORY_TIMEOUT, self.processes.as_ref())
            .map(|_| true)
            .map_err(text)
    }

    /// Removes the refs of a killed export or import.
    pub(crate) fn remove_transfer_refs(&self, name: &str) {
        if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            drop(TemporaryRefs::new(self, name, true));
        }
    }

    /// Fetches the commits of a bundle. Their refs are named `there` in the bundle, and `name` here. Git keeps the commits while the returned refs
    /// exist, or other refs lead to them. Blocks.
    pub(crate) fn unbundle(
        &self,
        from: &Path,
        there: &str,
        name: &str,
        commit: &str,
        dirty: Option<&str>,
    ) -> Result<TemporaryRefs, String> {
        let text = |e: GitError| e.to_string();
        let refs = TemporaryRefs::new(self, name, dirty.is_some()).map_err(text)?;
        let mut words: Vec<OsString> = UNTRUSTED_OPTIONS.map(OsString::from).into();
        words
            .extend(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"].map(OsString::from));
        words.push(from.into());
        words.extend(
            refs.names
                .iter()
                .map(|here| format!("{}:{here}", here.replacen(name, there, 1)).into()),
        );
        let top = self
            .top()
            .ok_or_else(GitError::not_a_repository)
            .map_err(text)?;
        run(top, &words, HISTORY_TIMEOUT, self.processes.as_ref())
            .map_err(|e| format!("git rejects the commits: {e}"))?;
        let has = |name: &String, commit: &str| self.commit_of(name).as_deref() == Some(commit);
        let all = std::iter::once(commit).chain(dirty);
        match refs
            .names
            .iter()
            .zip(all)
            .all(|(name, commit)| has(name, commit))
        {
            true => Ok(refs),
            false => Err("the bundle's commits differ from the manifest".into()),
        }
    }

    /// Runs git on files from elsewhere. Blocks, perhaps for long: a filter runs for each file.
    pub(crate) fn run_untrusted(&self, words: &[&str]) -> Result<String, String> {
        let top = self.top().ok_or_else(GitError::not_a_repository);
        let words = [&UNTRUSTED_OPTIONS[..], words].concat();
        top.and_then(|top| run(top, &words, HISTORY_TIMEOUT, self.processes.as_ref()))
            .map_err(|e| e.to_string())
    }

    /// Returns whether nothing is uncommitted. Blocks.
    pub(crate) fn is_clean(&self) -> bool {
        self.changes().is_ok_and(|changes| changes.is_empty())
    }

    /// Returns whether a file is in the working tree and not ignored. Blocks.
    pub(crate) fn is_tracked_or_new(&self, file: &Path) -> bool {
        let file = fs_err::canonicalize(file);
        let tree = self.top().and_then(|top| fs_err::canonicalize(top).ok());
        let (Ok(file), Some(tree)) = (file, tree) else {
            return false;
        };
        let file = file.strip_prefix(tree).ok().and_then(Path::to_str);
        // Git answers "not ignored" by an exit code without output.
        file.is_some_and(|file| {
            self.output(&["check-ignore", "--quiet", "--", file])
                .is_err()
        })
    }

    pub(crate) fn branch(&self) -> Option<String> {
        self.output(&["symbolic-ref", "--quiet", "--short", "HEAD"])
            .ok()
    }

    /// Returns whether the commit `old` is in the history of `new`.
    pub(crate) fn is_ancestor(&self, old: &str, new: &str) -> bool {
        self.output(&["merge-base", "--is-ancestor", old, new])
            .is_ok()
    }
}

/// Returns an error if git rejects the name as a branch.
pub(crate) fn check_branch(
    directory: &Path,
    branch: &str,
    processes: Option<&GitProcesses>,
) -> Result<(), String> {
    match run(
        directory,
        &["check-ref-format", "--branch", branch],
        COMMAND_TIMEOUT,
        processes,
    ) {
        Ok(name) if name.trim() == branch => Ok(()),
        Err(e @ GitError::Stopped) => Err(e.to_string()),
        _ => Err(format!("invalid branch name: `{}`", branch.escape_debug())),
    }
}

/// Creates a repository in a directory without one.
pub(crate) fn init(
    directory: &Path,
    branch: &str,
    processes: Option<&GitProcesses>,
) -> Result<(), String> {
    let words = ["init", "--quiet", "--template=", "--initial-branch", branch];
    run(directory, &words, COMMAND_TIMEOUT, processes)
        .map(drop)
        .map_err(|e| e.to_string())
}
