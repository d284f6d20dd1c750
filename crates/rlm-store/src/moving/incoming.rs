//! A run that is being made, by a fork or an import: nobody sees it before it is whole, and what a crash leaves is removed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use checkpoint_store::Writer;
use loop_state::Event;
use uuid::Uuid;

use crate::runs::options;
use crate::state_dir;
use crate::{Error, Project, RunHead, RunId};

/// What the name of a directory begins with in which a run is being made.
const INCOMING: &str = "incoming-";
/// How often another name is tried where somebody clears up just then.
const TRIES: u32 = 3;

/// A directory that becomes a run. Its drop removes it, unless it has.
#[derive(Debug)]
#[must_use]
pub(super) struct Incoming {
    path: PathBuf,
    id: String,
    is_settled: bool,
    /// As long as it is locked, somebody is at it.
    _lock: File,
}

impl Incoming {
    pub(super) fn new(project: &Project) -> Result<Self, Error> {
        project.prepare()?;
        sweep(project);
        let mut tries = 0;
        loop {
            let id = Uuid::new_v4().simple().to_string();
            let path = project.state_dir().join(format!("{INCOMING}{id}"));
            let fail = |e| Error::io("can't make", &path, e);
            state_dir::make_private_directory(&path).map_err(fail)?;
            tries += 1;
            let lock = state_dir::open_directory(&path)
                .map(File::from)
                .and_then(|lock| lock.try_lock().map(|()| lock).map_err(Into::into));
            match lock {
                // It may have been cleared away before it was locked.
                Ok(lock) if state_dir::is_dir(&path) => {
                    return Ok(Self {
                        path,
                        id,
                        is_settled: false,
                        _lock: lock,
                    });
                }
                Err(e) if tries == TRIES => return Err(fail(e)),
                _ if tries == TRIES => return Err(fail(io::ErrorKind::NotFound.into())),
                _ => {}
            }
        }
    }

    /// Returns what nothing else is called.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it the name of the run, which nothing has yet. What is in it is durable already.
    pub(super) fn settle(mut self, project: &Project, run: &RunId) -> Result<(), Error> {
        let to = project.run_dir(run);
        let fail = |e| Error::io("can't make", &to, e);
        match state_dir::rename_new(&self.path, &to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::run_exists(run.clone()));
            }
            made => made.map_err(fail)?,
        }
        self.is_settled = true;
        state_dir::sync(&project.runs_dir()).map_err(fail)
    }
}

impl Incoming {
    /// Takes the place of what is there of the run, which is removed.
    pub(super) fn replace(mut self, project: &Project, run: &RunId) -> Result<(), Error> {
        let to = project.run_dir(run);
        let fail = |e| Error::io("can't replace", &to, e);
        // Nobody resumes what goes.
        let store = |e| Error::store(run, "replaced", e);
        let _held = Writer::<RunHead, Event>::open(&to, options(false)).map_err(store)?;
        match state_dir::exchange(&self.path, &to) {
            // What was there is removed by the drop.
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

/// Removes what exports and imports have left that were killed, with their refs. What somebody is at is locked.
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
        project.git().remove_moving_refs(id);
        // The next one tries again.
        let _stays = state_dir::remove_tree(&path);
    }
}

/// Takes the lock of a file that is being made, unless somebody is at it.
pub(super) fn lock_left(path: &Path) -> Option<File> {
    let left = state_dir::open(path).ok()?;
    left.try_lock().ok().map(|()| left)
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.is_settled {
            // What can't be removed goes with the next one.
            let _stays = state_dir::remove_tree(&self.path);
        }
    }
}
