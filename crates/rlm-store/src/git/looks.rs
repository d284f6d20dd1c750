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

use super::run::Refusal;
use crate::deadline::Hurry;

/// The most leftovers of git that are named.
const MOST_LEFT: usize = 1024;

/// The git processes of this process, if [`end_git`] will end them.
static WATCHED: OnceLock<Arc<Running>> = OnceLock::new();

/// Registers every git that this process runs from now on, so that [`end_git`] ends it. Each gets its own process group, so that a terminal's Ctrl-C
/// no longer reaches it.
pub fn watch_git() {
    WATCHED.get_or_init(Arc::default);
}

/// Ends every git of this process within two seconds, and starts no other. Blocks.
///
/// For callers that end the process while git may run; a run ends its own git processes.
pub fn end_git() {
    if let Some(running) = WATCHED.get() {
        running.lock().closed = true;
        running.end(times::GIT_ENDING);
        // The callers that began a change roll it back.
        running.wait_until(times::GIT_KILLED, |state| state.owed == 0);
        running.lock().owed = 0;
        running.end(Duration::ZERO);
    }
}

/// States that the caller rolls back git's changes if it fails; [`end_git`] waits for the rollback. Dropping it means that no rollback is needed any
/// more.
#[derive(Debug)]
#[must_use]
pub(crate) struct Owed(Option<Arc<Running>>);

impl Owed {
    /// Returns the registry for the rollback, which works after [`end_git`] too.
    pub(crate) fn looks(&self) -> Option<Looks> {
        let looks = Looks::new(Arc::clone(self.0.as_ref()?), None);
        Some(Looks {
            takes_back: true,
            ..looks
        })
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            let mut state = running.lock();
            state.owed = state.owed.saturating_sub(1);
            drop(state);
            running.fewer.notify_all();
        }
    }
}

/// The registry of the git processes of a run, or of the preparation of one.
#[derive(Clone, Debug)]
pub struct Looks {
    running: Arc<Running>,
    /// Set when the run has ended.
    over: Arc<AtomicBool>,
    /// The value of the run's marker that the processes carry.
    pub(super) marker: Option<String>,
    /// Whether its processes roll back changes, so that they may start after the end.
    takes_back: bool,
}

/// The result of ending the git processes.
#[derive(Debug)]
pub struct LooksEnd {
    /// The ended processes.
    pub ended: Vec<ProcessName>,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
    /// The leftovers of git's filters and hooks, from its end or earlier.
    pub left: Vec<ProcessName>,
    /// Whether unknown processes may be left.
    pub unproven: bool,
}

/// The leftovers of a git under a guard, and their end.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) ended: Vec<ProcessName>,
    pub(super) survivors: Vec<ProcessName>,
    /// Whether the guard proved that nothing else is left.
    pub(super) proven: bool,
}

impl Looks {
    /// Returns the registry of this process, if [`end_git`] will end its git processes.
    pub(super) fn watched() -> Option<Self> {
        let running = Arc::clone(WATCHED.get()?);
        Some(Self::new(running, None))
    }

    /// Returns the registry of a task that can be stopped separately.
    pub(crate) fn of_work() -> Self {
        Self::new(WATCHED.get().cloned().unwrap_or_default(), None)
    }

    /// Announces a change that the caller rolls back if it fails.
    pub(crate) fn owe() -> Owed {
        let running = WATCHED.get().cloned();
        if let Some(running) = &running {
            running.lock().owed += 1;
        }
        Owed(running)
    }

    /// Returns the registry of a run.
    pub fn of_run(marker: String) -> Self {
        Self::new(WATCHED.get().cloned().unwrap_or_default(), Some(marker))
    }

    fn new(running: Arc<Running>, marker: Option<String>) -> Self {
        Self {
            running,
            over: Arc::default(),
            marker,
            takes_back: false,
        }
    }

    /// Ends all processes within `budget` and about a second, and starts no others from then on. Blocks.
    pub fn end(&self, budget: Duration) -> LooksEnd {
        self.over.store(true, Ordering::Release);
        self.running.wait(times::GIT_STATUS_END.min(budget));
        let due = self.running.names();
        self.running.end(times::GIT_ENDING.min(budget));
        let mut survivors = self.running.names();
        let mut state = self.running.lock();
        let left = std::mem::take(&mut state.left);
        survivors.append(&mut state.survivors);
        LooksEnd {
            ended: { due.into_iter() }
                .filter(|it| !survivors.contains(it) && !left.contains(it))
                .collect(),
            survivors,
            left,
            unproven: state.unproven,
        }
    }

