//! What a load tells besides the state: where it came from, and what was wrong on the way.

use std::fmt;

use crate::id::PhaseId;
use crate::meta::PhaseInfo;

/// A file that could not be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Its name in the store's directory.
    pub file: String,
    /// What is wrong.
    pub reason: String,
    /// Where, in bytes from its start; zero also if it is the whole file.
    pub offset: u64,
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

/// Says where a loaded state came from and what was wrong on the way.
///
/// Its `Display` is one line for each thing worth a person's attention.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// The newest file of the loaded state; none if the store is empty.
    pub used: Option<String>,
    /// Identifies that file for ever, over copies and moves.
    pub file: Option<PhaseId>,
    /// The sealed phase that the state is, or stands on.
    pub phase: Option<PhaseInfo>,
    /// Name and version of the schema that the used file was written with.
    pub schema: Option<(String, u32)>,
    /// The epoch of the writer of the used file.
    pub epoch: u64,
    /// Files that were damaged or are none, newest first. If there are any, an older state
    /// than the last acknowledged one may have been loaded.
    pub skipped: Vec<Skipped>,
    /// Where writers moved the skipped files to; nothing damaged is ever deleted.
    pub set_aside: Vec<String>,
    /// Bytes of a save that a crash cut. It was not acknowledged, so nothing is lost.
    pub repaired_tail: Option<u64>,
    /// Temporary files of earlier writers that were removed.
    pub removed_temps: usize,
}

impl LoadReport {
    /// Tells whether the newest state was loaded, as far as can be known.
    pub fn is_sound(&self) -> bool {
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
                "left out {bytes} bytes of a save that was cut before it was acknowledged"
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
