//! Exports a run to one file, so that it can continue elsewhere.
//!
//! # The order of the steps
//!
//! A run must neither be lost nor continue in two places. First the archive is complete and durable under a temporary name, then the run is marked as
//! transferred, then the archive is renamed. After a kill before the mark, the run continues here, and there is no archive. After a kill after the
//! mark, the run is marked here, a person can remove the mark, and the archive has a temporary name. With standard output in place of a file, the end
//! of the archive is written only after the mark: without its end nobody can import the archive.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cancellable_sleep::SleepGate;
use checkpoint_store::Writer;
use loop_state::{Head, TimedInput};
use uuid::Uuid;

use super::archive;
use super::manifest::{self, ArchiveEntry, BUNDLE, FORMAT, GitTip, Manifest};
use super::progress::{Cancel, StagingDirectory, TransferProgress, lock_left, run_cancellable};
use crate::git::own_files::unfinished_archive;
use crate::journal::refuse_claimed;
use crate::runs::{options, refuse_damaged};
use crate::sessions;
use crate::{
    Error, Hint, Project, RunHead, RunId, RunState, Transfer, WorkingTreeLock, runs, state_dir,
    sweep, timestamp, transcript,
};

/// The bytes at the end of an archive on a stream that are held back until the run is marked as transferred.
const HELD_BACK: u64 = 64;
/// The end of the name of an unfinished archive.
const UNFINISHED: &str = ".partial";

/// The options of an export.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Whether the run continues here, so that the exported run is a fork.
    pub copy: bool,
    /// Whether to include the uncommitted changes, which are uncommitted at the destination too.
    pub allow_dirty: bool,
    /// Whether to leave out the git history of the project, because the destination has it already, or gets the files in another way.
    pub state_only: bool,
    /// Whether to export a run that was already transferred.
    pub repeat: bool,
}

/// The destination of an archive.
pub enum ExportTarget {
    /// A new file.
    File(PathBuf),
    /// A stream, such as standard output.
    Stream(Box<dyn Write + Send>),
}

impl fmt::Debug for ExportTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream(..)"),
        }
    }
}

