//! One value instead of a history: the writer below is the same.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::error::{Error, Kind, Result};
use crate::heal::Healed;
use crate::load::{self, Index, Want};
use crate::meta::Meta;
use crate::options::Options;
use crate::raw_writer::RawWriter;
use crate::report::LoadReport;
use crate::writer::Loaded;

/// The phase name under which values are sealed.
const PHASE: &str = "value";
/// The newest value and the one to fall back to.
const KEEP: usize = 2;

/// Keeps one value in a directory, replaced as a whole and atomically.
///
/// The value before the last stays on disk, to fall back to when the newest file is
/// damaged. For a state that grows, [`Writer`](crate::Writer) costs less.
///
/// Dropping the store releases its lock and writes nothing.
#[derive(Debug)]
pub struct Store {
    raw: RawWriter,
    report: LoadReport,
}

impl Store {
    /// Opens the store in the directory `dir`, made with mode 0700 if it is missing,
    /// and takes its lock.
    ///
    /// # Errors
    /// As [`Writer::open`](crate::Writer::open).
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        RawWriter::open(dir.as_ref(), Options::default()).map(Self::opened)
    }

    /// Opens the store in a directory of any disk; messages call it `dir`.
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

    /// Saves a value. It is durable when this returns; costs in proportion to its size.
    ///
    /// # Errors
    /// A value that cannot be encoded fails before anything is written;
    /// [`is_full`](Error::is_full) if there is no room for it yet,
    /// [`is_fenced`](Error::is_fenced) if a newer writer took over,
    /// [`is_poisoned`](Error::is_poisoned) if it could be written nowhere.
    pub fn save<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let mut raw = Vec::new();
        codec::encode(&mut raw, value)
            .map_err(|err| Error::new(self.raw.dir().path(), Kind::Encode(err)))?;
        self.raw.save_phase(PHASE, raw, Meta::default())?;
        self.raw.keep_phases(KEEP)
    }

    /// Loads the newest valid value; none if nothing was saved yet.
    ///
    /// # Errors
    /// [`is_corrupt`](Error::is_corrupt) if there are files but no valid value; another
    /// error if the value is not a `T`.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let dir = self.raw.dir();
        let loaded = load::newest(dir, Index::read(dir, Want::Anything)?)?;
        Ok(Loaded::<T, ()>::decode(dir.path(), loaded)?.head)
    }

    /// Returns what was last written again to a new file; see
    /// [`Writer::last_heal`](crate::Writer::last_heal).
    pub fn last_heal(&self) -> Option<&Healed> {
        self.raw.healed()
    }

    /// Returns what was found when the store was opened: which files were damaged, if any.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }
}
