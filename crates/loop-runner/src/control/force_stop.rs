//! Ends the process of a run that doesn't respond, and everything that it started.
//!
//! The kernel reports which process holds the lock on the working tree; that process works on the run. It gets a signal only after a second check of
//! the lock. A file that an agent can edit, such as `holder.json`, is never enough to identify the process.

use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use agent_subprocess::sweep;
use loop_state::{Request, StopTiming, times};
use rlm_store::lock_holder::name;
use rlm_store::locks::{self, LockOwner};
use rlm_store::marker_variable;
use rlm_store::processes::names;
use rlm_store::sweep::scope_of;
use rlm_store::{Project, RunId};
use rustix::process::Signal;

use crate::Error;
use crate::control::caller;
use crate::control::live_run::{AskOutcome, LiveRun, ResponseLimits};
use crate::control::protocol::{EndReport, Response};

const POLL: Duration = Duration::from_millis(20);

/// The result of ending a run's process by force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForcedStop {
    /// Whether the process needed SIGKILL, because SIGTERM did not end it.
    pub killed: bool,
    /// The processes of the run that are ended.
    pub ended: Vec<ProcessName>,
    /// The processes of the run that could not be ended.
    pub survivors: Vec<ProcessName>,
}

/// Why [`LiveRun::stop_or_force`] uses force.
#[derive(Debug)]
#[non_exhaustive]
pub enum ForceCause {
    /// The run reported its end, and its process is still alive.
    Alive,
    /// The run refused to stop, because it classified this process as a process of an agent.
    Refused,
    /// The run sent a response that is not the report of its end.
    Declined,
    /// The run doesn't respond.
    Silent,
    /// The run has recorded the stop, and its process is still alive.
    Slow,
    /// The saved state names no process that works on the run.
    NotLive,
    /// The request failed.
    Failed(Error),
}

/// The way in which [`LiveRun::stop_or_force`] ended a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopOrForce {
    /// The run stopped on request, and reported this end.
    Stopped(Option<EndReport>),
    /// The run was ended by force.
    Forced(ForcedStop),
}

impl LiveRun {
    /// Requests a stop, and ends the process by force unless it is gone within `wait`. Blocks for `wait` and 10 seconds more at most. Only the kernel
    /// decides whether the process is gone. Passes the responses to `on_answer`. Calls `on_force` before it uses force; [`holder`](Self::holder) is
    /// then the process that works on the run.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_running`] when no process works on the run, [`Error::is_refused`] inside an agent. Another error when the process can't be
    /// identified; then no process gets a signal.
    ///
    /// # Platform
    ///
    /// Only Linux supports force; on other systems the process of a run can't be identified.
    pub fn stop_or_force(
        &mut self,
        wait: Duration,
        on_answer: impl FnMut(&Response),
        on_force: impl FnOnce(&Self, ForceCause),
    ) -> Result<StopOrForce, Error> {
        let by = Instant::now() + wait;
        let stop = Request::Stop {
            when: StopTiming::Now,
        };
        let cause = match self.ask(&stop, ResponseLimits::before_force(wait), on_answer) {
            Ok(AskOutcome::Final(Response::RunEnded(ended))) => match self.is_gone(by) {
                true => return Ok(StopOrForce::Stopped(Some(ended))),
                false => ForceCause::Alive,
            },
            Ok(AskOutcome::Gone) => match self.is_gone(by) {
                true => return Ok(StopOrForce::Stopped(None)),
                false => ForceCause::Alive,
            },
            Ok(AskOutcome::Final(Response::Refused { .. })) => ForceCause::Refused,
            Ok(AskOutcome::Final(_)) => ForceCause::Declined,
            Ok(AskOutcome::TimedOut(None)) => ForceCause::Silent,
            Ok(AskOutcome::TimedOut(Some(_))) => ForceCause::Slow,
            Ok(AskOutcome::NotLive) => ForceCause::NotLive,
            Err(e) => ForceCause::Failed(e),
        };
        self.holder = self.project.holder(&self.run);
        on_force(self, cause);
        let now = Instant::now();
        let grace = by.saturating_duration_since(now).max(times::FORCE_LEAST);
        let limit = (by + times::FORCE_MARGIN).saturating_duration_since(now);
        force_stop(&self.project, &self.run, grace, limit).map(StopOrForce::Forced)
    }
}

/// Ends the process that works on the run: by SIGTERM, with SIGCONT if it is suspended, and by SIGKILL after `grace`. Its guards then end
/// everything that it started, and this process ends the rest. Blocks for `limit` at most.
fn force_stop(
    project: &Project,
    run: &RunId,
    grace: Duration,
    limit: Duration,
) -> Result<ForcedStop, Error> {
    let end = Instant::now() + limit;
    let owner = project.owner(run)?;
    let owner = owner.ok_or_else(|| Error::not_running(project.run_dir(run)))?;
    let process = owner.process;
    caller::check_own(process).map_err(|why| {
        Error::refused(format!(
            "can't end run `{run}` by force: this process {why}"
        ))
    })?;
    let handle = Handle::open(&owner).ok_or_else(|| {
        rlm_store::Error::unverified(format!(
            "pid {} has just released the working tree of run `{run}`; try again",
            process.pid,
        ))
    })?;
    let scope = scope_of(project, run);
    let find = || match &scope {
        Some(scope) => sweep::find(marker_variable(), scope),
        None => Vec::new(),
    };
    let before = find();
    let kill_at = (Instant::now() + grace).min(end);
    handle.signal(Signal::TERM);
    handle.signal(Signal::CONT);
    let is_gone = || !process.is_alive();
    let killed = !poll_until(kill_at, is_gone);
    let sweep_at = end.checked_sub(times::SWEEP).unwrap_or(end);
    if killed {
        handle.signal(Signal::KILL);
        poll_until(sweep_at, is_gone);
    }
    poll_until(sweep_at, || find().is_empty());
    let left = find();
    let survivors = match left.is_empty() {
        true => Vec::new(),
        false => {
            let budget = end.saturating_duration_since(Instant::now());
            names(sweep::end(left, budget.min(times::SWEEP)).survivors)
        }
    };
    // Guards are not processes of the agent.
    let before = before.iter().filter(|it| !it.is_guard).map(name);
    let ended = before.filter(|it| !survivors.contains(it)).collect();
    Ok(ForcedStop {
        killed,
        ended,
        survivors,
    })
}

/// A process handle that can't refer to another process later.
#[cfg(target_os = "linux")]
struct Handle(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Handle {
    /// Opens the handle, and then checks again that the process holds the lock: its pid may have been reused before the handle was open.
    fn open(owner: &LockOwner) -> Option<Self> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};

        let pid = Pid::from_raw(owner.process.pid.cast_signed())?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        locks::still_holds(owner).then_some(Self(handle))
    }

    fn signal(&self, signal: Signal) {
        // Sending fails if the process is gone, which is fine.
        let _gone = rustix::process::pidfd_send_signal(&self.0, signal);
    }
}

#[cfg(not(target_os = "linux"))]
struct Handle;

#[cfg(not(target_os = "linux"))]
impl Handle {
    fn open(_owner: &LockOwner) -> Option<Self> {
        None
    }

    fn signal(&self, _signal: Signal) {}
}

/// Polls a condition until `by`; returns whether it became true.
pub(crate) fn poll_until(by: Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() {
        if Instant::now() >= by {
            return false;
        }
        std::thread::park_timeout(POLL);
    }
    true
}
