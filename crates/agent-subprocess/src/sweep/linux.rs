//! The sweep by `/proc`, where the environment of a process contains its marker.

use super::{MarkedProcess, SweepReport};
use crate::proc_fs::{self, Stat};
use crate::{ProcessId, ProcessName, marker};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

/// The kernel limits the environment of a process to about this size.
const MAX_ENVIRONMENT: u64 = 8 << 20;
/// The size that is enough for most environments.
const ROOM: usize = 8 << 10;
/// The wait before a process that could not be read is read again.
const ROUND: Duration = Duration::from_millis(1);
/// The maximum number of threads whose environment is read, if the main thread has exited.
const MAX_THREADS: usize = 64;

fn own_ancestors() -> BTreeSet<u32> {
    let mut line = BTreeSet::new();
    let mut pid = std::process::id();
    while pid != 0 && line.insert(pid) {
        pid = proc_fs::stat(pid).map_or(0, |stat| stat.parent);
    }
    line
}

/// Reads a file of a process. The buffer has room from the start: reading a file of unknown size in small pieces costs several times as much.
fn read(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ROOM);
    let file = File::open(format!("/proc/{pid}/{file}"))?;
    file.take(MAX_ENVIRONMENT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the environment of a process. If its main thread has exited, only the other threads have one.
fn environment(pid: u32) -> io::Result<Vec<u8>> {
    let environment = match read(pid, "environ") {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Vec::new(),
        environment => environment?,
    };
    let has_threads = || proc_fs::stat(pid).is_some_and(|stat| stat.threads > 1);
    if !environment.is_empty() || !has_threads() {
        return Ok(environment);
    }
    let threads = proc_fs::threads_of(pid).take(MAX_THREADS);
    let mut of_threads =
        threads.filter_map(|thread| read(pid, &format!("task/{thread}/environ")).ok());
    Ok(of_threads.find(|it| !it.is_empty()).unwrap_or_default())
}

/// The role of a process in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Guard,
    Member,
    Stranger,
    /// It can be each of the others: it is in the middle of an exec, without arguments and environment, or it could not be read.
    Unread,
    Gone,
}

fn role(pid: u32, variable: &str, scope: &str) -> Role {
    try_role(pid, variable, scope).unwrap_or_else(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::SRCH) => Role::Gone,
        // Another user's, or a program that forbids it.
        Some(Errno::ACCESS | Errno::PERM) => Role::Stranger,
        // This process may have no descriptor left.
        _ => Role::Unread,
    })
}

fn try_role(pid: u32, variable: &str, scope: &str) -> io::Result<Role> {
    let (before, environment) = (read(pid, "cmdline")?, environment(pid)?);
    if is_marked(&environment, variable.as_bytes(), scope.as_bytes()) {
        return Ok(Role::Member);
    }
    let line = read(pid, "cmdline")?;
    // An exec between two reads changes the arguments.
    if environment.is_empty() && (line.is_empty() || line != before) {
        let is_alive =
            |stat: Stat| !stat.is_dead() && !stat.is_exiting() && !stat.is_kernel_thread();
        return Ok(match proc_fs::stat(pid).is_some_and(is_alive) {
            true => Role::Unread,
            false => Role::Gone,
        });
    }
    let tag = marker::tag(scope);
    let guard = [
        marker::GUARD.as_bytes(),
        marker::GUARD_ARGUMENT.as_bytes(),
        tag.as_bytes(),
    ];
    Ok(match line.split(|byte| *byte == 0).take(3).eq(guard) {
        true => Role::Guard,
        false => Role::Stranger,
    })
}

fn is_marked(environment: &[u8], variable: &[u8], scope: &[u8]) -> bool {
    environment.split(|byte| *byte == 0).any(|entry| {
        let value = entry
            .strip_prefix(variable)
            .and_then(|rest| rest.strip_prefix(b"="));
        let rest = value.and_then(|value| value.strip_prefix(scope));
        rest.is_some_and(|rest| matches!(rest, [] | [b'.', ..]))
    })
}

/// Waits at most `wait` for processes that can't be read.
pub(super) fn find(variable: &str, scope: &str, wait: Duration) -> Vec<MarkedProcess> {
    if scope.is_empty() || !proc_fs::is_ours() {
        return Vec::new();
    }
    let mut search = ProcessSearch {
        variable,
        scope,
        own: own_ancestors(),
        strangers: BTreeSet::new(),
        found: BTreeMap::new(),
    };
    let mut is_complete = search.pass();
    let deadline = Instant::now() + wait;
    while !is_complete && Instant::now() < deadline {
        proc_fs::pause(ROUND);
        is_complete = search.pass();
    }
    let mut found: Vec<_> = search.found.into_values().collect();
    found.sort_by_key(order);
    found
}

/// A search in several passes over all processes.
struct ProcessSearch<'a> {
    variable: &'a str,
    scope: &'a str,
    own: BTreeSet<u32>,
    /// The processes that an earlier pass read, or that were gone by then.
    strangers: BTreeSet<ProcessId>,
    found: BTreeMap<ProcessId, MarkedProcess>,
}

