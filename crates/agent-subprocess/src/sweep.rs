//! The sweep: finds and ends by its marker what outlived host and guard.
//!
//! It goes by the marker in the environment, by the tag of the guard and by the start time, never by a name or a bare
//! pid. It never finds the calling process or an ancestor of it.
//!
//! What it cannot find: processes that cleared their environment or belong to another user, and zombies.
//! Outside Linux it finds nothing.

use crate::{ProcessId, ProcessName};
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// A process that carries the marker, or a guard with the tag of the scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Which process it is.
    pub process: ProcessId,
    /// Its command name.
    pub name: String,
    /// Whether it is a guard; else it carries the marker.
    pub is_guard: bool,
    variable: String,
    scope: String,
}

/// What came of a sweep, or of what a guard found after its host had died.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepReport {
    /// What was ended.
    pub ended: Vec<ProcessName>,
    /// What could not be ended.
    pub survivors: Vec<ProcessName>,
}

impl SweepReport {
    /// Reads the file that was named by [`survivors_file`](crate::AgentCommand::survivors_file): one report out of all
    /// that guards have left there. A file that is not there is an empty report, and a line that was cut off is skipped.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read(path: &Path) -> io::Result<SweepReport> {
        let mut report = SweepReport::default();
        let mut text = String::new();
        match std::fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(report),
            file => drop(file?.take(64 << 20).read_to_string(&mut text)?),
        }
        for line in text
            .lines()
            .filter_map(|line| serde_json::from_str::<SweepReport>(line).ok())
        {
            report.ended.extend(line.ended);
            report.survivors.extend(line.survivors);
        }
        Ok(report)
    }

    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only a guard appends")
    )]
    pub(crate) fn append(&self, path: &Path) -> io::Result<()> {
        // Not blocking: the path might have become a FIFO that nobody reads.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(path)?;
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        file.write_all(&line)
    }
}

/// Finds the processes whose environment has `variable=scope` or `variable=scope.…`, and the guards of the scope.
///
/// # Platform
/// Reads `/proc` of Linux; finds nothing elsewhere, or where `/proc` belongs to another pid namespace.
pub fn find(variable: &str, scope: &str) -> Vec<Found> {
    #[cfg(target_os = "linux")]
    return linux::find(variable, scope);
    #[cfg(not(target_os = "linux"))]
    {
        let _nothing_to_look_at = (variable, scope);
        Vec::new()
    }
}

/// Ends what was found, and what it has started since: guards first, then everything else, by SIGKILL, again and
/// again until nothing is found or `budget` has passed. Blocks for at most about `budget`.
///
/// Each process is signalled through a pidfd after its start time and its marker were checked once more.
pub fn end(found: Vec<Found>, budget: Duration) -> SweepReport {
    #[cfg(target_os = "linux")]
    return linux::end(found, budget);
    #[cfg(not(target_os = "linux"))]
    {
        let _nothing_to_do = budget;
        let survivors = found.into_iter().map(|found| ProcessName {
            pid: found.process.pid,
            name: found.name,
        });
        SweepReport {
            ended: Vec::new(),
            survivors: survivors.collect(),
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Found, SweepReport};
    use crate::{ProcessName, guard, marker, proc_fs};
    use rustix::event::{PollFd, PollFlags, Timespec};
    use rustix::process::{Pid, PidfdFlags, Signal};
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs::File;
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    /// The environment of a process is bounded by the kernel to about this.
    const MAX_ENVIRONMENT: u64 = 8 << 20;

    fn own_line() -> BTreeSet<u32> {
        let mut line = BTreeSet::new();
        let mut pid = std::process::id();
        while pid != 0 && line.insert(pid) {
            pid = proc_fs::stat(pid).map_or(0, |stat| stat.parent);
        }
        line
    }

    fn read(pid: u32, file: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{pid}/{file}")) {
            // Of a process that ends meanwhile, what was read so far is as good as nothing.
            let _partly = file.take(MAX_ENVIRONMENT).read_to_end(&mut bytes);
        }
        bytes
    }

    /// `Some(true)` for a guard of the scope, `Some(false)` for a process with its marker.
    fn kind(pid: u32, variable: &str, scope: &str) -> Option<bool> {
        let marked = read(pid, "environ").split(|byte| *byte == 0).any(|entry| {
            let value = entry
                .strip_prefix(variable.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"="));
            value
                .and_then(|value| value.strip_prefix(scope.as_bytes()))
                .is_some_and(|rest| matches!(rest, [] | [b'.', ..]))
        });
        if marked {
            return Some(false);
        }
        let line = read(pid, "cmdline");
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).take(3).collect();
        let guard = [
            guard::NAME.as_bytes(),
            guard::WORD.as_bytes(),
            marker::tag(scope).as_bytes(),
        ] == words[..];
        guard.then_some(true)
    }

    pub(super) fn find(variable: &str, scope: &str) -> Vec<Found> {
        if scope.is_empty() || !proc_fs::is_ours() {
            return Vec::new();
        }
        let own = own_line();
        let look = |pid| {
            // The start time first: if the pid is reused in between, the later check of both fails.
            let stat = proc_fs::stat(pid).filter(|stat| !stat.is_dead())?;
            let is_guard = kind(pid, variable, scope)?;
            let (variable, scope) = (variable.to_owned(), scope.to_owned());
            Some(Found {
                process: stat.id(),
                name: proc_fs::name(pid).name,
                is_guard,
                variable,
                scope,
            })
        };
        let mut found: Vec<Found> = proc_fs::pids()
            .filter(|pid| !own.contains(pid))
            .filter_map(look)
            .collect();
        found.sort_by_key(|found| (!found.is_guard, found.process.pid));
        found
    }

    pub(super) fn end(mut found: Vec<Found>, budget: Duration) -> SweepReport {
        let start = Instant::now();
        let scopes: BTreeSet<_> = found
            .iter()
            .map(|f| (f.variable.clone(), f.scope.clone()))
            .collect();
        let own = own_line();
        let mut met = BTreeMap::new();
        found.retain(|found| !own.contains(&found.process.pid));
        while !found.is_empty() {
            for found in &found {
                met.insert(found.process, found.name.clone());
                let still_ours = |now: &proc_fs::Stat| {
                    kind(now.pid, &found.variable, &found.scope) == Some(found.is_guard)
                };
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

    /// Waits until one of them has ended, or the time is over.
    fn wait_for_any(found: &[Found], time: Duration) {
        let open = |found: &Found| {
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
            let time = Timespec {
                tv_sec: 0,
                tv_nsec: time.subsec_nanos().into(),
            };
            let _woken_or_due = rustix::event::poll(&mut fds, Some(&time));
        }
    }
}
