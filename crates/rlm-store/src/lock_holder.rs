//! Finds the process that works on a run, by the locks that the kernel reports.
//!
//! The process that took the lock on the working tree works on the run. [`Project::owner`] uses only this lock. [`Project::holder`] also reads
//! `holder.json`, which an agent can edit: for the time of the lock, and if the kernel can't name the process.

use std::path::Path;

use agent_duplex::ProcessName;
use agent_subprocess::sweep;

use crate::locks::{self, LockOwner, TreeLock};
use crate::sweep::scope_of;
use crate::{Error, Holder, Project, RunEntry, RunHead, RunId, git, working_tree_lock};

impl Project {
    /// Returns the living process that works on the run. The kernel names the process with the lock on the working tree; where the kernel can't,
    /// `holder.json` names it.
    ///
    /// # Platform
    ///
    /// Always `None` outside Linux, where start times are not known.
    #[must_use]
    pub fn holder(&self, run: &RunId) -> Option<Holder> {
        self.recorded_holder(run, self.owner(run))
    }

    /// Returns the same for a run that was read already, and does not read it again.
    #[must_use]
    pub fn holder_of(&self, run: &RunEntry) -> Option<Holder> {
        let head = run.head.as_ref().ok();
        self.recorded_holder(&run.id, self.owner_in(&run.id, head))
    }

    fn recorded_holder(
        &self,
        run: &RunId,
        owner: Result<Option<LockOwner>, Error>,
    ) -> Option<Holder> {
        let recorded = working_tree_lock::holders(self).filter(|it| it.run == *run);
        let recorded = recorded.max_by_key(|it| (it.process.is_alive(), it.since));
        match owner {
            Ok(Some(owner)) => Some(Holder {
                process: owner.process,
                since: recorded.map(|it| it.since).unwrap_or_default(),
                run: run.clone(),
            }),
            Ok(None) => None,
            Err(_) => recorded.filter(|it| it.process.is_alive()),
        }
    }

    /// Returns whether a living process is known to work on the run: by the lock on the working tree, even if the state or that tree is gone.
    #[must_use]
    pub fn is_owned(&self, run: &RunId) -> bool {
        matches!(self.owner(run), Ok(Some(_)))
    }

    /// Returns the run whose process holds the lock on the working tree of this project, even if the state of the run was removed. If there is none,
    /// returns the run whose working tree was removed or moved, if there is exactly one.
    #[must_use]
    pub fn run_of_lock(&self) -> Option<RunId> {
        let owner = match locks::owner(self.tree(), None).ok()? {
            TreeLock::Taken(owner) => owner,
            TreeLock::Free | TreeLock::Hidden(_) => {
                let mut lost = locks::owners_of_lost_trees(self.root()).ok()?;
                lost.pop().filter(|_| lost.is_empty())?
            }
        };
        owner.run?.name.parse().ok()
    }

    /// Finds the process that works on the run; `None` if no process has a lock.
    pub fn owner(&self, run: &RunId) -> Result<Option<LockOwner>, Error> {
        let head = self.run(run).ok().and_then(|entry| entry.head.ok());
        self.owner_in(run, head.as_ref())
    }

    fn owner_in(&self, run: &RunId, head: Option<&RunHead>) -> Result<Option<LockOwner>, Error> {
        let own = head.map(|head| head.tree(self.root()).to_owned());
        let all = || {
            let trees = git::worktree::all(&self.state_dir());
            std::iter::once(self.root().to_owned()).chain(trees)
        };
        let (mut why, mut likely) = (None, None);
        let recorded = self.last_holder(run).map(|holder| holder.process.pid);
        for tree in own.clone().map_or_else(|| all().collect(), |own| vec![own]) {
            let lock = match locks::owner(&tree, recorded) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                lock => lock.map_err(|e| unreadable(run, &e, &tree))?,
            };
            match lock {
                TreeLock::Free => {}
                TreeLock::Taken(owner) if owner.has(run.as_str()) => {
                    return Ok(Some(owner));
                }
                // An agent may have moved the state and given it any name. A process with the same program is the process of a run, and the state or
                // the project shows that the run uses this working tree.
                TreeLock::Taken(owner)
                    if !owner.run.as_ref().is_some_and(|it| it.is_in_place)
                        && owner.is_same_program
                        && (own.is_some() || tree == self.root()) =>
                {
                    likely.get_or_insert(owner);
                }
                TreeLock::Taken(owner) => {
                    why.get_or_insert_with(|| unexpected_holder(run, &owner, &tree));
                }
                TreeLock::Hidden(pids) => {
                    why.get_or_insert_with(|| hidden_holders(run, &pids, &tree));
                }
            }
        }
        // The working tree was removed or moved, or the state names another one; an agent can cause both.
        let lost = locks::owners_of_lost_trees(self.root());
        let lost = lost.map_err(|e| unreadable(run, &e, self.root()))?;
        let lost = { lost.into_iter() }.find(|it| it.has(run.as_str()));
        match (lost.or(likely), why) {
            (Some(owner), _) => Ok(Some(owner)),
            (None, None) => Ok(None),
            (None, Some(why)) => Err(Error::unverified(why)),
        }
    }

    /// Returns the process that last worked on the run, even if it has ended; `None` if there was none, or if another run has used the working tree
    /// since.
    #[must_use]
    pub fn last_holder(&self, run: &RunId) -> Option<Holder> {
        let all = working_tree_lock::holders(self).filter(|it| it.run == *run);
        all.max_by_key(|it| it.since)
    }

    /// Returns the living processes with the marker of this run.
    #[must_use]
    pub fn processes_of(&self, run: &RunId) -> Vec<ProcessName> {
        let found = scope_of(self, run).map(|scope| sweep::find(crate::marker_variable(), &scope));
        found.unwrap_or_default().iter().map(name).collect()
    }
}

fn unreadable(run: &RunId, why: &std::io::Error, tree: &Path) -> Error {
    Error::unverified(format!(
        "can't identify the process of run `{run}`: can't read /proc/locks or the working tree: {why}; find it with: fuser -v {}",
        tree.display()
    ))
}

/// Returns why the process with the lock on the working tree is not known to be that of the run.
fn unexpected_holder(run: &RunId, owner: &LockOwner, tree: &Path) -> String {
    let (pid, tree) = (owner.process.pid, tree.display());
    match &owner.run {
        Some(other) if other.is_in_place => format!(
            "pid {pid} works in `{tree}` for another run, and no process is known to work on run `{run}`; to end the other run: rlm stop {} --force",
            other.name.escape_debug()
        ),
        _ => format!(
            "pid {pid} holds a lock on `{tree}`, but perhaps does not work on run `{run}`, so it gets no signal; to see it: ps -fp {pid}"
        ),
    }
}

fn hidden_holders(run: &RunId, pids: &[u32], tree: &Path) -> String {
    let shown: Vec<String> = pids.iter().take(8).map(ToString::to_string).collect();
    format!(
        "can't identify the process of run `{run}`: processes of other users hold locks, perhaps the lock on `{}` (pids {}); try again as that user, or as root",
        tree.display(),
        shown.join(", ")
    )
}

/// Returns the name of a process that a sweep found.
pub fn name(found: &sweep::MarkedProcess) -> ProcessName {
    ProcessName {
        pid: found.process.pid,
        name: found.name.clone(),
    }
}