/// An exported run.
#[derive(Debug)]
pub struct Exported {
    /// The id of the run.
    pub run: RunId,
    /// Whether the run continues here.
    pub copy: bool,
    /// The size of the archive in bytes.
    pub bytes: u64,
    /// The commit that its files are based on; `None` without files.
    pub commit: Option<String>,
    /// The branch of the commit.
    pub branch: Option<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Project {
    /// Writes a run, and its git history, to one file, and marks it here as transferred: after that, a resume here must take the run back.
    ///
    /// Ends the survivors of the run's last process first. The archive contains the values of environment variables and similar secrets. It is
    /// as private as the state.
    ///
    /// # Errors
    ///
    /// [`Error::is_held`] if a process works on the run or in its working tree, [`Error::is_usage`] if data would be lost, or the run was already
    /// transferred; others if the archive can't be written. Then there is no archive, and the run is unchanged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel an export that has begun. A cancelled token of the gate ends it early, and it leaves nothing behind.
    pub async fn export(
        &self,
        run: &RunId,
        to: ExportTarget,
        how: ExportOptions,
        gate: &SleepGate,
        progress: TransferProgress,
    ) -> Result<Exported, Error> {
        let entry = self.run(run)?;
        if matches!(entry.state, RunState::Running | RunState::Paused) {
            return Err(Error::run_in_progress(run));
        }
        let head = match entry.head {
            Ok(head) => head,
            Err(why) if entry.state == RunState::Damaged => {
                let problem = format!("is damaged ({why}); see the safe next steps");
                return Err(
                    Error::not_transferable(run, problem).with_hint(Hint::Verify(run.clone()))
                );
            }
            Err(_) => return Err(Error::nothing_saved(run.clone())),
        };
        refuse_transferred(&head, &how)?;
        if !how.copy {
            // The mark of the transfer would not be in the replica.
            refuse_claimed(self, run)?;
        }
        if let ExportTarget::File(path) = &to {
            refuse_existing(path)?;
        }
        if let Some(loss) = entry.loss {
            let problem = format!(
                "has lost data ({loss}), which an import would not report: resume it here first"
            );
            return Err(Error::not_transferable(run, problem).with_hint(Hint::Resume(run.clone())));
        }
        let project = match &head.settings.worktree {
            Some(own) => self.in_worktree(own)?,
            None => self.clone().in_project_tree(),
        };
        let work_tree = WorkingTreeLock::take(&project, run, gate).await?;
        let scope = sweep::scope_in(project.tree(), &head.scope);
        let swept = sweep::sweep(scope).await;
        if let Some(left) = swept.survivors.first() {
            return Err(Error::not_transferable(
                run,
                format!(
                    "has a survivor `{}` (pid {}), which could not be ended: end it",
                    left.name, left.pid
                ),
            ));
        }
        sweep::remove_scratch(&project, run);
        let run = run.clone();
        run_cancellable(&project, gate, move |project, cancel| {
            let _held = work_tree;
            export(project, run, to, &how, cancel, &progress)
        })
        .await
    }
}

fn refuse_transferred(head: &RunHead, how: &ExportOptions) -> Result<(), Error> {
    match &head.transfer {
        Some(transfer) if !how.repeat => Err(Error::transferred(&head.run, &transfer.to)),
        _ => Ok(()),
    }
}

fn refuse_existing(path: &Path) -> Result<(), Error> {
    let why = "already exists: choose another name, or remove it";
    match state_dir::metadata(path) {
        Ok(_) => Err(Error::archive(path, why.into())),
        Err(_) => Ok(()),
    }
}

fn export(
    project: &Project,
    run: RunId,
    to: ExportTarget,
    how: &ExportOptions,
    cancel: &Cancel,
    progress: &TransferProgress,
) -> Result<Exported, Error> {
    let dir = project.run_dir(&run);
    let store = |e| Error::store(&run, "exported", e);
    refuse_damaged(&dir).map_err(|why| {
        let problem =
            format!("is damaged ({why}), so no import would accept it: see the safe next steps");
        Error::not_transferable(&run, problem).with_hint(Hint::Verify(run.clone()))
    })?;
    let (mut writer, loaded) =
        Writer::<RunHead, TimedInput>::open(&dir, options(false)).map_err(store)?;
    let mut head = loaded
        .head
        .ok_or_else(|| runs::nothing_saved(project, &run))?;
    refuse_transferred(&head, how)?;
    let mut notes: Vec<String> = loaded
        .report
        .skipped
        .iter()
        .map(ToString::to_string)
        .collect();
    let scratch = StagingDirectory::new(project)?;
    let bundle = scratch.path().join(BUNDLE);
    let git = match project.git().top().is_none() && how.state_only {
        true => None,
        false => Some(prepare_git_bundle(
            project, &scratch, &bundle, how, &mut notes,
        )?),
    };
    cancel.check()?;
    // A repeated export is the same transfer: the run did not continue in between.
    let transfers = head.transfers + u32::from(!how.copy && head.transfer.is_none());
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        run: run.clone(),
        created: timestamp(SystemTime::now()),
        transfers,
        copy: how.copy,
        root: project.root().display().to_string(),
        tree: project.tree().display().to_string(),
        git,
        files: files(&dir, &head.machine, &bundle, cancel, &mut notes)?,
    };
    let find = |entry: &ArchiveEntry| match entry.name.as_str() {
        BUNDLE => bundle.clone(),
        name => dir.join(manifest::path_in_run(name).expect("each listed file has a path")),
    };
    progress.expect(manifest.total());
    let path = match &to {
        ExportTarget::File(path) => Some(path.clone()),
        ExportTarget::Stream(_) => None,
    };
    let (beside, name) = match &path {
        Some(path) => {
            let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")), path.as_path())
        }
        None => (scratch.path(), Path::new("-")),
    };
    let (partial, file) = Partial::new(beside)?;
    let fail = |e| {
        cancel
            .check()
            .err()
            .unwrap_or_else(|| Error::io("can't write", &partial.0, e))
    };
    let mut file = archive::write(file, &manifest, find, cancel, progress, &partial.0)?;
    file.sync_all().map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let before = (head.transfers, head.transfer.clone());
    let mut mark = |is_transferred: bool| {
        if how.copy {
            return Ok(());
        }
        let (at, to) = (manifest.created, archive_name(name));
        (head.transfers, head.transfer) = match is_transferred {
            true => (transfers, Some(Transfer { at, to })),
            false => before.clone(),
        };
        writer.append(&head, &[]).map(drop).map_err(store)
    };
    let announced = match to {
        ExportTarget::File(path) => {
            cancel.check()?;
            refuse_existing(&path)?;
            mark(true)?;
            let named = state_dir::rename_new(&partial.0, &path);
            // The name exists; if it is not durable yet, the mark shows the intended name.
            named
                .map(|()| drop(state_dir::sync(beside)))
                .map_err(|e| Error::io("can't create", &path, e))
        }
        ExportTarget::Stream(mut stream) => {
            let fail = |e| Error::io("can't write to", "standard output", e);
            file.seek(SeekFrom::Start(0)).map_err(fail)?;
            let held_back = bytes.min(HELD_BACK);
            let mut most = io::Read::by_ref(&mut file).take(bytes - held_back);
            io::copy(&mut most, &mut stream).map_err(fail)?;
            stream.flush().map_err(fail)?;
            cancel.check()?;
            mark(true)?;
            let rest = io::copy(&mut file, &mut stream).and_then(|_| stream.flush());
            rest.map_err(fail)
        }
    };
    if let Err(e) = announced {
        // The archive is incomplete, so the mark returns to its earlier state.
        mark(false)?;
        return Err(e);
    }
    let root = project.clone().in_project_tree();
    if let Some(path) = path.filter(|path| root.git().is_tracked_or_new(path)) {
        let name = path.file_name().unwrap_or_default().display();
        notes.push(format!(
            "{name} is in the working tree, and git does not ignore it: the commits of a run leave it out, other commits may include it"
        ));
    }
    let (commit, branch) = manifest.git.map(|git| (git.commit, git.branch)).unzip();
    Ok(Exported {
        run,
        copy: how.copy,
        bytes,
        commit,
        branch: branch.flatten(),
        notes,
    })
}

