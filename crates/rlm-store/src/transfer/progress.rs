//! The common parts of export, import and fork: a cancellable thread, its progress, and the check of the store. Also the staging directory of a run,
//! which is invisible until the run is complete.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cancellable_sleep::SleepGate;
use checkpoint_store::Writer;
use loop_state::TimedInput;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::git::processes::{GitProcesses, OwnedGitProcesses};
use crate::runs::options;
use crate::{Error, Project, RunHead, RunId, state_dir};

/// The progress of an export or an import, shared with its display.
#[derive(Clone, Debug, Default)]
pub struct TransferProgress(Arc<[AtomicU64; 2]>);

impl TransferProgress {
    pub(super) fn add(&self, bytes: u64) {
        self.0[0].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn expect(&self, bytes: u64) {
        self.0[1].store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of finished bytes, and the total; 0 while the total is not known.
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        let [done, all] = &*self.0;
        (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
    }
}

/// The signal to end the work early.
#[derive(Clone, Debug)]
pub(super) struct Cancel(CancellationToken);

impl Cancel {
    /// Returns a signal that is never given.
    pub(super) fn never() -> Self {
        Self(CancellationToken::new())
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        match self.0.is_cancelled() {
            true => Err(Error::stopped()),
            false => Ok(()),
        }
    }
}

/// Runs work on a thread that may block. If the gate's token is cancelled, ends the work's git processes, and the work rolls back its changes.
pub(super) async fn run_cancellable<T: Send + 'static>(
    project: &Project,
    gate: &SleepGate,
    work: impl FnOnce(&Project, &Cancel) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let mut project = project.clone();
    let processes = GitProcesses::of_task();
    project.git_mut().track_processes_in(processes.clone());
    let cancel = Cancel(gate.token().clone());
    let cancelled = gate.token().clone();
    let mut task = tokio::task::spawn_blocking(move || {
        cancel.check()?;
        let done = work(&project, &cancel);
        // After a cancellation, the errors of git are ignored.
        done.map_err(|e| cancel.check().err().unwrap_or(e))
    });
    let done = tokio::select! {
        biased;
        done = &mut task => done,
        () = cancelled.cancelled() => {
            drop(OwnedGitProcesses(processes));
            task.await
        }
    };
    done.expect("the work does not panic")
}

/// The prefix of a staging directory's name.
const INCOMING: &str = "incoming-";
/// The largest number of tries, each with another name, if a sweep removes the new directory before it is locked.
const TRIES: u32 = 3;

/// A directory that becomes a run. Dropping it removes the directory, unless it became a run.
#[derive(Debug)]
#[must_use]
pub(super) struct StagingDirectory {
    path: PathBuf,
    id: String,
    is_promoted: bool,
    /// While the file is locked, no sweep removes the directory.
    _lock: File,
}

impl StagingDirectory {
    pub(super) fn new(project: &Project) -> Result<Self, Error> {
        project.prepare()?;
        sweep(project);
        let mut tries = 0;
        loop {
            let id = Uuid::new_v4().simple().to_string();
            let path = project.state_dir().join(format!("{INCOMING}{id}"));
            let fail = |e| Error::io("can't create", &path, e);
            state_dir::make_private_directory(&path).map_err(fail)?;
            tries += 1;
            let lock = state_dir::open_directory(&path)
                .map(File::from)
                .and_then(|lock| lock.try_lock().map(|()| lock).map_err(Into::into));
            match lock {
                // A sweep may have removed it before it was locked.
                Ok(lock) if state_dir::is_dir(&path) => {
                    return Ok(Self {
                        path,
                        id,
                        is_promoted: false,
                        _lock: lock,
                    });
                }
                Err(e) if tries == TRIES => return Err(fail(e)),
                _ if tries == TRIES => return Err(fail(io::ErrorKind::NotFound.into())),
                _ => {}
            }
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it to the new run's directory. Its content is already durable.
    pub(super) fn promote(mut self, project: &Project, run: &RunId) -> Result<(), Error> {
        let to = project.run_dir(run);
        let fail = |e| Error::io("can't create", &to, e);
        match state_dir::rename_new(&self.path, &to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::run_exists(run.clone()));
            }
            made => made.map_err(fail)?,
        }
        self.is_promoted = true;
        state_dir::sync(&project.runs_dir()).map_err(fail)
    }
}

impl StagingDirectory {
    /// Exchanges it with the run's existing directory, which is then removed.
    pub(super) fn replace(mut self, project: &Project, run: &RunId) -> Result<(), Error> {
        let to = project.run_dir(run);
        let fail = |e| Error::io("can't replace", &to, e);
        // Lock the old state, so that no process resumes it.
        let store = |e| Error::store(run, "replaced", e);
        let _held = Writer::<RunHead, TimedInput>::open(&to, options(false)).map_err(store)?;
        match state_dir::exchange(&self.path, &to) {
            // Dropping removes the old directory.
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                let aside = project
                    .state_dir()
                    .join(format!("{INCOMING}{}", Uuid::new_v4().simple()));
                state_dir::rename(&to, &aside).map_err(fail)?;
                state_dir::rename(&self.path, &to).map_err(fail)?;
                self.path = aside;
            }
            Err(e) => return Err(fail(e)),
        }
        state_dir::sync(&project.runs_dir()).map_err(fail)
    }
}

/// Removes the files and refs of killed exports and imports. The files of running ones are locked.
pub(crate) fn sweep(project: &Project) {
    for path in state_dir::entries(&project.state_dir()).unwrap_or_default() {
        let name = path.file_name().and_then(|name| name.to_str());
        let id = name.and_then(|name| name.strip_prefix(INCOMING));
        let Some(id) = id.filter(|_| state_dir::is_dir(&path)) else {
            continue;
        };
        let left = state_dir::open_directory(&path).map(File::from).ok();
        let Some(_lock) = left.filter(|left| left.try_lock().is_ok()) else {
            continue;
        };
        project.git().remove_transfer_refs(id);
        // The next sweep tries again.
        let _stays = state_dir::remove_tree(&path);
    }
}

/// Takes the lock of an unfinished file, unless another process has it.
pub(super) fn lock_left(path: &Path) -> Option<File> {
    let left = state_dir::open(path).ok()?;
    left.try_lock().ok().map(|()| left)
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        if !self.is_promoted {
            // The next sweep removes the rest.
            let _stays = state_dir::remove_tree(&self.path);
        }
    }
}