    /// Registers a git process, which is ended through `ends`.
    pub(super) fn begin(&self, ends: Ends) -> Result<Look, Refusal> {
        let mut state = self.running.lock();
        let may = self.takes_back && state.owed > 0;
        if (state.closed && !may) || self.over.load(Ordering::Acquire) {
            return Err(Refusal::Stopped);
        }
        state.last += 1;
        let number = state.last;
        state.all.insert(number, (None, ends));
        drop(state);
        Ok(Look {
            running: Arc::clone(&self.running),
            number,
        })
    }
}

/// The registry of a run or another task; dropping it ends the processes without waiting.
#[derive(Debug)]
pub struct OwnLooks(pub Looks);

impl Drop for OwnLooks {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.running.tell_all(times::GIT_ENDING);
    }
}

/// A message to the thread that waits for a git process.
#[derive(Debug)]
pub(super) enum Told {
    /// Git ended, with this output.
    Over(Vec<u8>),
    /// End git within this time.
    End(Duration),
}

/// The way to end a running git.
#[derive(Debug)]
pub(super) enum Ends {
    /// Through the thread that waits for it.
    Alone(mpsc::Sender<Told>),
    /// Through its guard.
    Contained(Hurry),
}

impl Ends {
    fn within(&self, grace: Duration) {
        match self {
            // If the command has just ended, it needs no message.
            Self::Alone(tell) => drop(tell.send(Told::End(grace))),
            Self::Contained(hurry) => hurry.within(grace),
        }
    }
}

/// A git process that runs or is about to start. Dropping it removes it from the registry.
#[derive(Debug)]
#[must_use]
pub(super) struct Look {
    running: Arc<Running>,
    number: u64,
}

impl Look {
    pub(super) fn started(&self, git: u32) {
        if let Some((pid, _)) = self.running.lock().all.get_mut(&self.number) {
            *pid = Some(git);
        }
    }

    /// Records the leftovers of a git under a guard, for the report at the end of the run.
    pub(super) fn leaves(&self, left: Left) {
        let mut state = self.running.lock();
        state.unproven |= !left.proven;
        let room = MOST_LEFT.saturating_sub(state.left.len());
        state.left.extend(left.ended.into_iter().take(room));
        let room = MOST_LEFT.saturating_sub(state.survivors.len());
        state
            .survivors
            .extend(left.survivors.into_iter().take(room));
    }

    /// Ends git, which is not reaped yet, with its process group: SIGTERM first, so that git can clean up. Takes git's last message from `told`.
    pub(super) fn cut(&self, git: &Child, grace: Duration, told: &mpsc::Receiver<Told>) {
        self.running.lock().unproven = true;
        if !grace.is_zero() {
            signal(git, Signal::TERM);
            let _gone_or_late = told.recv_timeout(grace);
        }
        signal(git, Signal::KILL);
    }

    /// Kills the rest of the process group of a git that ended and is not reaped yet.
    pub(super) fn clear(&self, git: &Child) {
        signal(git, Signal::KILL);
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.running.lock().all.remove(&self.number);
        self.running.fewer.notify_all();
    }
}

fn signal(git: &Child, signal: Signal) {
    if let Some(group) = Pid::from_raw(git.id().cast_signed()) {
        // An error means that the group is empty, which is fine.
        let _gone = kill_process_group(group, signal);
    }
}

#[derive(Debug, Default)]
struct Running {
    state: Mutex<State>,
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    closed: bool,
    /// The number of callers with a change that they roll back on failure.
    owed: usize,
    /// The leftovers of git processes under a guard, which were ended.
    left: Vec<ProcessName>,
    survivors: Vec<ProcessName>,
    /// Whether unknown processes may be left.
    unproven: bool,
    /// The running processes by number, each with its pid once it started.
    all: BTreeMap<u64, (Option<u32>, Ends)>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_all(&self, grace: Duration) {
        for (_, ends) in self.lock().all.values() {
            ends.within(grace);
        }
    }

    fn end(&self, grace: Duration) {
        self.tell_all(grace);
        self.wait(grace + times::GIT_KILLED);
    }

    fn wait(&self, patience: Duration) {
        self.wait_until(patience, |state| state.all.is_empty());
    }

    fn wait_until(&self, patience: Duration, is_so: impl Fn(&State) -> bool) {
        let not_yet = |state: &mut State| !is_so(state);
        drop(
            self.fewer
                .wait_timeout_while(self.lock(), patience, not_yet),
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
