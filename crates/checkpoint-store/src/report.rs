//! The report of a load: the origin of the state, and the damage that the load found.

use std::fmt;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::frame::FrameFault;
use crate::id::PhaseId;
use crate::meta::PhaseInfo;

/// A file that could not be used, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Its name in the store's directory.
    pub file: String,
    /// The problem.
    pub reason: String,
    /// The place of the problem, in bytes from the start of the file; zero if the whole file is affected.
    pub offset: u64,
}

impl Skipped {
    /// Makes a line of the report from damage, and an error from any other fault.
    pub(crate) fn damaged(dir: &Dir, name: &str, fault: FrameFault) -> Result<Self> {
        match fault {
            FrameFault::Damaged { offset, reason } => Ok(Self {
                file: name.into(),
                reason: reason.into(),
                offset: offset as u64,
            }),
            newer => Err(Error::fault(dir.path().join(name), newer)),
        }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.reason)?;
        match self.offset {
            0 => Ok(()),
            offset => write!(f, " at byte {offset}"),
        }
    }
}

/// The origin of a loaded state, and the damage that the load found.
///
/// Its `Display` prints one line for each fact that a person may need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// The newest file of the loaded state; `None` if the store is empty.
    pub used: Option<String>,
    /// The permanent id of that file, the same in every copy.
    pub file: Option<PhaseId>,
    /// The finished phase that has this state, or the finished phase before it.
    pub phase: Option<PhaseInfo>,
    /// Name and version of the schema that the used file was written with.
    pub schema: Option<(String, u32)>,
    /// The epoch of the writer of the used file.
    pub epoch: u64,
    /// Files that were damaged, or that are no regular files; newest first. If there are any, the loaded state may be older than the last
    /// acknowledged one.
    pub skipped: Vec<Skipped>,
    /// The new places of the skipped files; a writer never deletes a damaged file.
    pub set_aside: Vec<String>,
    /// Bytes of a save that a crash left incomplete. It was not acknowledged, so nothing is lost.
    pub repaired_tail: Option<u64>,
    /// Temporary files of earlier writers that were removed.
    pub removed_temps: usize,
}

impl LoadReport {
    /// Returns whether the load found no damage, so that the state is the newest one as far as the files show.
    pub fn is_undamaged(&self) -> bool {
        self.skipped.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.used, &self.phase) {
            (None, _) => writeln!(f, "nothing was saved yet")?,
            (Some(used), Some(info)) => {
                writeln!(
                    f,
                    "loaded {used} (phase `{}`, save {})",
                    info.phase, info.seq
                )?;
            }
            (Some(used), None) => writeln!(f, "loaded {used}")?,
        }
        for skipped in &self.skipped {
            writeln!(f, "damaged: {skipped}")?;
        }
        for file in &self.set_aside {
            writeln!(f, "set aside: {file}")?;
        }
        if let Some(bytes) = self.repaired_tail {
            writeln!(
                f,
                "ignored {bytes} bytes of an incomplete save, which was never acknowledged"
            )?;
        }
        if self.removed_temps > 0 {
            writeln!(
                f,
                "removed {} temporary file(s) of earlier writers",
                self.removed_temps
            )?;
        }
        Ok(())
    }
}
