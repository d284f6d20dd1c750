//! What of a repository goes along with a run that moves, and how it arrives.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::commit::{all_but, names, of_files};
use super::looks::{Looks, Owed};
use super::{Call, Git, Hooks, LIMIT, Refusal, run, run_with};
use crate::state_dir;

/// How long git may take to write, or to read, a whole history.
const HISTORY: Duration = Duration::from_secs(3600);
/// Below which refs stand for a moment what is in a bundle.
const REFS: &str = "refs/rlm/moving";
/// Whoever moves a run commits nothing that stays.
const NOBODY: [&str; 4] = ["-c", "user.name=rlm", "-c", "user.email=rlm@localhost"];
/// Makes git check objects that come from elsewhere.
pub(crate) const STRANGE: [&str; 4] = [
    "-c",
    "fetch.fsckObjects=true",
    "-c",
    "advice.detachedHead=false",
];

/// Where a working tree stands.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) commit: String,
    pub(crate) branch: Option<String>,
    /// What is not committed, if anything, in words.
    pub(crate) uncommitted: Option<String>,
    pub(crate) has_submodules: bool,
}

/// Refs that stand for what is in a bundle. Their drop removes them.
#[derive(Debug)]
#[must_use]
pub(crate) struct Refs {
    top: PathBuf,
    names: Vec<String>,
    owed: Owed,
}

impl Drop for Refs {
    fn drop(&mut self) {
        // What they were made for may have been stopped, which this must not be.
        let looks = self.owed.looks();
        for name in &self.names {
            // One may never have been made; one that stays is seen by nobody.
            let _never_made = run(
                &self.top,
                &["update-ref", "-d", name],
                LIMIT,
                looks.as_ref(),
            );
        }
    }
}

impl Refs {
    fn new(git: &Git, name: &str, with_dirty: bool) -> Result<Self, Refusal> {
        let top = git.top().ok_or_else(Refusal::no_tree)?.to_owned();
        let kinds = ["tip", "dirty"]
            .into_iter()
            .take(1 + usize::from(with_dirty));
        let names = kinds.map(|kind| format!("{REFS}/{name}/{kind}")).collect();
        let owed = Looks::owe();
        Ok(Self { top, names, owed })
    }
}

impl Git {
    /// Says where the working tree stands, or why that can't be taken along, and what to do. Blocks.
    pub(crate) fn stand(&self) -> Result<Stand, String> {
        let said = |e: Refusal| e.to_string();
        let Some(top) = self.top() else {
            return Err(
                "it is no working tree of git, so that its files would not travel: git init, commit, and export again; or --state-only, and copy the files yourself".into(),
            );
        };
        if let Some(what) = self.under_way().map_err(said)? {
            return Err(format!(
                "{what} is under way, which can't be taken along: finish it or abort it"
            ));
        }
        let Some(commit) = self.commit_of("HEAD") else {
            return Err("it has no commit yet, so that its files would not travel: commit them, or --state-only".into());
        };
        let changed = self.changes().map_err(said)?;
        let uncommitted = (!changed.is_empty()).then(|| {
            format!(
                "{} ({})",
                of_files(changed.len(), "not committed"),
                names(top, &changed)
            )
        });
        Ok(Stand {
            commit,
            branch: self
                .answer(&["symbolic-ref", "--quiet", "--short", "HEAD"])
                .ok(),
            uncommitted,
            has_submodules: top.join(".gitmodules").exists(),
        })
    }

