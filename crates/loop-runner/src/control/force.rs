//! Ending the process of a run that does not listen, and all that it started.

use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use agent_subprocess::ProcessId;
use agent_subprocess::sweep;
use rustix::process::Signal;

use crate::survivors::{MARKER, names, scope_of};
use crate::{Error, Holder, Project, RunId, work_tree};

/// How long guards may take to end what a dead holder left; their own bound is below.
const GUARD_WAIT: Duration = Duration::from_secs(5);
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
    /// Returns the process that works on that run, as long as it lives. It is known by its start time, not only by its number.
    ///
    /// # Platform
    ///
    /// Always `None` outside Linux, where start times are not known.
    #[must_use]
    pub fn holder(&self, run: &RunId) -> Option<Holder> {
        work_tree::holders(self).find(|it| it.run == *run && it.process.is_alive())
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
    /// ended by its guards then, and what they leave by this process. Blocks for that time and about eight seconds more at most.
    ///
    /// # Errors
    ///
    /// [`Error::is_nobody`] when it is not known which process that is.
    ///
    /// # Platform
    ///
    /// Linux only; elsewhere it is never known which process it is.
    pub fn end_by_force(&self, run: &RunId, patience: Duration) -> Result<Forced, Error> {
        let holder = self.holder(run);
        let holder = holder.ok_or_else(|| Error::nobody(self.run_dir(run)))?;
        let scope = scope_of(self, run);
        let find = || match &scope {
            Some(scope) => sweep::find(MARKER, scope),
            None => Vec::new(),
        };
        let before = find();
        let process = holder.process;
        signal(process, Signal::TERM);
        signal(process, Signal::CONT);
        let is_gone = || !process.is_alive();
        let killed = !wait_until(patience, is_gone);
        if killed {
            signal(process, Signal::KILL);
            wait_until(GUARD_WAIT, is_gone);
        }
        wait_until(GUARD_WAIT, || find().is_empty());
        let left = find();
        let survivors = match left.is_empty() {
            true => Vec::new(),
            false => names(sweep::end(left, SWEEP_BUDGET).survivors),
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

fn name(found: &sweep::Found) -> ProcessName {
    ProcessName {
        pid: found.process.pid,
        name: found.name.clone(),
    }
}

/// Signals this very process, and none that got its number since.
#[cfg(target_os = "linux")]
fn signal(process: ProcessId, signal: Signal) {
    use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

    let pid = Pid::from_raw(process.pid.cast_signed());
    let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Looked at once more now that the handle can't come to mean another one.
    if let Some(handle) = handle.filter(|_| process.is_alive()) {
        // One that is gone needs none.
        let _gone = pidfd_send_signal(handle, signal);
    }
}

#[cfg(not(target_os = "linux"))]
fn signal(_process: ProcessId, _signal: Signal) {}

/// Waits for something that nobody tells of; says whether it came.
pub(crate) fn wait_until(wait: Duration, is_so: impl Fn() -> bool) -> bool {
    let by = Instant::now() + wait;
    while !is_so() {
        if Instant::now() >= by {
            return false;
        }
        std::thread::park_timeout(POLL);
    }
    true
}
