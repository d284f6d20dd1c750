//! The report of a sweep, and the file in which a guard leaves it. It is separate from the sweep, because an error can have a report.

use crate::ProcessName;
use crate::plain_file::{self, SymlinkPolicy};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// The result of a sweep, or of the cleanup of a guard after its host died.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepReport {
    /// The processes that were ended.
    pub ended: Vec<ProcessName>,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
}

impl SweepReport {
    /// Reads the file of [`survivors_file`](crate::TreeCommand::survivors_file) and merges all reports that guards wrote there. A missing file gives
    /// an empty report. A truncated line is skipped.
    ///
    /// # Errors
    /// Fails if the file exists and cannot be read.
    pub fn read(path: &Path) -> io::Result<SweepReport> {
        let mut report = SweepReport::default();
        let mut bytes = Vec::new();
        match plain_file::open(path, OFlags::RDONLY, SymlinkPolicy::Above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(report),
            file => drop(file?.take(64 << 20).read_to_end(&mut bytes)?),
        }
        // Split by bytes: a line can be truncated inside a character.
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
        // The host resolved the path before, so a link in it was planted later.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let mut file = plain_file::open(path, flags, SymlinkPolicy::None)?;
        if rustix::fs::fstat(&file)?.st_nlink > 1 {
            return Err(io::Error::other("the file has a second name (a hard link)"));
        }
        // The line before can be truncated.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, self)?;
        line.push(b'\n');
        file.write_all(&line)
    }
}
