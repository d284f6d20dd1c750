use std::io;
use std::path::{Path, PathBuf};

use checkpoint_store::Writer;
use loop_state::Event;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use uuid::Uuid;

use crate::journal::options;
use crate::project::private_dir;
use crate::{Error, Project, RunHead, RunId};

/// What the name of a directory begins with in which a run is being made.
pub(crate) const INCOMING: &str = "incoming-";

/// A directory that becomes a run. Its drop removes it, unless it has.
#[derive(Debug)]
#[must_use]
pub(super) struct Incoming {
    path: PathBuf,
    is_settled: bool,
}

impl Incoming {
    pub(super) fn new(project: &Project) -> Result<Self, Error> {
        project.prepare()?;
        let name = format!("{INCOMING}{}", Uuid::new_v4().simple());
        let path = project.state_dir().join(name);
        private_dir(&path).map_err(|e| Error::io("can't make", &path, e))?;
        Ok(Self {
            path,
            is_settled: false,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it the name of the run, which nothing has yet. What is in it is durable already.
    pub(super) fn settle(mut self, project: &Project, run: &RunId) -> Result<(), Error> {
        let to = project.run_dir(run);
        let fail = |e| Error::io("can't make", &to, e);
        match rename_new(&self.path, &to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::run_exists(run.clone()));
            }
            made => made.map_err(fail)?,
        }
        self.is_settled = true;
        sync(&project.runs_dir()).map_err(fail)
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
        match renameat_with(CWD, &self.path, CWD, &to, RenameFlags::EXCHANGE) {
            // What was there is removed by the drop.
            Ok(()) => {}
            Err(e) if is_unknown(e) => {
                let aside = project
                    .state_dir()
                    .join(format!("{INCOMING}{}", Uuid::new_v4().simple()));
                fs_err::rename(&to, &aside).map_err(fail)?;
                fs_err::rename(&self.path, &to).map_err(fail)?;
                self.path = aside;
            }
            Err(e) => return Err(fail(e.into())),
        }
        sync(&project.runs_dir()).map_err(fail)
    }
}

fn is_unknown(e: Errno) -> bool {
    matches!(e, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.is_settled {
            // What can't be removed goes with the next removal of a run.
            let _stays = fs_err::remove_dir_all(&self.path);
        }
    }
}

/// Renames without replacing anything.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can; nobody else makes this name in between but by the same wish.
        Err(e) if is_unknown(e) => match fs_err::symlink_metadata(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs_err::rename(from, to),
        },
        other => Ok(other?),
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    fs_err::File::open(directory)?.sync_all()
}
