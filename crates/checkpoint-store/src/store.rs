//! A store of one value, without a history. `RawWriter` saves each value as a phase.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::error::{Error, Kind, Result};
use crate::load::{self, Index, LoadPurpose};
use crate::meta::PhaseMeta;
use crate::options::Options;
use crate::raw_writer::RawWriter;
use crate::repair::Repaired;
use crate::report::LoadReport;
use crate::writer::Loaded;

/// The name of the phases that hold the values.
const PHASE: &str = "value";
/// The number of values on disk: the newest one, and the one before it as a fallback.
const KEEP: usize = 2;

/// A directory that holds one value. Each save replaces the value as a whole, atomically.
///
/// The previous value stays on disk as a fallback if the newest file is damaged. For a state that grows, [`Writer`](crate::Writer) costs less.
///
/// Dropping the store releases its lock and writes nothing.
#[derive(Debug)]
pub struct Store {
    raw: RawWriter,
    report: LoadReport,
}

impl Store {
    /// Opens the store in the directory `dir` and takes its lock. Makes the directory with mode 0700 if it is missing.
    ///
    /// # Errors
    /// As [`Writer::open`](crate::Writer::open).
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        RawWriter::open(dir.as_ref(), Options::default()).map(Self::opened)
    }

    /// Opens the store in a directory of any disk; error messages show `dir`.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn open_on(disk: Box<dyn crate::disk::Directory>, dir: &Path) -> Result<Self> {
        let dir = crate::dir::Dir::on(disk, dir)?;
        RawWriter::open_on(dir, Options::default()).map(Self::opened)
    }

    fn opened((raw, loaded): (RawWriter, load::Loaded)) -> Self {
        Self {
            raw,
            report: loaded.report,
        }
    }

    /// Saves a value. It is durable when this returns; the cost is proportional to its size.
    ///
    /// # Errors
    /// A value that cannot be encoded fails before anything is written; [`is_full`](Error::is_full) if the disk has no room for it,
    /// [`is_fenced`](Error::is_fenced) if a newer writer took over, [`is_poisoned`](Error::is_poisoned) if the value could not be written to a new
    /// file either.
    pub fn save<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let mut raw = Vec::new();
        codec::encode(&mut raw, value)
            .map_err(|err| Error::new(self.raw.dir().path(), Kind::Encode(err)))?;
        self.raw.save_phase(PHASE, raw, PhaseMeta::default())?;
        self.raw.keep_phases(KEEP)
    }

    /// Loads the newest valid value; `None` if nothing was saved yet.
    ///
    /// # Errors
    /// [`is_corrupt`](Error::is_corrupt) if there are files but no valid value; another
    /// error if the value is not a `T`.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let dir = self.raw.dir();
        let loaded = load::newest(dir, Index::read(dir, LoadPurpose::Anything)?)?;
        Ok(Loaded::<T, ()>::decode(dir.path(), loaded)?.head)
    }

    /// Returns the last repair; see [`Writer::last_repair`](crate::Writer::last_repair).
    pub fn last_repair(&self) -> Option<&Repaired> {
        self.raw.last_repair()
    }

    /// Returns the report of opening the store, with the damaged files, if any.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }
}
