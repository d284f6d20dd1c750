//! The sweep by `/proc`, where the environment of a process contains its marker.

use super::{MarkedProcess, SweepReport};
use crate::{ProcessName, marker, proc_fs, times};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, Instant};

/// The kernel limits the environment of a process to about this size.
const MAX_ENVIRONMENT: u64 = 8 << 20;
/// The size that is enough for most environments.
const ROOM: usize = 8 << 10;
/// The wait between two reads of a process in the middle of an exec.
const ROUND: Duration = Duration::from_millis(1);

fn own_ancestors() -> BTreeSet<u32> {
    let mut line = BTreeSet::new();
    let mut pid = std::process::id();
    while pid != 0 && line.insert(pid) {
        pid = proc_fs::stat(pid).map_or(0, |stat| stat.parent);
    }
    line
}

/// Reads a file of a process. The buffer has room from the start: reading a file of unknown size in small pieces costs several times as much.
fn read(pid: u32, file: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ROOM);
    if let Ok(file) = File::open(format!("/proc/{pid}/{file}")) {
        // If the process ends during the read, the part that was read is useless, so the error doesn't matter.
        let _partly = file.take(MAX_ENVIRONMENT).read_to_end(&mut bytes);
    }
    bytes
}

/// The role of a process in a sweep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Guard,
    Member,
    Stranger,
    /// In the middle of an exec, it has neither arguments nor environment.
    InExec,
}

fn role(pid: u32, variable: &str, scope: &str) -> Role {
    let mut environment = read(pid, "environ");
    if environment.is_empty() {
        // Its exec can end between two reads, so the environment is read again after the arguments.
        let line = read(pid, "cmdline");
        environment = read(pid, "environ");
        if environment.is_empty() && line.is_empty() && is_in_exec(pid) {
            return Role::InExec;
        }
    }
    if is_marked(&environment, variable.as_bytes(), scope.as_bytes()) {
        return Role::Member;
    }
    let tag = marker::tag(scope);
    let guard = [
        marker::GUARD.as_bytes(),
        marker::GUARD_ARGUMENT.as_bytes(),
        tag.as_bytes(),
    ];
    match read(pid, "cmdline")
        .split(|byte| *byte == 0)
        .take(3)
        .eq(guard)
    {
        true => Role::Guard,
        false => Role::Stranger,
    }
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

/// Returns whether a process is in the middle of an exec. A dead process also has no arguments and no environment, so it is excluded.
fn is_in_exec(pid: u32) -> bool {
    proc_fs::stat(pid).is_some_and(|stat| !stat.is_dead() && !stat.is_kernel_thread())
}

fn pause(time: Duration) {
    let _nothing_to_wait_for_but_time = rustix::event::poll(&mut [], Some(&timespec(time)));
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: 0,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Searches a second time if the first search finds nothing: while a search reads one process after the other, a daemon can move on from a
/// process that it did not read yet to one that it does not know.
pub(super) fn find(variable: &str, scope: &str) -> Vec<MarkedProcess> {
    if scope.is_empty() || !proc_fs::is_ours() {
        return Vec::new();
    }
    let own = own_ancestors();
    let mut found = scan(variable, scope, &own);
    if found.is_empty() {
        found = scan(variable, scope, &own);
    }
    found.sort_by_key(order);
    found
}

fn scan(variable: &str, scope: &str, own: &BTreeSet<u32>) -> Vec<MarkedProcess> {
    let start = Instant::now();
    let mut found = Vec::new();
    let mut unread: Vec<u32> = proc_fs::pids().filter(|pid| !own.contains(pid)).collect();
    loop {
        // Read the start time first: if the pid is reused afterwards, the later check of start time and marker fails.
        let living = unread.into_iter().filter_map(proc_fs::stat);
        let living = living.filter(|stat| !stat.is_dead() && !stat.is_kernel_thread());
        let mut in_exec = Vec::new();
        for stat in living {
            let role = role(stat.pid, variable, scope);
            match role {
                Role::Stranger => {}
                Role::InExec => in_exec.push(stat.pid),
                Role::Guard | Role::Member => found.push(MarkedProcess {
                    process: stat.id(),
                    name: proc_fs::name(stat.pid).name,
                    is_guard: role == Role::Guard,
                    variable: variable.to_owned(),
                    scope: scope.to_owned(),
                }),
            }
        }
        if in_exec.is_empty() || start.elapsed() >= times::EXEC_TIMEOUT {
            return found;
        }
        pause(ROUND);
        unread = in_exec;
    }
}

/// Sorts guards first: otherwise a suspended guard could continue after its process tree has changed.
fn order(found: &MarkedProcess) -> (bool, u32) {
    (!found.is_guard, found.process.pid)
}

pub(super) fn end(mut found: Vec<MarkedProcess>, budget: Duration) -> SweepReport {
    let start = Instant::now();
    let scopes: BTreeSet<_> = found
        .iter()
        .map(|f| (f.variable.clone(), f.scope.clone()))
        .collect();
    let own = own_ancestors();
    let mut met = BTreeMap::new();
    found.retain(|found| !own.contains(&found.process.pid));
    found.sort_by_key(order);
    while !found.is_empty() {
        for found in &found {
            met.insert(found.process, found.name.clone());
            let expected = if found.is_guard {
                Role::Guard
            } else {
                Role::Member
            };
            let still_ours =
                |now: &proc_fs::Stat| role(now.pid, &found.variable, &found.scope) == expected;
            let _gone_or_refused = proc_fs::signal(found.process, Signal::KILL, still_ours);
        }
        let left = budget.saturating_sub(start.elapsed());
        wait_for_any(&found, left.min(Duration::from_millis(5)));
        found = scopes
            .iter()
            .flat_map(|(variable, scope)| find(variable, scope))
            .collect();
        if left.is_zero() {
            break;
        }
    }
    let named = |(id, name): (crate::ProcessId, String)| ProcessName { pid: id.pid, name };
    let alive: BTreeSet<_> = found.iter().map(|found| found.process).collect();
    let (survivors, ended): (Vec<_>, Vec<_>) =
        met.into_iter().partition(|(id, _)| alive.contains(id));
    SweepReport {
        ended: ended.into_iter().map(named).collect(),
        survivors: survivors.into_iter().map(named).collect(),
    }
}

/// Waits until one of the processes has ended, or the time is over.
fn wait_for_any(found: &[MarkedProcess], time: Duration) {
    let open = |found: &MarkedProcess| {
        let pid = i32::try_from(found.process.pid)
            .ok()
            .and_then(Pid::from_raw)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
    };
    let pidfds: Vec<_> = found.iter().take(256).filter_map(open).collect();
    let mut fds: Vec<_> = pidfds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    if !fds.is_empty() {
        let _woken_or_due = rustix::event::poll(&mut fds, Some(&timespec(time)));
    }
}
