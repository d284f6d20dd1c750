//! Places the files of an imported run.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::manifest::{BUNDLE, GitTip, Manifest};
use super::progress::StagingDirectory;
use crate::git::bundle::{self, TemporaryRefs};
use crate::git::own_files::is_archive;
use crate::git::processes::GitProcesses;
use crate::git::worktree::Worktree;
use crate::git::{Git, Hooks};
use crate::{Project, RunHead, RunId, state_dir};

/// The place of an imported run's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilesLocation {
    /// In a new repository.
    NewRepository,
    /// In the project's own working tree, which was at the run's commit, or was fast-forwarded to it.
    WorkingTree,
    /// In the run's own worktree.
    Worktree,
    /// The archive did not contain them.
    None,
}

/// The placed files.
pub(super) struct PlacedFiles {
    pub(super) tree: PathBuf,
    pub(super) worktree: Option<Worktree>,
    pub(super) arrival: FilesLocation,
    pub(super) branch: Option<String>,
    pub(super) notes: Vec<String>,
    pub(super) undo: Undo,
    /// The lock of an existing working tree, so that no other run works in it meanwhile.
    pub(super) held: Option<File>,
}

/// The rollback of a change. Dropping it rolls the change back, unless it is disarmed.
#[must_use]
pub(super) struct Undo(Option<Box<dyn FnOnce()>>);

