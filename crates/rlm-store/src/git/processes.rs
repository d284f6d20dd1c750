//! The registry of running git processes, and their end: none of them outlives its caller.
//!
//! A git that starts no other program has its own process group. The thread that waits for it ends the group, because only that thread knows that the
//! group id is still git's. Every other git runs under a guard, which ends it with all its processes and proves that nothing is left.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use agent_duplex::ProcessName;
use loop_state::times;
use rustix::process::{Pid, Signal, kill_process_group};

use super::run::GitError;
use crate::deadline::Deadline;

/// The largest number of leftovers of git that the registry names.
const MOST_LEFT: usize = 1024;

/// The git processes of this process, if [`stop_git_processes`] will end them.
static WATCHED: OnceLock<Arc<Registry>> = OnceLock::new();

/// Registers every git that this process runs from now on, so that [`stop_git_processes`] ends it. Each gets its own process group, so that a
/// terminal's Ctrl-C no longer reaches it.
pub fn track_git_processes() {
    WATCHED.get_or_init(Arc::default);
}

/// Ends every git of this process within two seconds, and starts no other. Blocks.
///
/// This is for programs that end while git may run; a run ends its own git processes.
pub fn stop_git_processes() {
    if let Some(running) = WATCHED.get() {
        running.lock().closed = true;
        running.end(times::GIT_ENDING);
        // The callers that began a change roll it back.
        running.wait_until(times::GIT_KILLED, |state| state.rollback == 0);
        running.lock().rollback = 0;
        running.end(Duration::ZERO);
    }
}

/// The announcement that the caller rolls back git's changes if it fails; [`stop_git_processes`] waits for the rollback. Dropping it means that no
/// rollback is needed any more.
#[derive(Debug)]
#[must_use]
pub(crate) struct Rollback(Option<Arc<Registry>>);

impl Rollback {
    /// Returns the registry for the rollback, which works after [`stop_git_processes`] too.
    pub(crate) fn processes(&self) -> Option<GitProcesses> {
        let processes = GitProcesses::new(Arc::clone(self.0.as_ref()?), None);
        Some(GitProcesses {
            may_roll_back: true,
            ..processes
        })
    }
}

impl Drop for Rollback {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            let mut state = running.lock();
            state.rollback = state.rollback.saturating_sub(1);
            drop(state);
            running.process_ended.notify_all();
        }
    }
}

/// The registry of the git processes of a run, or of the preparation of one.
#[derive(Clone, Debug)]
pub struct GitProcesses {
    registry: Arc<Registry>,
    /// Set when the run has ended.
    is_over: Arc<AtomicBool>,
    /// The value of the run's marker that the processes carry.
    pub(super) marker: Option<String>,
    /// Whether its processes roll back changes. Such processes may start even after [`end`](Self::end).
    may_roll_back: bool,
}

/// The result of ending the git processes.
#[derive(Debug)]
pub struct GitShutdownReport {
    /// The ended processes.
    pub ended: Vec<ProcessName>,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
    /// The processes that git's filters and hooks left, now or earlier, and that were ended.
    pub leftovers: Vec<ProcessName>,
    /// Whether unknown processes may be left.
    pub is_unverified: bool,
}

/// The leftovers of a git under a guard, and their end.
#[derive(Debug)]
pub(super) struct GitLeftovers {
    pub(super) ended: Vec<ProcessName>,
    pub(super) survivors: Vec<ProcessName>,
    /// Whether the guard proved that nothing else is left.
    pub(super) proven: bool,
}

impl GitProcesses {
    /// Returns the registry of this process, if [`stop_git_processes`] will end its git processes.
    pub(super) fn of_process() -> Option<Self> {
        let running = Arc::clone(WATCHED.get()?);
        Some(Self::new(running, None))
    }

    /// Returns the registry of a task that can be stopped separately.
    pub(crate) fn of_task() -> Self {
        Self::new(WATCHED.get().cloned().unwrap_or_default(), None)
    }

    /// Announces a change that the caller rolls back if it fails.
    pub(crate) fn begin_rollback() -> Rollback {
        let running = WATCHED.get().cloned();
        if let Some(running) = &running {
            running.lock().rollback += 1;
        }
        Rollback(running)
    }

    /// Returns the registry of a run.
    pub fn of_run(marker: String) -> Self {
        Self::new(WATCHED.get().cloned().unwrap_or_default(), Some(marker))
    }

    fn new(running: Arc<Registry>, marker: Option<String>) -> Self {
        Self {
            registry: running,
            is_over: Arc::default(),
            marker,
            may_roll_back: false,
        }
    }

    /// Ends all processes within `budget` plus about a second, and starts no others from then on. Blocks.
    pub fn end(&self, budget: Duration) -> GitShutdownReport {
        self.is_over.store(true, Ordering::Release);
        self.registry.wait(times::GIT_STATUS_END.min(budget));
        let due = self.registry.names();
        self.registry.end(times::GIT_ENDING.min(budget));
        let mut survivors = self.registry.names();
        let mut state = self.registry.lock();
        let left = std::mem::take(&mut state.leftovers);
        survivors.append(&mut state.survivors);
        GitShutdownReport {
            ended: { due.into_iter() }
                .filter(|it| !survivors.contains(it) && !left.contains(it))
                .collect(),
            survivors,
            leftovers: left,
            is_unverified: state.is_unverified,
        }
    }

