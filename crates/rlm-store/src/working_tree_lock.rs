//! The lock that allows one run at a time in a working tree, its holder, and the wait for the processes of a dead holder.

use std::fmt;
use std::fs::{File, TryLockError};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_subprocess::ProcessId;
use cancellable_sleep::{SleepGate, Wake};
use loop_state::{Timestamp, times};
use serde::{Deserialize, Serialize};

use crate::state_dir::{self, Identity};
use crate::sweep::{self, SweepResult};
use crate::{Error, Project, RunId, locks, timestamp};

const POLL: Duration = Duration::from_millis(20);
/// The largest size of `holder.json` in bytes; a longer file names no holder.
const MOST: u64 = 64 << 10;

/// The right to work in a working tree: one run at a time.
///
/// The right is a lock on the directory itself, so that no removal by an agent can break it. Every guard of the run shares the lock, so it is held
/// until the process tree of the last agent is gone, even if this process was killed. Dropping the value releases this process's share.
#[derive(Clone, Debug)]
pub struct WorkingTreeLock {
    project: Project,
    holder: Holder,
    lock: Arc<OwnedFd>,
    /// The open state directory. By it, this process notices that another directory is at the same path.
    state: Arc<Mutex<OpenStateDir>>,
    /// The run of the last holder and the result of the sweep of its processes, until it is reported.
    swept: Option<(RunId, SweepResult)>,
}

/// The open state directory, and the identity of the project's directory.
#[derive(Debug)]
struct OpenStateDir {
    state: OwnedFd,
    root: Identity,
}

impl OpenStateDir {
    fn of(project: &Project) -> Result<Self, Error> {
        let state = project.state_dir();
        let open = || {
            Ok(Self {
                state: state_dir::open_directory(&state)?,
                root: state_dir::metadata(project.root())?.identity(),
            })
        };
        open().map_err(|e| Error::io("can't store state in", &state, e))
    }
}

/// The process that works in a working tree, as information for people. Only the lock shows whether a process really works there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub process: ProcessId,
    /// The time at which it took the lock.
    pub since: Timestamp,
    /// The run that it works on.
    pub run: RunId,
}

/// The content of `holder.json`: the holder, and the identity of its working tree. A copy of the working tree contains the file too, but no process
/// holds the copy.
#[derive(Serialize, Deserialize)]
struct HolderFile {
    #[serde(flatten)]
    holder: Holder,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Identity>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = timestamp(std::time::SystemTime::now())
            .since(self.since)
            .as_secs();
        write!(
            f,
            "run `{}` (pid {}, for {age} s)",
            self.run, self.process.pid
        )
    }
}

impl WorkingTreeLock {
    /// Locks the working tree of `project` for `run`.
    ///
    /// If the last holder was killed, its guard may still be ending the agent's process tree. So this waits for the guard, and then ends everything
    /// that is left. That takes 10 s at most. A shutdown of `gate` ends the wait, with the error of a held lock.
    ///
    /// # Errors
    ///
    /// [`Error::is_held`] if a live process holds the lock; the text names the process.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future locks nothing.
    pub async fn take(project: &Project, run: &RunId, gate: &SleepGate) -> Result<Self, Error> {
        project.prepare()?;
        let root = project.tree();
        let directory = state_dir::open_directory(root);
        let directory = File::from(directory.map_err(|e| Error::io("can't work in", root, e))?);
        let mut swept = None;
        let mut waited = Duration::ZERO;
        loop {
            match directory.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(e)) => return Err(Error::io("can't lock", root, e)),
                Err(TryLockError::WouldBlock) => {}
            }
            let holder = read_holder(project, root);
            let dead = holder
                .as_ref()
                .is_some_and(|holder| !holder.process.is_alive());
            if !dead || (waited >= times::DEAD_HOLDER && swept.is_some()) {
                return Err(tree_held(root, holder));
            }
            if waited >= times::DEAD_HOLDER {
                // The guard doesn't end by itself: it was suspended, or killed while another process holds the descriptor.
                let last = holder.as_ref().map_or(run, |holder| &holder.run);
                let result = match sweep::scope_of(project, last) {
                    Some(scope) => sweep::sweep(scope).await,
                    None => SweepResult::default(),
                };
                swept = Some((last.clone(), result));
                waited = Duration::ZERO;
            }
            if gate.sleep(POLL).await == Wake::Shutdown {
                return Err(tree_held(root, holder));
            }
            waited += POLL;
        }
        let holder = Holder {
            process: ProcessId::current(),
            since: timestamp(std::time::SystemTime::now()),
            run: run.clone(),
        };
        let work_tree = Self {
            project: project.clone(),
            holder,
            lock: Arc::new(directory.into()),
            state: Arc::new(Mutex::new(OpenStateDir::of(project)?)),
            swept,
        };
        work_tree.write_holder_file()?;
        Ok(work_tree)
    }

    /// Restores the state directory and the files beside the runs if somebody removed them.
    pub fn restore(&self) -> Result<(), Error> {
        self.project.prepare()?;
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) =
            OpenStateDir::of(&self.project)?;
        self.write_holder_file()
    }

    /// Checks before a save whether the state directory is still the same one. If it was moved away, creates another one in its place, with a
    /// directory for `run`, so that the save goes there. The store itself handles a removed directory, and a project that was moved as a whole, which
    /// continues at its new place.
    ///
    /// # Errors
    ///
    /// An error if a link or another user's directory is in its place: nothing is written there.
    pub fn check_state_dir(&self, run: &RunId) -> Result<(), Error> {
        let (root, state) = (self.project.root(), self.project.state_dir());
        let fail = |e| {
            Error::io(
                "the state was deleted during the run and something else is in its place; move that away and start a new run:",
                &state,
                e,
            )
        };
        let kept = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let there = match state_dir::open_directory(&state) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            there => Some(there.map_err(fail)?),
        };
        let known = state_dir::identity(&kept.state).map_err(fail)?;
        let there = there.map(|there| state_dir::identity(&there)).transpose();
        let is_same = there.map_err(fail)? == Some(known);
        let is_here = state_dir::metadata(root).is_ok_and(|it| it.identity() == kept.root);
        if is_same || !is_here || !state_dir::has_name(&kept.state).map_err(fail)? {
            return Ok(());
        }
        self.project.prepare()?;
        state_dir::make_private_directory(&self.project.run_dir(run)).map_err(fail)
    }

    fn write_holder_file(&self) -> Result<(), Error> {
        let file = HolderFile {
            holder: self.holder.clone(),
            tree: Identity::at(self.project.tree()).ok(),
        };
        let text = serde_json::to_string(&file).expect("a holder serializes");
        let path = holder_path(&self.project, self.project.tree());
        let written = state_dir::replace(&path, text.as_bytes());
        written.map_err(|e| Error::io("can't write", path, e))
    }

    /// Returns, once, the run of the last holder and the result of the sweep of its processes; `None` if no sweep was needed.
    pub fn take_sweep_result(&mut self) -> Option<(RunId, SweepResult)> {
        self.swept.take()
    }

    /// Returns the project, to register its git processes.
    pub fn project_mut(&mut self) -> &mut Project {
        &mut self.project
    }

    /// Returns the project of this working tree.
    #[must_use]
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// Returns the run that holds the lock.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.holder.run
    }

    /// Returns the lock, for guards to share.
    pub fn lock(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.lock)
    }
}

