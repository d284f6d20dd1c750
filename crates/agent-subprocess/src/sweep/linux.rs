//! The sweep by `/proc`, where the environment of a process contains its marker.

use super::{MarkedProcess, SweepReport};
use crate::{ProcessName, marker, proc_fs};
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
/// The maximum number of reads of a process in the middle of an exec.
const MAX_TRIES: u32 = 10;

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
}

/// Returns the role of a process. In the middle of an exec it has neither arguments nor environment, so this function reads it again.
fn kind(pid: u32, variable: &str, scope: &str) -> Role {
    for attempt in 0..MAX_TRIES {
        let environment = read(pid, "environ");
        if is_marked(&environment, variable.as_bytes(), scope.as_bytes()) {
            return Role::Member;
        }
        let line = read(pid, "cmdline");
        if environment.is_empty() && line.is_empty() && is_in_exec(pid) {
            pause(Duration::from_millis(1));
            continue;
        }
        if environment.is_empty() && attempt == 0 {
            // Its exec can have ended between the two reads, so read both again.
            continue;
        }
        let tag = marker::tag(scope);
        let guard = [
            marker::GUARD.as_bytes(),
            marker::GUARD_ARGUMENT.as_bytes(),
            tag.as_bytes(),
        ];
        return match line.split(|byte| *byte == 0).take(3).eq(guard) {
            true => Role::Guard,
            false => Role::Stranger,
        };
    }
    Role::Stranger
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

pub(super) fn find(variable: &str, scope: &str) -> Vec<MarkedProcess> {
    if scope.is_empty() || !proc_fs::is_ours() {
        return Vec::new();
    }
    let own = own_ancestors();
    let marked = |pid| {
        // Read the start time first: if the pid is reused afterwards, the later check of start time and marker fails.
        let stat = proc_fs::stat(pid)?;
        if stat.is_dead() || stat.is_kernel_thread() {
            return None;
        }
        let is_guard = match kind(pid, variable, scope) {
            Role::Stranger => return None,
            kind => kind == Role::Guard,
        };
        let (variable, scope) = (variable.to_owned(), scope.to_owned());
        Some(MarkedProcess {
            process: stat.id(),
            name: proc_fs::name(pid).name,
            is_guard,
            variable,
            scope,
        })
    };
    let mut found: Vec<MarkedProcess> = proc_fs::pids()
        .filter(|pid| !own.contains(pid))
        .filter_map(marked)
        .collect();
    found.sort_by_key(order);
    found
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
    // A process that forks during one scan is found by the next scan.
    let mut empty_scans = 0;
    while empty_scans < 2 && !scopes.is_empty() {
        for found in &found {
            met.insert(found.process, found.name.clone());
            let expected = if found.is_guard {
                Role::Guard
            } else {
                Role::Member
            };
            let still_ours =
                |now: &proc_fs::Stat| kind(now.pid, &found.variable, &found.scope) == expected;
            let _gone_or_refused = proc_fs::signal(found.process, Signal::KILL, still_ours);
        }
        let left = budget.saturating_sub(start.elapsed());
        wait_for_any(&found, left.min(Duration::from_millis(5)));
        found = scopes
            .iter()
            .flat_map(|(variable, scope)| find(variable, scope))
            .collect();
        empty_scans = if found.is_empty() { empty_scans + 1 } else { 0 };
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
