//! Orphans that become children of the host: the processes of a killed guard, if the host is a child subreaper too.
//!
//! A subreaper also gets orphans that no program started, for example a server that an editor left running. So this module has to distinguish them. The
//! processes below a guard are in sessions of their own, and started after their guard. All other children are ignored: a child in the session of
//! this process, a child that is older than the guard, and a child that started while an [`OwnProgramScope`](crate::guard::OwnProgramScope) ran. A child of
//! the last kind is only ended if it has the marker, or is in the session of the guard, of the program, or of an orphan that was ended.
//!
//! A dead child is only reaped if it is in the session of the guard, of the program, or of an orphan that was seen alive. Any other dead child can be a
//! child of the host whose owner still waits for its exit. So if a session leader of the process tree ended before this module saw it, it stays a
//! zombie until the host ends.

use crate::proc_fs::{UNKNOWN_NAME, pid_of};
use crate::sweep::{self, SweepReport};
use crate::times;
use crate::{Marker, ProcessId, ProcessName, proc_fs};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of separate time spans in which the host's own programs ran; older spans are merged.
const MAX_SPANS: usize = 64;
/// The maximum wait between two rounds of SIGKILL.
const ROUND: Duration = Duration::from_millis(1);
/// After this number of rounds in a row without an orphan, none is left. An orphan that ends during a round leaves its own children to the next
/// round.
const EMPTY_ROUNDS: u32 = 2;
/// The maximum number of clock reads, a [`ROUND`] apart, while waiting for the end of a tick.
const TICK_ROUNDS: u32 = 100;

static ADOPTS: AtomicBool = AtomicBool::new(false);
/// The pids of the guards that are possibly not reaped. A start of a guard holds the lock until the guard executes its program, which takes long if the
/// disk hangs. Another start, and a sweep, then wait for this lock. The report of a reaped guard doesn't.
static GUARDS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// The pids of reaped guards that are still in [`GUARDS`]. This lock is held for a moment only, and taken after the other one.
static REAPED_GUARDS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static OWN_PROGRAMS: Mutex<OwnPrograms> = Mutex::new(OwnPrograms {
    spans: Vec::new(),
    last: 0,
});

/// The times in which programs of this process ran. A child that started then is possibly not an orphan.
#[derive(Clone)]
struct OwnPrograms {
    spans: Vec<Span>,
    last: u64,
}

/// The time in which a program of the host ran, in clock ticks since boot.
#[derive(Clone)]
struct Span {
    number: u64,
    from: u64,
    /// `None` while the program runs.
    until: Option<u64>,
}

impl OwnPrograms {
    fn is_in_a_span(&self, start_time: u64) -> bool {
        { self.spans.iter() }.any(|span| {
            span.from <= start_time && span.until.is_none_or(|until| start_time <= until)
        })
    }

    /// Keeps the list short by merging the two oldest spans. The merged span ignores more children.
    fn shorten(&mut self) {
        let ended = |span: &Span| span.until.is_some();
        if self.spans.len() > MAX_SPANS && ended(&self.spans[0]) && ended(&self.spans[1]) {
            let first = self.spans.remove(0);
            self.spans[0].from = self.spans[0].from.min(first.from);
            self.spans[0].until = self.spans[0].until.max(first.until);
        }
    }
}

fn own_programs() -> MutexGuard<'static, OwnPrograms> {
    OWN_PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn guards() -> MutexGuard<'static, BTreeSet<u32>> {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reaped_guards() -> MutexGuard<'static, Vec<u32>> {
    REAPED_GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget_reaped(guards: &mut BTreeSet<u32>) {
    for pid in reaped_guards().drain(..) {
        guards.remove(&pid);
    }
}

pub(crate) fn start() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    ADOPTS.store(true, Ordering::Relaxed);
    Ok(())
}

/// Starts a guard. The guard doesn't count as an orphan until [`guard_is_reaped`].
pub(crate) fn starting_guard<T>(
    spawn: impl FnOnce() -> io::Result<T>,
    pid: impl FnOnce(&T) -> Option<u32>,
) -> io::Result<T> {
    // Hold the lock during the spawn: otherwise the guard could be a child that is not in the list yet.
    let mut guards = guards();
    let spawned = spawn()?;
    // The new guard can have the pid of a reaped one.
    forget_reaped(&mut guards);
    guards.extend(pid(&spawned));
    Ok(spawned)
}

