//! The sweep: finds and ends by its marker what outlived host and guard.
//!
//! It goes by the marker in the environment, by the tag of the guard and by the start time, never by a name or a bare
//! pid. It never finds the calling process or an ancestor of it.
//!
//! What it cannot find: processes that cleared their environment or belong to another user, and zombies.
//! Outside Linux it finds nothing.

#[cfg(target_os = "linux")]
mod linux;

use crate::plain_file::{self, Links};
use crate::{ProcessId, ProcessName};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
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
        let mut bytes = Vec::new();
        match plain_file::open(path, OFlags::RDONLY, Links::Above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(report),
            file => drop(file?.take(64 << 20).read_to_end(&mut bytes)?),
        }
        // By bytes: a cut inside of a character is no more than a cut.
        for line in bytes
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<SweepReport>(line).ok())
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
        // The host has resolved the path: a link in it now was planted since.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let mut file = plain_file::open(path, flags, Links::None)?;
        if rustix::fs::fstat(&file)?.st_nlink > 1 {
            return Err(io::Error::other("it has a second name (a hard link)"));
        }
        // The line before may have been cut off.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, self)?;
        line.push(b'\n');
        file.write_all(&line)
    }
}

/// Looks whether a report could be added to a file, and leaves nothing behind. Takes no descriptor, and waits for no FIFO.
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
