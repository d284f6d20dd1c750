//! The sweep: finds and ends, by their marker, the processes that outlived host and guard.
//!
//! A sweep uses the marker in the environment, the tag of the guard and the start time, never a name or a bare pid. It never finds the calling
//! process or one of its ancestors.
//!
//! It cannot find processes that cleared or overwrote their environment, that forbid reading it (`ssh-agent`), or that belong to another user. It ignores
//! zombies. Outside Linux, it finds nothing.

#[cfg(target_os = "linux")]
mod linux;

use crate::ProcessId;
use std::io;
use std::path::Path;
use std::time::Duration;

pub use crate::sweep_report::SweepReport;

/// A process with the marker, or a guard with the tag of the scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MarkedProcess {
    /// The identity of the process.
    pub process: ProcessId,
    /// Its command name.
    pub name: String,
    /// Whether it is a guard; otherwise it has the marker.
    pub is_guard: bool,
    /// Whether no later process can have the same pid and start time: it was found after the tick in which it started.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux is searched")
    )]
    is_unmistakable: bool,
    variable: String,
    scope: String,
}

/// Checks whether a report can be appended to a file. It leaves no file behind, opens no descriptor and waits for no FIFO.
pub(crate) fn check_report(path: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    use rustix::io::Errno;
    if path.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    let allowed = match access(path, Access::WRITE_OK) {
        Err(Errno::NOENT) => {
            let directory = path.parent().unwrap_or(path);
            access(directory, Access::WRITE_OK | Access::EXEC_OK)
        }
        known => known,
    };
    Ok(allowed?)
}

/// Finds the processes whose environment has `variable=scope` or `variable=scope.…`, and the guards of the scope.
///
/// In the middle of an exec, a process has no environment. The search waits up to 250 ms for such processes.
///
/// # Platform
/// Reads `/proc` of Linux; finds nothing on other systems, or if `/proc` belongs to another pid namespace.
pub fn find(variable: &str, scope: &str) -> Vec<MarkedProcess> {
    #[cfg(target_os = "linux")]
    return linux::find(variable, scope, crate::times::EXEC_TIMEOUT);
    #[cfg(not(target_os = "linux"))]
    {
        let _nothing_to_look_at = (variable, scope);
        Vec::new()
    }
}

/// Finds the processes with this marker. Waits at most `wait` for those that can't be read yet.
#[cfg(target_os = "linux")]
pub(crate) fn find_within(marker: &crate::Marker, wait: Duration) -> Vec<MarkedProcess> {
    linux::find(&marker.variable, &marker.value(), wait)
}

/// Ends the found processes, their descendants, and what they started since: guards first, then the others, by SIGKILL. Repeats until a search finds
/// nothing and all of them are gone, or `budget` has passed. Blocks for at most about `budget`. The report doesn't name an ended guard that ran nothing.
///
/// Each process gets its signal through a pidfd, after another check of its start time. A process that was found within 10 ms of its start must also
/// still have its marker, because another process can have its pid and start time by then.
pub fn end(found: Vec<MarkedProcess>, budget: Duration) -> SweepReport {
    #[cfg(target_os = "linux")]
    return linux::end(found, budget);
    #[cfg(not(target_os = "linux"))]
    {
        let _nothing_to_do = budget;
        let survivors = found.into_iter().map(|found| crate::ProcessName {
            pid: found.process.pid,
            name: found.name,
        });
        SweepReport {
            ended: Vec::new(),
            survivors: survivors.collect(),
        }
    }
}