    /// Makes a commit of all that is not committed and not ignored, which is on no branch; the index stays as it is. Blocks.
    pub(crate) fn snapshot(&self, before: &str, index: &Path) -> Result<String, String> {
        let said = |e: Refusal| e.to_string();
        let top = self.top().ok_or_else(Refusal::no_tree).map_err(said)?;
        let place = self
            .answer(&["rev-parse", "--git-path", "index"])
            .map_err(said)?;
        // What git knows of the files' times spares it reading all of them.
        state_dir::open(&top.join(place))
            .and_then(|mut from| io::copy(&mut from, &mut state_dir::create_new(index)?))
            .map_err(|e| format!("git's index can't be copied: {e}"))?;
        let environment = [("GIT_INDEX_FILE", index.as_os_str())];
        let looks = self.looks.as_ref();
        let git = |words: &[&str]| {
            let call = Call {
                directory: top,
                arguments: words,
                environment: &environment,
                hooks: Hooks::Off,
                patience: HISTORY,
            };
            run_with(&call, looks).map_err(said)
        };
        let files = all_but(&self.differences().map_err(said)?.written);
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
            "rlm: not committed",
            &tree,
        ];
        git(&[&NOBODY[..], &made].concat())
    }

    /// Writes the history of a commit, and of what was not committed on top of it, into a file. Blocks.
    pub(crate) fn bundle(
        &self,
        name: &str,
        commit: &str,
        dirty: Option<&str>,
        to: &Path,
    ) -> Result<(), String> {
        let said = |e: Refusal| e.to_string();
        if self
            .answer(&["rev-parse", "--is-shallow-repository"])
            .is_ok_and(|it| it == "true")
        {
            return Err("it is a shallow clone, which lacks what others need: git fetch --unshallow, or --state-only".into());
        }
        let top = self.top().ok_or_else(Refusal::no_tree).map_err(said)?;
        let refs = Refs::new(self, name, dirty.is_some()).map_err(said)?;
        for (name, commit) in refs.names.iter().zip(std::iter::once(commit).chain(dirty)) {
            self.answer(&["update-ref", name, commit]).map_err(said)?;
        }
        let mut words: Vec<&OsStr> = ["bundle", "create", "--quiet"].map(OsStr::new).into();
        words.push(to.as_os_str());
        words.extend(refs.names.iter().map(OsStr::new));
        run(top, &words, HISTORY, self.looks.as_ref())
            .map(drop)
            .map_err(said)
    }

    /// Removes the refs of an export or an import that was killed.
    pub(crate) fn remove_moving_refs(&self, name: &str) {
        if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            drop(Refs::new(self, name, true));
        }
    }

    /// Takes the commits of a bundle in, in which they have the name `there`, as `name`. They stay as long as what is returned, and whatever stands on them by then. Blocks.
    pub(crate) fn unbundle(
        &self,
        from: &Path,
        there: &str,
        name: &str,
        commit: &str,
        dirty: Option<&str>,
    ) -> Result<Refs, String> {
        let said = |e: Refusal| e.to_string();
        let refs = Refs::new(self, name, dirty.is_some()).map_err(said)?;
        let mut words: Vec<OsString> = STRANGE.map(OsString::from).into();
        words
            .extend(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"].map(OsString::from));
        words.push(from.into());
        words.extend(
            refs.names
                .iter()
                .map(|here| format!("{}:{here}", here.replacen(name, there, 1)).into()),
        );
        let top = self.top().ok_or_else(Refusal::no_tree).map_err(said)?;
        run(top, &words, HISTORY, self.looks.as_ref())
            .map_err(|e| format!("git does not take its commits: {e}"))?;
        let has = |name: &String, commit: &str| self.commit_of(name).as_deref() == Some(commit);
        let all = std::iter::once(commit).chain(dirty);
        match refs
            .names
            .iter()
            .zip(all)
            .all(|(name, commit)| has(name, commit))
        {
            true => Ok(refs),
            false => Err("it has other commits than it announces".into()),
        }
    }

    /// Runs git on what comes from elsewhere. Blocks, and can take long: a filter runs for each file.
    pub(crate) fn strange(&self, words: &[&str]) -> Result<String, String> {
        let top = self.top().ok_or_else(Refusal::no_tree);
        let words = [&STRANGE[..], words].concat();
        top.and_then(|top| run(top, &words, HISTORY, self.looks.as_ref()))
            .map_err(|e| e.to_string())
    }

    /// Returns whether nothing here is uncommitted. Blocks.
    pub(crate) fn is_clean(&self) -> bool {
        self.changes().is_ok_and(|changes| changes.is_empty())
    }

    /// Returns whether a file lies in the working tree and is not ignored. Blocks.
    pub(crate) fn sees(&self, file: &Path) -> bool {
        let file = fs_err::canonicalize(file);
        let tree = self.top().and_then(|top| fs_err::canonicalize(top).ok());
        let (Ok(file), Some(tree)) = (file, tree) else {
            return false;
        };
        let file = file.strip_prefix(tree).ok().and_then(Path::to_str);
        // It says no by an exit code, and nothing.
        file.is_some_and(|file| {
            self.answer(&["check-ignore", "--quiet", "--", file])
                .is_err()
        })
    }

    /// Returns the branch that is checked out.
    pub(crate) fn branch(&self) -> Option<String> {
        self.answer(&["symbolic-ref", "--quiet", "--short", "HEAD"])
            .ok()
    }

    /// Returns whether one commit is in the history of the other.
    pub(crate) fn is_ancestor(&self, old: &str, new: &str) -> bool {
        self.answer(&["merge-base", "--is-ancestor", old, new])
            .is_ok()
    }
}

/// Refuses what git takes for no name of a branch.
pub(crate) fn check_branch(
    directory: &Path,
    branch: &str,
    looks: Option<&Looks>,
) -> Result<(), String> {
    match run(
        directory,
        &["check-ref-format", "--branch", branch],
        LIMIT,
        looks,
    ) {
        Ok(name) if name.trim() == branch => Ok(()),
        Err(e @ Refusal::Stopped) => Err(e.to_string()),
        _ => Err(format!(
            "it names a branch that is none: `{}`",
            branch.escape_debug()
        )),
    }
}

/// Makes a repository in a directory that has none.
pub(crate) fn init(directory: &Path, branch: &str, looks: Option<&Looks>) -> Result<(), String> {
    let words = ["init", "--quiet", "--template=", "--initial-branch", branch];
    run(directory, &words, LIMIT, looks)
        .map(drop)
        .map_err(|e| e.to_string())
}