    /// Registers a git process, which is ended through `ends`.
    pub(super) fn begin(&self, ends: Terminator) -> Result<GitProcess, GitError> {
        let mut state = self.registry.lock();
        let may = self.may_roll_back && state.rollback > 0;
        if (state.closed && !may) || self.is_over.load(Ordering::Acquire) {
            return Err(GitError::Stopped);
        }
        state.last += 1;
        let number = state.last;
        state.all.insert(number, (None, ends));
        drop(state);
        Ok(GitProcess {
            registry: Arc::clone(&self.registry),
            number,
        })
    }
}

/// The registry of a run or another task; dropping it ends the processes without waiting.
#[derive(Debug)]
pub struct OwnedGitProcesses(pub GitProcesses);

impl Drop for OwnedGitProcesses {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.registry.request_end(times::GIT_ENDING);
    }
}

/// A message to the thread that waits for a git process.
#[derive(Debug)]
pub(super) enum GitSignal {
    /// Git ended, with this output.
    Over(Vec<u8>),
    /// End git within this time.
    End(Duration),
}

/// The way to end a running git.
#[derive(Debug)]
pub(super) enum Terminator {
    /// Through the thread that waits for it.
    Alone(mpsc::Sender<GitSignal>),
    /// Through its guard.
    Contained(Deadline),
}

impl Terminator {
    fn within(&self, grace: Duration) {
        match self {
            // If the command has just ended, it needs no message.
            Self::Alone(sender) => drop(sender.send(GitSignal::End(grace))),
            Self::Contained(deadline) => deadline.tighten_to(grace),
        }
    }
}

/// A git process that runs or is about to start. Dropping it removes it from the registry.
#[derive(Debug)]
#[must_use]
pub(super) struct GitProcess {
    registry: Arc<Registry>,
    number: u64,
}

impl GitProcess {
    pub(super) fn started(&self, git: u32) {
        if let Some((pid, _)) = self.registry.lock().all.get_mut(&self.number) {
            *pid = Some(git);
        }
    }

    /// Records the leftovers of a git under a guard, for the report at the end of the run.
    pub(super) fn record_leftovers(&self, left: GitLeftovers) {
        let mut state = self.registry.lock();
        state.is_unverified |= !left.proven;
        let room = MOST_LEFT.saturating_sub(state.leftovers.len());
        state.leftovers.extend(left.ended.into_iter().take(room));
        let room = MOST_LEFT.saturating_sub(state.survivors.len());
        state
            .survivors
            .extend(left.survivors.into_iter().take(room));
    }

    /// Ends git, which is not reaped yet, with its process group: SIGTERM first, so that git can clean up. Waits on `signals` for the end of git.
    pub(super) fn terminate(
        &self,
        git: &Child,
        grace: Duration,
        signals: &mpsc::Receiver<GitSignal>,
    ) {
        self.registry.lock().is_unverified = true;
        if !grace.is_zero() {
            signal(git, Signal::TERM);
            let _gone_or_late = signals.recv_timeout(grace);
        }
        signal(git, Signal::KILL);
    }

    /// Kills the rest of the process group of a git that ended and is not reaped yet.
    pub(super) fn kill_group(&self, git: &Child) {
        signal(git, Signal::KILL);
    }
}

impl Drop for GitProcess {
    fn drop(&mut self) {
        self.registry.lock().all.remove(&self.number);
        self.registry.process_ended.notify_all();
    }
}

fn signal(git: &Child, signal: Signal) {
    if let Some(group) = Pid::from_raw(git.id().cast_signed()) {
        // An error means that the group is empty, which is fine.
        let _gone = kill_process_group(group, signal);
    }
}

#[derive(Debug, Default)]
struct Registry {
    state: Mutex<RegistryState>,
    process_ended: Condvar,
}

#[derive(Debug, Default)]
struct RegistryState {
    last: u64,
    closed: bool,
    /// The number of callers with a change that they roll back on failure.
    rollback: usize,
    /// The leftovers of git processes under a guard, which were ended.
    leftovers: Vec<ProcessName>,
    survivors: Vec<ProcessName>,
    /// Whether unknown processes may be left.
    is_unverified: bool,
    /// The running processes by number, each with its pid once it started.
    all: BTreeMap<u64, (Option<u32>, Terminator)>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request_end(&self, grace: Duration) {
        for (_, ends) in self.lock().all.values() {
            ends.within(grace);
        }
    }

    fn end(&self, grace: Duration) {
        self.request_end(grace);
        self.wait(grace + times::GIT_KILLED);
    }

    fn wait(&self, limit: Duration) {
        self.wait_until(limit, |state| state.all.is_empty());
    }

    fn wait_until(&self, limit: Duration, is_so: impl Fn(&RegistryState) -> bool) {
        let not_yet = |state: &mut RegistryState| !is_so(state);
        drop(
            self.process_ended
                .wait_timeout_while(self.lock(), limit, not_yet),
        );
    }

    fn names(&self) -> Vec<ProcessName> {
        let state = self.lock();
        let pids = state.all.values().filter_map(|(pid, _)| *pid);
        let name = |pid| ProcessName {
            pid,
            name: "git".into(),
        };
        pids.map(name).collect()
    }
}