/// Prepares the git part; returns an error for files that can't be exported.
fn prepare_git_bundle(
    project: &Project,
    scratch: &StagingDirectory,
    bundle: &Path,
    how: &ExportOptions,
    notes: &mut Vec<String>,
) -> Result<GitTip, Error> {
    let refuse = |why: String| Error::git(project.tree(), why);
    let git = project.git();
    let checkout = git.checkout_state().map_err(refuse)?;
    let mut dirty = None;
    match checkout.uncommitted {
        Some(what) if !how.allow_dirty => {
            return Err(refuse(format!(
                "can't export uncommitted changes: {what}; commit them, or include them with --allow-dirty"
            )));
        }
        Some(what) if how.state_only => notes.push(format!("the export leaves out: {what}")),
        Some(_) => {
            let index = scratch.path().join("index");
            dirty = Some(git.snapshot(&checkout.commit, &index).map_err(refuse)?);
        }
        None => {}
    }
    if checkout.has_submodules {
        notes.push(
            "the export leaves out submodules: the import needs access to their repositories"
                .into(),
        );
    }
    let refs = scratch.id().to_owned();
    if !how.state_only {
        git.bundle(&refs, &checkout.commit, dirty.as_deref(), bundle)
            .map_err(refuse)?;
    }
    Ok(GitTip {
        commit: checkout.commit,
        branch: checkout.branch,
        dirty,
        refs,
    })
}

/// The folders of a run with its store, and the beginnings of their files' names in an archive.
pub(super) const STORE_FOLDERS: [(&str, &str); 2] = [("", "store/"), ("blobs", "store/blobs/")];