impl Undo {
    /// Creates a rollback; `what` gets a git that still works after a press has ended the import.
    fn by(git: &Git, what: impl FnOnce(&Git) + 'static) -> Self {
        let (git, rollback) = (git.clone(), GitProcesses::begin_rollback());
        Self(Some(Box::new(move || what(&git.for_rollback(&rollback)))))
    }

    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

/// Checks out the files of a run; the error includes the fix. `before` is the marked state of a run that was transferred away and returns.
pub(super) fn place_files(
    project: &Project,
    manifest: &Manifest,
    run: &RunId,
    head: &RunHead,
    before: Option<&RunHead>,
    incoming: &StagingDirectory,
) -> Result<PlacedFiles, String> {
    let at = |tree: &Path, arrival, branch, undo| PlacedFiles {
        tree: tree.to_owned(),
        worktree: None,
        arrival,
        branch,
        notes: Vec::new(),
        undo,
        held: None,
    };
    let Some(tip) = &manifest.git else {
        let mut arrived = at(project.root(), FilesLocation::None, None, Undo(None));
        arrived
            .notes
            .push("the archive does not contain the files: copy them here".into());
        return Ok(arrived);
    };
    let own = || format!("rlm/{run}");
    let branch = tip.branch.clone().unwrap_or_else(own);
    bundle::check_branch(project.root(), &branch, project.git().processes())?;
    let Some(now) = project.git().commit_of("HEAD") else {
        let undo = make(project, manifest, tip, &branch, incoming)?;
        return Ok(at(
            project.root(),
            FilesLocation::NewRepository,
            Some(branch),
            undo,
        ));
    };
    let _refs = match manifest.has_bundle() {
        true => Some(unbundle(project.git(), tip, incoming)?),
        false if project.git().commit_of(&tip.commit).is_some() => None,
        false => {
            return Err(format!(
                "commit {} is missing here: git fetch it from its repository, or export without --state-only",
                tip.commit
            ));
        }
    };
    refuse_state(project.git(), tip)?;
    // The marked state of a returning run shows where its files were.
    let home = before.map(|before| before.settings.worktree.as_ref());
    if let Some(home) = home {
        let tree = home.map_or(project.root(), |own| own.path.as_path());
        if let Some(git) = tree.is_dir().then(|| project.git().in_tree(tree)) {
            let held = lock_tree(tree);
            let is_mine = held.is_some() && git.branch() == tip.branch && git.is_clean();
            let here = git
                .commit_of("HEAD")
                .filter(|here| is_mine && git.is_ancestor(here, &tip.commit));
            if let Some(here) = here {
                let undo = move_tree_to(&git, tree, &here, tip)?;
                let mut arrived = at(tree, FilesLocation::WorkingTree, tip.branch.clone(), undo);
                arrived.worktree = home.cloned();
                arrived.held = held;
                return Ok(arrived);
            }
        }
    }
    let (git, is_root) = (project.git(), project.tree() == project.root());
    let is_at_commit = now == tip.commit && is_root && git.branch() == tip.branch;
    let held = is_at_commit.then(|| lock_tree(project.root())).flatten();
    if held.is_some() && git.is_clean() {
        let undo = move_tree_to(git, project.root(), &now, tip)?;
        let mut arrived = at(
            project.root(),
            FilesLocation::WorkingTree,
            tip.branch.clone(),
            undo,
        );
        arrived.held = held;
        return Ok(arrived);
    }
    tree_of_its_own(project, tip, run, head, branch)
}

fn unbundle(git: &Git, tip: &GitTip, incoming: &StagingDirectory) -> Result<TemporaryRefs, String> {
    let bundle = incoming.path().join(BUNDLE);
    git.unbundle(
        &bundle,
        &tip.refs,
        incoming.id(),
        &tip.commit,
        tip.dirty.as_deref(),
    )
}

/// Fast-forwards a clean working tree from its commit to that of the run.
fn move_tree_to(git: &Git, tree: &Path, here: &str, tip: &GitTip) -> Result<Undo, String> {
    let commits: Vec<String> = tip.dirty.iter().chain([&tip.commit]).cloned().collect();
    for commit in &commits {
        let added = [
            "diff",
            "--name-only",
            "-z",
            "--no-renames",
            "--diff-filter=A",
        ];
        let added = git.run_untrusted(&[&added[..], &[here, commit, "--"]].concat())?;
        let is_there = |name: &&str| fs_err::symlink_metadata(tree.join(name)).is_ok();
        // Git would overwrite an ignored file, and the rollback would remove it.
        if let Some(name) = added.split_terminator('\0').find(is_there) {
            return Err(format!(
                "`{name}` exists here uncommitted, and the run has a different one: move it away, and import again"
            ));
        }
    }
    let before = here.to_owned();
    let undo = Undo::by(git, move |git| {
        // This works even if git checked out only a part of the commit: with this index, git knows all files of the commit, and the reset removes
        // those that did not exist before.
        for commit in commits {
            let _stays = git.run_untrusted(&["read-tree", "-m", "-i", &commit]);
            let _stays = git.run_untrusted(&["reset", "--quiet", "--hard", &before]);
        }
    });
    if here != tip.commit {
        git.run_untrusted(&["merge", "--quiet", "--ff-only", &tip.commit])?;
    }
    take_uncommitted(git, tip)?;
    Ok(undo)
}

/// Creates a repository, or fills one without a commit.
fn make(
    project: &Project,
    manifest: &Manifest,
    tip: &GitTip,
    branch: &str,
    incoming: &StagingDirectory,
) -> Result<Undo, String> {
    let root = project.root().to_owned();
    if !manifest.has_bundle() {
        return Err("the repository has no commits, and the archive was exported with --state-only: clone the repository here first".into());
    }
    let is_new = project.git().top().is_none();
    let others = move |name: &OsStr| name != crate::state_directory() && (is_new || name != ".git");
    let entries = fs_err::read_dir(&root).map_err(|e| e.to_string())?;
    // The archive itself may be in this directory.
    let (archives, more): (Vec<_>, Vec<_>) = { entries.flatten() }
        .filter(|entry| others(&entry.file_name()))
        .partition(|entry| entry.file_name().to_str().is_some() && is_archive(&entry.path()));
    if !more.is_empty() {
        return Err(match is_new {
            true => "the directory is neither empty nor a git repository: import into an empty directory, or into a clone",
            false => "the repository has files and no commit: commit them, or import into an empty directory",
        }
        .into());
    }
    let archives: Vec<_> = archives.iter().map(|it| it.file_name()).collect();
    let head = { (!is_new).then(|| project.git().run_untrusted(&["symbolic-ref", "HEAD"])) }
        .and_then(Result::ok);
    let git = project.git().in_tree(&root);
    let (place, made) = (root.clone(), format!("refs/heads/{branch}"));
    let undo = {
        let (made, archives) = (made.clone(), archives.clone());
        Undo::by(&git, move |back| {
            if let Some(head) = head {
                let _stays = back.run_untrusted(&["symbolic-ref", "HEAD", &head]);
                let _stays = back.run_untrusted(&["update-ref", "-d", &made]);
                let _stays = fs_err::remove_file(place.join(".git/index"));
            }
            // The directory had no other files before, so the import created all of them.
            for entry in fs_err::read_dir(&place).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if others(&name) && !archives.contains(&name) {
                    let path = entry.path();
                    let is_dir = entry.file_type().is_ok_and(|it| it.is_dir());
                    let _stays = if is_dir {
                        fs_err::remove_dir_all(path)
                    } else {
                        fs_err::remove_file(path)
                    };
                }
            }
        })
    };
    if is_new {
        bundle::init(&root, branch, project.git().processes())?;
    } else {
        git.run_untrusted(&["symbolic-ref", "HEAD", &made])?;
    }
    let _refs = unbundle(&git, tip, incoming)?;
    refuse_state(&git, tip)?;
    for name in archives.iter().filter_map(|name| name.to_str()) {
        let found = git.run_untrusted(&["ls-tree", "--name-only", &tip.commit, "--", name])?;
        if !found.is_empty() {
            return Err(format!(
                "`{name}` exists here, and the commits have a different one: move it away"
            ));
        }
    }
    git.run_untrusted(&["reset", "--quiet", "--hard", &tip.commit])?;
    take_uncommitted(&git, tip)?;
    Ok(undo)
}