/// Forgets a guard that was reaped, because another process can get its pid from now on. Doesn't wait for the start of another guard.
pub(crate) fn guard_is_reaped(pid: u32) {
    reaped_guards().push(pid);
}

/// Returns the number of guards that are not reaped.
#[cfg(test)]
pub(crate) fn unreaped_guards() -> usize {
    let mut guards = guards();
    forget_reaped(&mut guards);
    guards.len()
}

/// Returns the current time in the unit and clock of the start times in `/proc`.
fn now() -> u64 {
    // `/proc` has the start time of a new thread in the same clock.
    let probe = std::thread::spawn(|| proc_fs::read_start("thread-self"));
    probe.join().ok().flatten().unwrap_or(0)
}

/// Waits until this tick (about 10 ms) is over. Returns the following tick, and the tick that is over.
///
/// If an orphan and a program of the host start in the same tick, they can't be distinguished.
fn wait_for_next_tick() -> (u64, u64) {
    let this = now();
    for _ in 0..TICK_ROUNDS {
        let next = now();
        if next != this {
            return (next, this);
        }
        proc_fs::pause(ROUND);
    }
    (this, this)
}

#[derive(Debug)]
pub(crate) struct Running(u64);

impl Running {
    pub(crate) fn begin() -> Self {
        let (from, _) = wait_for_next_tick();
        let mut own = own_programs();
        own.last += 1;
        let number = own.last;
        own.spans.push(Span {
            number,
            from,
            until: None,
        });
        own.shorten();
        Self(number)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (_, last) = wait_for_next_tick();
        let mut own = own_programs();
        let span = own.spans.iter_mut().find(|span| span.number == self.0);
        if let Some(span) = span {
            span.until = Some(last);
        }
    }
}

/// A guard that ended without a report, and the main process of its program, if it is known.
#[derive(Clone, Copy)]
pub(crate) struct LostGuard {
    pub(crate) guard: ProcessId,
    pub(crate) main: Option<u32>,
    /// The time, in clock ticks since boot, before which the guard had no program. The host can have started children of its own since the start of
    /// the guard.
    pub(crate) since: u64,
}

/// A child that became a child of this process when its parent ended.
struct Orphan {
    process: ProcessId,
    session: u32,
    is_dead: bool,
    /// Whether `/proc` hides it, so that it can't be signalled safely.
    is_hidden: bool,
}

/// Returns the candidates that can be orphans of a guard whose program started at `since` or later.
///
/// A child in one of `sessions` certainly belongs to that guard.
fn orphans(
    candidates: Vec<u32>,
    since: u64,
    sessions: &BTreeSet<u32>,
    marker: Option<&Marker>,
) -> Vec<Orphan> {
    let Some(own) = proc_fs::own() else {
        return Vec::new();
    };
    // A search takes time, and the start of another guard needs the locks.
    let own_guards = {
        let mut guards = guards();
        forget_reaped(&mut guards);
        guards.clone()
    };
    let own_programs = own_programs().clone();
    let is_orphan = |pid: &u32| !own_guards.contains(pid);
    let candidates = candidates.into_iter().filter(is_orphan);
    let mut marked = None;
    let orphan = |pid: u32| {
        let Some(stat) = proc_fs::stat(pid) else {
            // The owner of the child has possibly reaped it since it was listed. If the child is dead, its exit stays for that owner.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let ended = rustix::process::waitid(WaitId::Pid(pid_of(pid)?), options);
            return ended.is_ok_and(|it| it.is_none()).then_some(Orphan {
                process: ProcessId { pid, start_time: 0 },
                session: 0,
                is_dead: false,
                is_hidden: true,
            });
        };
        let is_ours = stat.parent == own.pid && stat.session != own.session;
        if !is_ours || stat.start_time < since {
            return None;
        }
        let mut carries_marker = || {
            let find = || {
                let marker = marker?;
                Some(sweep::find_within(marker, Duration::ZERO))
            };
            let marked = marked.get_or_insert_with(|| find().unwrap_or_default());
            marked.iter().any(|found| found.process == stat.id())
        };
        // The child can be the host's own program, or a process that this program started.
        let is_known = sessions.contains(&stat.session);
        if !is_known && own_programs.is_in_a_span(stat.start_time) && !carries_marker() {
            return None;
        }
        Some(Orphan {
            process: stat.id(),
            session: stat.session,
            is_dead: stat.is_dead(),
            is_hidden: false,
        })
    };
    candidates.filter_map(orphan).collect()
}

