//! Ending the process of a run that does not listen, and all that it started.
//!
//! The kernel names that process: it is the one that took the lock on the working tree. It is signalled once a second
//! proof agrees. What an agent can edit, such as `holder.json`, only gives a name to what the kernel says.

use std::path::Path;
use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use agent_subprocess::sweep;
use rustix::process::Signal;

use crate::control::caller;
use crate::locks::{self, Lock, Owner};
use crate::survivors::{MARKER, names, scope_of};
use crate::{Error, Holder, Project, RunId, git, work_tree};

/// How much of the time is left for the sweep of what guards leave.
const SWEEP_BUDGET: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// What became of a run's process that was ended by force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forced {
    /// Whether it had to be killed: it did not go when it was asked by SIGTERM.
    pub killed: bool,
    /// What it had started and is gone.
    pub ended: Vec<ProcessName>,
    /// What it had started and could not be ended.
    pub survivors: Vec<ProcessName>,
}

impl Project {
    /// Returns the process that works on that run, as long as it lives. The kernel says which one has the lock on the
    /// working tree; where it does not, what that process wrote down counts.
    ///
    /// # Platform
    ///
    /// Always `None` outside Linux, where start times are not known.
    #[must_use]
    pub fn holder(&self, run: &RunId) -> Option<Holder> {
        let signed = work_tree::holders(self).filter(|it| it.run == *run);
        let signed = signed.max_by_key(|it| (it.process.is_alive(), it.since));
        match self.owner(run) {
            Ok(Some(owner)) => Some(Holder {
                process: owner.process,
                since: signed.map(|it| it.since).unwrap_or_default(),
                run: run.clone(),
            }),
            Ok(None) => None,
            Err(_) => signed.filter(|it| it.process.is_alive()),
        }
    }

    /// Returns whether a living process is known to have that run: by the lock on the working tree, whatever became of
    /// the state and of that tree.
    #[must_use]
    pub fn is_owned(&self, run: &RunId) -> bool {
        matches!(self.owner(run), Ok(Some(_)))
    }

    /// Returns the run whose process has the lock on the working tree of this project, be its state removed; else the only one whose working tree was
    /// removed or moved away.
    #[must_use]
    pub fn owned_run(&self) -> Option<RunId> {
        let owner = match locks::owner(self.tree()).ok()? {
            Lock::Taken(owner) => owner,
            Lock::Free | Lock::Hidden(_) => {
                let mut lost = locks::owners_of_lost_trees(self.root()).ok()?;
                lost.pop().filter(|_| lost.is_empty())?
            }
        };
        owner.run?.parse().ok()
    }