impl ProcessSearch<'_> {
    /// Reads the processes that no earlier pass has read. Returns whether the search is complete: if a process could not be read, it can have the
    /// marker, and if a process is gone, it can have started another one that is not in the list of this pass.
    fn pass(&mut self) -> bool {
        let mut is_complete = true;
        let tick = proc_fs::tick();
        let Ok(pids) = proc_fs::try_pids() else {
            return false;
        };
        for pid in pids.filter(|pid| !self.own.contains(pid)) {
            // The start time is read first: if another process gets the pid afterwards, it gets no signal.
            let Some(stat) = proc_fs::stat(pid) else {
                is_complete = false;
                continue;
            };
            let id = stat.id();
            if self.strangers.contains(&id) || self.found.contains_key(&id) {
                continue;
            }
            let role = match stat.is_dead() {
                true => Role::Gone,
                false if stat.is_kernel_thread() => Role::Stranger,
                false => role(pid, self.variable, self.scope),
            };
            match role {
                Role::Stranger => drop(self.strangers.insert(id)),
                Role::Unread => is_complete = false,
                Role::Gone => {
                    self.strangers.insert(id);
                    is_complete = false;
                }
                role @ (Role::Guard | Role::Member) => {
                    let found = MarkedProcess {
                        process: id,
                        name: proc_fs::name(pid).name,
                        is_guard: role == Role::Guard,
                        is_unmistakable: stat.start_time < tick,
                        variable: self.variable.to_owned(),
                        scope: self.scope.to_owned(),
                    };
                    self.found.insert(id, found);
                }
            }
        }
        is_complete
    }
}

/// Sorts guards first: otherwise a suspended guard could continue after its process tree has changed.
fn order(found: &MarkedProcess) -> (bool, u32) {
    (!found.is_guard, found.process.pid)
}

pub(super) fn end(mut found: Vec<MarkedProcess>, budget: Duration) -> SweepReport {
    let end = Instant::now() + budget;
    let left = || end.saturating_duration_since(Instant::now());
    let scopes: BTreeSet<_> = found
        .iter()
        .map(|f| (f.variable.clone(), f.scope.clone()))
        .collect();
    let own = own_ancestors();
    let mut met: BTreeMap<ProcessId, String> = BTreeMap::new();
    let mut idle_guards = BTreeSet::new();
    found.retain(|found| !own.contains(&found.process.pid));
    found.sort_by_key(order);
    loop {
        let all = proc_fs::all();
        for found in &found {
            let id = found.process;
            let is_ours = |now: &Stat| found.is_unmistakable || found.is_still(now.pid);
            if let Err(Errno::SRCH) = proc_fs::signal(id, Signal::KILL, is_ours)
                && id.is_alive()
            {
                // Another process got the pid in the same tick, or an exec is in progress, which the next search awaits.
                continue;
            }
            let is_new = met.insert(id, found.name.clone()).is_none();
            let below = proc_fs::below(id.pid, &all);
            if is_new && found.is_guard && below.is_empty() {
                idle_guards.insert(id);
            }
            // A child can have cleared its environment. The children of a guard are found by their marker, or end with it.
            let below = below.into_iter();
            for stat in below.filter(|stat| !found.is_guard && !own.contains(&stat.pid)) {
                let name = || proc_fs::name(stat.pid).name;
                met.entry(stat.id()).or_insert_with(name);
                let _gone_or_refused = proc_fs::signal(stat.id(), Signal::KILL, |_| true);
            }
        }
        wait_for_any(met.keys(), left().min(Duration::from_millis(5)));
        let find = |(variable, scope): &(String, String)| find(variable, scope, left());
        found = scopes.iter().flat_map(find).collect();
        let is_over = found.is_empty() && !met.keys().any(ProcessId::is_alive);
        if is_over || left().is_zero() {
            break;
        }
    }
    met.extend(found.into_iter().map(|it| (it.process, it.name)));
    // A guard that ran nothing when it was killed is no process that somebody left behind.
    met.retain(|id, _| !idle_guards.contains(id) || id.is_alive());
    let named = |(id, name): (ProcessId, String)| ProcessName { pid: id.pid, name };
    let (survivors, ended): (Vec<_>, Vec<_>) = met.into_iter().partition(|(id, _)| id.is_alive());
    SweepReport {
        ended: ended.into_iter().map(named).collect(),
        survivors: survivors.into_iter().map(named).collect(),
    }
}

impl MarkedProcess {
    /// Returns whether the process with this pid is what the search found.
    fn is_still(&self, pid: u32) -> bool {
        let found = if self.is_guard {
            Role::Guard
        } else {
            Role::Member
        };
        role(pid, &self.variable, &self.scope) == found
    }
}

/// Waits until one of the processes has ended, or the time is over.
fn wait_for_any<'a>(processes: impl Iterator<Item = &'a ProcessId>, time: Duration) {
    let open = |process: &ProcessId| {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
    };
    let alive = processes.filter(|process| process.is_alive());
    let pidfds: Vec<_> = alive.take(256).filter_map(open).collect();
    let mut fds: Vec<_> = pidfds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    if !fds.is_empty() {
        let _woken_or_due = rustix::event::poll(&mut fds, Some(&proc_fs::timespec(time)));
    }
}