/// Returns an error if the commits contain files in `.rlm`, which only a local run may have: no export creates such commits.
fn refuse_state(git: &Git, tip: &GitTip) -> Result<(), String> {
    let mut commits = std::iter::once(&tip.commit).chain(&tip.dirty);
    commits.try_for_each(|commit| refuse_state_in(git, commit))
}

/// Returns an error if a commit contains files in `.rlm`.
pub(super) fn refuse_state_in(git: &Git, commit: &str) -> Result<(), String> {
    let state = crate::state_directory();
    let found = git.run_untrusted(&["ls-tree", "--name-only", commit, "--", state])?;
    match found.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "the commits have files in {state}, the state directory; such commits can't be imported"
        )),
    }
}

/// Takes the lock of a working tree, unless another process has it.
fn lock_tree(tree: &Path) -> Option<File> {
    let directory = File::from(state_dir::open_directory(tree).ok()?);
    directory.try_lock().ok().map(|()| directory)
}

/// Applies the uncommitted changes to a working tree at their base commit, and leaves them uncommitted.
fn take_uncommitted(git: &Git, tip: &GitTip) -> Result<(), String> {
    if let Some(dirty) = &tip.dirty {
        git.run_untrusted(&["read-tree", "-m", "-u", &tip.commit, dirty])?;
        git.run_untrusted(&["reset", "--quiet", "--mixed"])?;
    }
    Ok(())
}

/// Checks out the files in a worktree, on the run's branch; if that branch is taken, on a branch with the run's name.
fn tree_of_its_own(
    project: &Project,
    tip: &GitTip,
    run: &RunId,
    head: &RunHead,
    branch: String,
) -> Result<PlacedFiles, String> {
    let git = project.git();
    let full = |branch: &str| format!("refs/heads/{branch}");
    let list = git.run_untrusted(&["worktree", "list", "--porcelain"])?;
    let is_out = |branch: &str| {
        list.lines()
            .any(|line| line == format!("branch {}", full(branch)))
    };
    // A branch that can move to this commit without losing commits.
    let is_fit = |branch: &str| {
        let there = git.commit_of(&full(branch));
        !is_out(branch) && there.is_none_or(|there| git.is_ancestor(&there, &tip.commit))
    };
    let own = format!("rlm/{run}");
    let mut notes = Vec::new();
    let branch = match is_fit(&branch) {
        true => branch,
        false if branch != own && is_fit(&own) => {
            notes.push(format!(
                "branch {branch} is taken here: the run continues on {own}"
            ));
            own
        }
        false => {
            return Err(format!(
                "branch {branch} exists here at another commit: git branch -m {branch} OTHER, and import again"
            ));
        }
    };
    let old = head.settings.worktree.as_ref();
    let name = old.and_then(|own| own.path.file_name()?.to_str()?.parse().ok());
    let path = project.worktree_path(&name.unwrap_or_else(|| run.clone()));
    if path.exists() {
        return Err(format!(
            "`{}` already exists: git worktree remove {}",
            path.display(),
            path.display()
        ));
    }
    let there = git.commit_of(&full(&branch));
    let (undoing, made, place) = (project.clone(), branch.clone(), path.clone());
    let undo = Undo::by(git, move |git| {
        let is_new = there.is_none();
        undoing.remove_worktree(&place, is_new.then_some(made.as_str()));
        if let Some(there) = there {
            let _stays = git.run_untrusted(&["branch", "--force", &made, &there]);
        }
    });
    let option = ["-B", branch.as_str()];
    project
        .check_out(
            &path,
            &bundle::UNTRUSTED_OPTIONS,
            &option,
            &tip.commit,
            Hooks::Off,
        )
        .map_err(|e| e.to_string())?;
    take_uncommitted(&git.in_tree(&path), tip)?;
    let base = old.map(|own| own.base.clone());
    let base = base.filter(|base| git.commit_of(base).is_some());
    let worktree = Worktree {
        path: path.clone(),
        branch: branch.clone(),
        base: base.unwrap_or_else(|| tip.commit.clone()),
    };
    Ok(PlacedFiles {
        tree: path,
        worktree: Some(worktree),
        arrival: FilesLocation::Worktree,
        branch: Some(branch),
        notes,
        undo,
        held: None,
    })
}