/// Returns the error of a held lock; the text names its run, or the process that the kernel reports.
fn tree_held(tree: &Path, holder: Option<Holder>) -> Error {
    let is_run = holder.as_ref().is_some_and(|it| it.process.is_alive());
    match locks::describe_stranger(tree).filter(|_| !is_run) {
        Some(who) => Error::locked_by_other(tree, who),
        None => Error::held(tree, holder),
    }
}

/// Returns the path of a working tree's `holder.json`: it is in the state directory, which an agent in its own worktree doesn't reach.
fn holder_path(project: &Project, tree: &Path) -> PathBuf {
    let own = tree.file_name().filter(|_| tree != project.root());
    let name = own.map_or_else(
        || "holder.json".into(),
        |own| format!("holder-{}.json", own.display()),
    );
    project.state_dir().join(name)
}

/// Reads the holder of this working tree; `None` if the file is a copy from another one.
fn read_holder(project: &Project, tree: &Path) -> Option<Holder> {
    let text = state_dir::read(&holder_path(project, tree), MOST).ok()?;
    let file: HolderFile = serde_json::from_slice(&text).ok()?;
    let is_here = file.tree == Identity::at(tree).ok();
    is_here.then_some(file.holder)
}

/// Reads the holders of the project's working trees, including the worktrees of runs.
pub(crate) fn holders(project: &Project) -> impl Iterator<Item = Holder> {
    let trees = crate::git::worktree::all(&project.state_dir());
    let trees = std::iter::once(project.root().to_owned()).chain(trees);
    trees.filter_map(|tree| read_holder(project, &tree))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_file_has_these_keys() {
        let (process, run) = (
            ProcessId {
                pid: 7,
                start_time: 8,
            },
            "r1".parse().unwrap(),
        );
        let file = HolderFile {
            holder: Holder {
                process,
                since: Timestamp::from_millis(9),
                run,
            },
            tree: Some(Identity {
                device: 1,
                inode: 2,
            }),
        };
        insta::assert_snapshot!(serde_json::to_string(&file).unwrap(), @r#"{"process":{"pid":7,"start_time":8},"since":9,"run":"r1","tree":{"device":1,"inode":2}}"#);
    }

    #[tokio::test]
    async fn c76c_copy_has_no_holder_and_moved_working_tree_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let [tree, copy, moved] = ["tree", "copy", "moved"].map(|name| dir.path().join(name));
        fs_err::create_dir_all(&tree).unwrap();
        fs_err::create_dir_all(copy.join(".rlm")).unwrap();
        let run: RunId = "r1".parse().unwrap();
        let project = Project::find(&tree).unwrap();
        let taken = WorkingTreeLock::take(&project, &run, &SleepGate::new()).await;
        let taken = taken.unwrap();
        assert_eq!(project.holder(&run).as_ref(), Some(&taken.holder));
        let file = holder_path(&project, &tree);
        fs_err::copy(&file, copy.join(".rlm/holder.json")).unwrap();
        let there = Project::find(&copy).unwrap();
        assert_eq!(there.holder(&run), None);
        assert!(there.owner(&run).unwrap().is_none());
        // A holder without a tree identity names no process.
        let text = serde_json::to_string(&taken.holder).unwrap();
        fs_err::write(&file, text).unwrap();
        assert_eq!(read_holder(&project, &tree), None);
        taken.write_holder_file().unwrap();
        fs_err::rename(&tree, &moved).unwrap();
        let moved = Project::find(&moved).unwrap();
        assert_eq!(moved.holder(&run), Some(taken.holder));
    }
}