/// Lists the files in folders of a run that an archive may have: their names in an archive, and their paths.
pub(super) fn list_files<S: AsRef<str>>(
    dir: &Path,
    folders: impl IntoIterator<Item = (S, S)>,
) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut all = Vec::new();
    for (folder, prefix) in folders {
        let (folder, prefix) = (dir.join(folder.as_ref()), prefix.as_ref());
        let fail = |e| Error::io("can't read", &folder, e);
        for path in state_dir::entries_if_any(&folder).map_err(fail)? {
            let file = path.file_name().and_then(|file| file.to_str());
            let name = file.map(|file| format!("{prefix}{file}"));
            let is_file = state_dir::metadata(&path).map_err(fail)?.is_file();
            let name = name.filter(|name| is_file && manifest::path_in_run(name).is_some());
            if let Some(name) = name.filter(|name| name != BUNDLE) {
                all.push((name, path));
            }
        }
    }
    all.sort();
    Ok(all)
}

/// Lists the files of a run in its directory.
fn files(
    dir: &Path,
    head: &Head,
    bundle: &Path,
    cancel: &Cancel,
    notes: &mut Vec<String>,
) -> Result<Vec<ArchiveEntry>, Error> {
    // An earlier session never continues.
    let session = sessions::current(dir, head).map(|id| format!("{}/{id}", sessions::FOLDER));
    let session = session.map(|path| (path.clone(), path + "/"));
    let more = [(transcript::FOLDER.to_owned(), "transcripts/".to_owned())];
    let mut all = list_files(dir, STORE_FOLDERS)?;
    all.extend(list_files(dir, more.into_iter().chain(session))?);
    if state_dir::is_file(bundle) {
        all.push((BUNDLE.into(), bundle.to_owned()));
    }
    all.sort();
    let mut too_large = BTreeSet::new();
    for (name, path) in &all {
        let Some(id) = manifest::session_of(name) else {
            continue;
        };
        let metadata = state_dir::metadata(path).map_err(|e| Error::io("can't read", path, e))?;
        if metadata.len() > sessions::MAX_BYTES && too_large.insert(id.to_owned()) {
            notes.push(format!(
                "the export leaves out session {id}: it has a file of more than {} bytes",
                sessions::MAX_BYTES
            ));
        }
    }
    all.retain(|(name, _)| !manifest::session_of(name).is_some_and(|id| too_large.contains(id)));
    let entries = all
        .into_iter()
        .map(|(name, path)| archive::entry(name, &path, cancel));
    entries.collect()
}

/// Returns the name of the archive in the mark.
fn archive_name(name: &Path) -> String {
    match name == Path::new("-") {
        true => "-".into(),
        false => std::path::absolute(name)
            .unwrap_or_else(|_| name.into())
            .display()
            .to_string(),
    }
}

/// An unfinished archive. Dropping it removes the file, unless it was renamed.
struct Partial(PathBuf);

impl Partial {
    fn new(beside: &Path) -> Result<(Self, File), Error> {
        Self::sweep(beside);
        let name = format!(
            "{}{}{UNFINISHED}",
            unfinished_archive(),
            Uuid::new_v4().simple()
        );
        let path = beside.join(name);
        let file = state_dir::create_new(&path).map_err(|e| Error::io("can't create", &path, e))?;
        // While the file is locked, no other process removes it. Without support for locks, no process removes it either.
        let _locked = file.try_lock();
        Ok((Self(path), file))
    }

    /// Removes the files of killed exports in this directory.
    fn sweep(beside: &Path) {
        for path in state_dir::entries(beside).unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_partial = name
                .and_then(|name| {
                    name.strip_prefix(&unfinished_archive())?
                        .strip_suffix(UNFINISHED)
                })
                .is_some_and(|id| Uuid::try_parse(id).is_ok());
            if is_partial && lock_left(&path).is_some() {
                // The next sweep tries again.
                let _stays = state_dir::remove_file(&path);
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Usually the file was renamed before.
        let _named = state_dir::remove_file(&self.0);
    }
}
