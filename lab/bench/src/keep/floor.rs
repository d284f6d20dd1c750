//! The floors: one write and one sync of the new data, as bytes that were encoded before.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fs_err::File;

use super::keeper::{Keeper, cbor};
use crate::harness::Result;
use crate::transcript::Delta;

/// Reserved room for the saves of a run.
const ROOM: usize = 16 << 20;

/// Appends to the end of a file that grows.
pub(crate) struct Append(File);

impl Append {
    pub(crate) fn begin(dir: &Path, base: &[Delta]) -> Result<Self> {
        let mut file = File::create(dir.join("raw"))?;
        for delta in base {
            file.write_all(&cbor(delta)?)?;
        }
        file.sync_all()?;
        Ok(Self(file))
    }
}

impl Keeper for Append {
    fn save(&mut self, delta: &Delta) -> Result<Duration> {
        let raw = cbor(delta)?;
        let begun = Instant::now();
        self.0.write_all(&raw)?;
        self.0.sync_data()?;
        Ok(begun.elapsed())
    }
}

/// Overwrites zeros that were written and synced before, so that a sync has no size and no blocks to record.
pub(crate) struct Overwrite {
    file: File,
    end: u64,
}

impl Overwrite {
    pub(crate) fn begin(dir: &Path, base: &[Delta]) -> Result<Self> {
        let Append(mut file) = Append::begin(dir, base)?;
        let end = file.metadata()?.len();
        file.write_all(&vec![0; ROOM])?;
        file.sync_all()?;
        Ok(Self { file, end })
    }
}

impl Keeper for Overwrite {
    fn save(&mut self, delta: &Delta) -> Result<Duration> {
        let raw = cbor(delta)?;
        let begun = Instant::now();
        self.file.file().write_all_at(&raw, self.end)?;
        self.file.sync_data()?;
        let took = begun.elapsed();
        self.end += raw.len() as u64;
        Ok(took)
    }
}