    /// Finds the process that has the run; `None` when no process has a lock.
    fn owner(&self, run: &RunId) -> Result<Option<Owner>, Error> {
        let head = self.run(run).ok().and_then(|entry| entry.head.ok());
        let own = head.map(|head| head.tree(self.root()).to_owned());
        let all = || {
            let trees = git::tree::all(&self.state_dir());
            std::iter::once(self.root().to_owned()).chain(trees)
        };
        let (mut why, mut likely) = (None, None);
        for tree in own.clone().map_or_else(|| all().collect(), |own| vec![own]) {
            let lock = match locks::owner(&tree) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                lock => lock.map_err(|e| unreadable(run, &e, &tree))?,
            };
            match lock {
                Lock::Free => {}
                Lock::Taken(owner) if owner.run.as_deref() == Some(run.as_str()) => {
                    return Ok(Some(owner));
                }
                // An agent may have moved the state, and so given it any name. The program says that this is a run, and the state, or the project, in which
                // tree.
                Lock::Taken(owner)
                    if !owner.is_in_place
                        && owner.is_same_program
                        && (own.is_some() || tree == self.root()) =>
                {
                    likely.get_or_insert(owner);
                }
                Lock::Taken(owner) => {
                    why.get_or_insert_with(|| strange(run, &owner, &tree));
                }
                Lock::Hidden(pids) => {
                    why.get_or_insert_with(|| hidden(run, &pids, &tree));
                }
            }
        }
        // The tree was removed or moved, or the state names another one: both can be an agent's work.
        let lost = locks::owners_of_lost_trees(self.root());
        let lost = lost.map_err(|e| unreadable(run, &e, self.root()))?;
        let lost = { lost.into_iter() }.find(|it| it.run.as_deref() == Some(run.as_str()));
        match (lost.or(likely), why) {
            (Some(owner), _) => Ok(Some(owner)),
            (None, None) => Ok(None),
            (None, Some(why)) => Err(Error::unproven(why)),
        }
    }

    /// Returns the process that took that run last, which may be gone; `None` when nobody has, or another run has had the working tree since.
    #[must_use]
    pub fn last_holder(&self, run: &RunId) -> Option<Holder> {
        let all = work_tree::holders(self).filter(|it| it.run == *run);
        all.max_by_key(|it| it.since)
    }

    /// Returns the processes that carry the mark of this run: what it started and is still there.
    #[must_use]
    pub fn left_of(&self, run: &RunId) -> Vec<ProcessName> {
        let found = scope_of(self, run).map(|scope| sweep::find(MARKER, &scope));
        found.unwrap_or_default().iter().map(name).collect()
    }

    /// Ends the process that has the run: by SIGTERM, and SIGCONT for one that was stopped; after `patience` by SIGKILL. What it had started is
    /// ended by its guards then, and what they leave by this process. Blocks for `limit` at most.
    ///
    /// # Errors
    ///
    /// [`Error::is_nobody`] when no process has it, [`Error::is_refused`] from inside an agent; others when it can't be proven which process has it:
    /// then none is signalled.
    ///
    /// # Platform
    ///
    /// Linux only; elsewhere it is never known which process it is.
    pub fn end_by_force(
        &self,
        run: &RunId,
        patience: Duration,
        limit: Duration,
    ) -> Result<Forced, Error> {
        let end = Instant::now() + limit;
        let kill_at = (Instant::now() + patience).min(end);
        let owner = self.owner(run)?;
        let owner = owner.ok_or_else(|| Error::nobody(self.run_dir(run)))?;
        let process = owner.process;
        caller::check_own(process).map_err(|why| {
            Error::refused(format!(
                "run `{run}` is not ended from here: this process {why}"
            ))
        })?;
        let handle = Handle::open(&owner).ok_or_else(|| {
            Error::unproven(format!(
                "pid {} let go of the working tree of run `{run}` a moment ago; look again",
                process.pid,
            ))
        })?;
        let scope = scope_of(self, run);
        let find = || match &scope {
            Some(scope) => sweep::find(MARKER, scope),
            None => Vec::new(),
        };
        let before = find();
        handle.signal(Signal::TERM);
        handle.signal(Signal::CONT);
        let is_gone = || !process.is_alive();
        let killed = !wait_until(kill_at, is_gone);
        let sweep_at = end.checked_sub(SWEEP_BUDGET).unwrap_or(end);
        if killed {
            handle.signal(Signal::KILL);
            wait_until(sweep_at, is_gone);
        }
        wait_until(sweep_at, || find().is_empty());
        let left = find();
        let survivors = match left.is_empty() {
            true => Vec::new(),
            false => {
                let budget = end.saturating_duration_since(Instant::now());
                names(sweep::end(left, budget.min(SWEEP_BUDGET)).survivors)
            }
        };
        // Guards are no work of an agent's.
        let before = before.iter().filter(|it| !it.is_guard).map(name);
        let ended = before.filter(|it| !survivors.contains(it)).collect();
        Ok(Forced {
            killed,
            ended,
            survivors,
        })
    }
}

fn unreadable(run: &RunId, why: &std::io::Error, tree: &Path) -> Error {
    Error::unproven(format!(
        "the process that has run `{run}` can't be proven: /proc/locks or the working tree can't be read: {why}; look for it with: fuser -v {}",
        tree.display()
    ))
}

/// Says that a process has the tree which is not known to be that of the run.
fn strange(run: &RunId, owner: &Owner, tree: &Path) -> String {
    let (pid, tree) = (owner.process.pid, tree.display());
    match &owner.run {
        Some(other) if owner.is_in_place => format!(
            "pid {pid} works in `{tree}` for another run, and no process is known to have run `{run}`; to end the other one: rlm stop {} --force",
            other.escape_debug()
        ),
        _ => format!(
            "pid {pid} holds `{tree}`, and nothing proves that it has run `{run}`, so it gets no signal; look at it: ps -fp {pid}"
        ),
    }
}

fn hidden(run: &RunId, pids: &[u32], tree: &Path) -> String {
    let shown: Vec<String> = pids.iter().take(8).map(ToString::to_string).collect();
    format!(
        "the process that has run `{run}` can't be proven: other users' processes hold locks, perhaps that on `{}` (pids {}); ask as that user, or as root",
        tree.display(),
        shown.join(", ")
    )
}

fn name(found: &sweep::Found) -> ProcessName {
    ProcessName {
        pid: found.process.pid,
        name: found.name.clone(),
    }
}

/// A process that can't come to mean another one.
#[cfg(target_os = "linux")]
struct Handle(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Handle {
    /// Opens it, and proves once more that it has the lock, now that its number can't be used again.
    fn open(owner: &Owner) -> Option<Self> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};

        let pid = Pid::from_raw(owner.process.pid.cast_signed())?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        locks::still_holds(owner).then_some(Self(handle))
    }

    fn signal(&self, signal: Signal) {
        // One that is gone needs none.
        let _gone = rustix::process::pidfd_send_signal(&self.0, signal);
    }
}

#[cfg(not(target_os = "linux"))]
struct Handle;

#[cfg(not(target_os = "linux"))]
impl Handle {
    fn open(_owner: &Owner) -> Option<Self> {
        None
    }

    fn signal(&self, _signal: Signal) {}
}

/// Waits for something that nobody tells of, until `by`; says whether it came.
pub(crate) fn wait_until(by: Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() {
        if Instant::now() >= by {
            return false;
        }
        std::thread::park_timeout(POLL);
    }
    true
}
