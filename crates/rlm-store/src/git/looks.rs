//! The git commands that run, and their end: none of them outlives those who asked.
//!
//! One that starts no other program has a process group of its own, and is ended with all of it by the thread that waits for it: that thread alone knows
//! that the group's number is still git's. Every other one is under a guard, which ends it with all that it started and proves that nothing is left.

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

/// How many processes that git left behind are named.
const MOST_LEFT: usize = 1024;

/// Those of this process, once it is known that somebody ends them.
static WATCHED: OnceLock<Arc<Running>> = OnceLock::new();

/// Sees to it that [`end_git`] ends every git that this process runs from now on: each gets a process group of its own, so that a terminal's Ctrl-C does not
/// reach it any more.
pub fn watch_git() {
    WATCHED.get_or_init(Arc::default);
}

/// Ends every git that this process runs, within two seconds, and lets it run no other. Blocks.
///
/// It is for those who end the process while something may run; a run ends its own.
pub fn end_git() {
    if let Some(running) = WATCHED.get() {
        running.lock().closed = true;
        running.end(times::GIT_ENDING);
        // What was begun is taken back by whoever has begun it.
        running.wait_until(times::GIT_KILLED, |state| state.owed == 0);
        running.lock().owed = 0;
        running.end(Duration::ZERO);
    }
}

/// Says that what git makes is taken back by its caller if it fails, which [`end_git`] waits for. Its drop says that there is nothing to take back any more.
#[derive(Debug)]
#[must_use]
pub(crate) struct Owed(Option<Arc<Running>>);

impl Owed {
    /// Returns with what is taken back also when git was ended.
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

/// Where the git commands of a run, or of what comes before one, are known.
#[derive(Clone, Debug)]
pub struct Looks {
    running: Arc<Running>,
    /// Set when the run is over.
    over: Arc<AtomicBool>,
    /// The value of the run's marker that they carry.
    pub(super) marker: Option<String>,
    /// Whether they take back what others have made, and so may come when no other may.
    takes_back: bool,
}

/// What came of the end.
#[derive(Debug)]
pub struct LooksEnd {
    /// What was ended.
    pub ended: Vec<ProcessName>,
    /// What could not be ended.
    pub survivors: Vec<ProcessName>,
    /// What filters and hooks of git had left running, now or before.
    pub left: Vec<ProcessName>,
    /// Whether something may be left that is not known.
    pub unproven: bool,
}

/// What a git under a guard left behind, and what became of that.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) ended: Vec<ProcessName>,
    pub(super) survivors: Vec<ProcessName>,
    /// Whether it is known that nothing else is left.
    pub(super) proven: bool,
}

impl Looks {
    /// Returns those of this process, if it is known that somebody ends them.
    pub(super) fn watched() -> Option<Self> {
        let running = Arc::clone(WATCHED.get()?);
        Some(Self::new(running, None))
    }

    /// Returns those of a piece of work that can be stopped by itself.
    pub(crate) fn of_work() -> Self {
        Self::new(WATCHED.get().cloned().unwrap_or_default(), None)
    }

    /// Says that something is going to be made that is taken back if it fails.
    pub(crate) fn owe() -> Owed {
        let running = WATCHED.get().cloned();
        if let Some(running) = &running {
            running.lock().owed += 1;
        }
        Owed(running)
    }

    /// Returns those of a run.
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

    /// Ends them all within `budget` and about a second; from then on there are no others. Blocks.
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

    /// Begins one, which is ended through `ends`.
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

/// The looks of a run, or of other work; its drop ends them without waiting.
#[derive(Debug)]
pub struct OwnLooks(pub Looks);

impl Drop for OwnLooks {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.running.tell_all(times::GIT_ENDING);
    }
}

/// What the thread that waits for a git is told.
#[derive(Debug)]
pub(super) enum Told {
    /// It is over, and printed this.
    Over(Vec<u8>),
    /// It is to end, within this time.
    End(Duration),
}

/// How a git that runs is ended.
#[derive(Debug)]
pub(super) enum Ends {
    /// By the thread that waits for it.
    Alone(mpsc::Sender<Told>),
    /// By its guard.
    Contained(Hurry),
}

impl Ends {
    fn within(&self, grace: Duration) {
        match self {
            // A command that has just ended needs no message.
            Self::Alone(tell) => drop(tell.send(Told::End(grace))),
            Self::Contained(hurry) => hurry.within(grace),
        }
    }
}

/// A git that runs, or is about to. Its drop says that it is gone.
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

    /// Keeps what a git under a guard left behind, for the report at the end of the run.
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

    /// Ends git with its group, which it has not been waited for yet: first so that it can clear up. What it tells when it is gone is taken from `told`.
    pub(super) fn cut(&self, git: &Child, grace: Duration, told: &mpsc::Receiver<Told>) {
        self.running.lock().unproven = true;
        if !grace.is_zero() {
            signal(git, Signal::TERM);
            let _gone_or_late = told.recv_timeout(grace);
        }
        signal(git, Signal::KILL);
    }

    /// Ends what a git has left in its group that is over, but not waited for yet.
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
        // Nobody is in it any more, which is as good.
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
    /// How many make something that they take back if it fails.
    owed: usize,
    /// What those under a guard had left running, and was ended.
    left: Vec<ProcessName>,
    survivors: Vec<ProcessName>,
    /// Whether something may be left that is not known.
    unproven: bool,
    /// Those that run, by number, with the pid of each that was started.
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