/// Ends the orphans of a lost guard, round after round: their own children become children of this process too. Blocks for about `budget` at most.
///
/// Reaps each orphan by its pid. A wait for any child would take the exits of children whose owners wait for them.
pub(crate) fn end_orphans(lost: LostGuard, marker: &Marker, budget: Duration) -> SweepReport {
    let since = lost.since;
    let mut sessions: BTreeSet<u32> = lost.main.into_iter().chain([lost.guard.pid]).collect();
    let mut met = BTreeMap::new();
    let mut first_kill: BTreeMap<ProcessId, Instant> = BTreeMap::new();
    let start = Instant::now();
    let mut empty_rounds = 0;
    let mut alive;
    loop {
        alive = Vec::new();
        let orphans = orphans(
            proc_fs::children_of_process(),
            since,
            &sessions,
            Some(marker),
        );
        let living = orphans.iter().filter(|it| !it.is_dead && !it.is_hidden);
        sessions.extend(living.map(|it| it.session));
        for orphan in orphans {
            let process = orphan.process;
            if orphan.is_dead {
                if sessions.contains(&orphan.session) {
                    reap(process.pid);
                }
                continue;
            }
            let name = match orphan.is_hidden {
                true => UNKNOWN_NAME.to_owned(),
                false => proc_fs::name(process.pid).name,
            };
            met.entry(process).or_insert(name);
            alive.push(process);
            let killed = proc_fs::signal(process, Signal::KILL, |_| true);
            let since = first_kill.entry(process).or_insert_with(Instant::now);
            if killed == Err(Errno::PERM) || since.elapsed() > times::STUCK_AFTER {
                for below in proc_fs::descendants(process.pid) {
                    met.entry(below.id())
                        .or_insert_with(|| proc_fs::name(below.pid).name);
                    let _gone_or_refused = proc_fs::signal(below.id(), Signal::KILL, |_| true);
                }
            }
        }
        empty_rounds = if alive.is_empty() {
            empty_rounds + 1
        } else {
            0
        };
        if empty_rounds >= EMPTY_ROUNDS || start.elapsed() >= budget {
            break;
        }
        proc_fs::pause(ROUND);
    }
    let below = { alive.iter() }.flat_map(|it| proc_fs::descendants(it.pid));
    for below in below.collect::<Vec<_>>() {
        alive.push(below.id());
        met.entry(below.id())
            .or_insert_with(|| proc_fs::name(below.pid).name);
    }
    let named = |(id, name): (ProcessId, String)| ProcessName { pid: id.pid, name };
    let (survivors, ended): (Vec<_>, Vec<_>) =
        met.into_iter().partition(|(id, _)| alive.contains(id));
    SweepReport {
        ended: ended.into_iter().map(named).collect(),
        survivors: survivors.into_iter().map(named).collect(),
    }
}

/// Returns whether there can be dead orphans that nothing reaps: only the host's own programs leave them.
pub(crate) fn can_have_dead_orphans() -> bool {
    !own_programs().spans.is_empty()
}

/// Reaps the orphans that ended by themselves; otherwise they would stay zombies. Blocks while a guard starts.
pub(crate) fn reap_orphans() {
    let orphans = orphans(proc_fs::listed_children(), 0, &BTreeSet::new(), None).into_iter();
    orphans
        .filter(|it| it.is_dead)
        .for_each(|it| reap(it.process.pid));
}

fn reap(pid: u32) {
    if let Some(pid) = pid_of(pid) {
        let _reaped_already = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Returns whether this process adopts orphans.
pub(crate) fn is_on() -> bool {
    ADOPTS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A guard starts and its exec hangs. The runtime's thread must not hang with it.
    #[test]
    fn reaped_guard_is_recorded_while_the_start_of_another_one_hangs() {
        let (starts, is_starting) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        let spawn = move || {
            starts.send(()).expect("the test waits");
            is_released.recv().expect("the test ends the start");
            Ok(())
        };
        let starter = std::thread::spawn(move || starting_guard(spawn, |()| None));
        is_starting.recv().expect("the start begins");
        let reaper = std::thread::spawn(|| {
            guard_is_reaped(u32::MAX);
            can_have_dead_orphans()
        });
        let start = Instant::now();
        while !reaper.is_finished() && start.elapsed() < Duration::from_secs(5) {
            proc_fs::pause(ROUND);
        }
        let did_not_wait = reaper.is_finished();
        release.send(()).expect("the start waits");
        starter.join().expect("no panic").expect("no error");
        assert!(did_not_wait);
    }
}
