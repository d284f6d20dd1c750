//! Lists the stores of a directory with their health.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::id::Seq;
use crate::load::LoadPurpose;
use crate::lock;
use crate::reader::newest;
use crate::report::LoadReport;

/// The health of a listed store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// The newest state is valid.
    Valid,
    /// Nothing was saved yet.
    Empty,
    /// The newest state is damaged; an older one is valid.
    Damaged,
    /// No valid state is left, or a newer program wrote the store; the text has the reason.
    Unreadable(String),
}

/// One store in a directory of stores.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Name of its directory.
    pub name: String,
    /// Path of its directory.
    pub path: PathBuf,
    /// Whether the store can be loaded, and whether it is damaged.
    pub health: Health,
    /// Whether a writer has it open.
    pub locked: bool,
    /// The number of the newest valid save.
    pub seq: Seq,
    /// The time when its newest file was last written, by the clock of the machine that wrote it.
    pub modified: Option<SystemTime>,
    /// Whether the newest state is a finished phase whose metadata has `finished` set.
    pub finished: bool,
    /// The origin of the state, and the damage.
    pub report: LoadReport,
}

impl Entry {
    /// Returns whether there is a state from which the work can continue, and the work is not complete.
    pub fn is_resumable(&self) -> bool {
        matches!(self.health, Health::Valid | Health::Damaged) && !self.finished
    }
}

/// Lists the stores directly below `root`, by name. A store that cannot be read is listed as unreadable, never hidden; names that begin with a dot
/// are skipped. To determine the health, this reads each store completely.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no such directory; another error if it cannot be listed.
pub fn list(root: impl AsRef<Path>) -> Result<Vec<Entry>> {
    let root = root.as_ref();
    let failed = |err: std::io::Error| match err.kind() {
        std::io::ErrorKind::NotFound => Error::new(root, Kind::NotFound("directory")),
        _ => Error::io(root, "list the directory", err),
    };
    let mut entries = Vec::new();
    for found in fs_err::read_dir(root).map_err(failed)? {
        let found = found.map_err(failed)?;
        let hidden = found.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden
            && found.file_type().map_err(failed)?.is_dir()
            && let Some(entry) = entry(found.path())?
        {
            entries.push(entry);
        }
    }
    entries.sort_by(|a: &Entry, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Returns `None` for a directory that is not a store.
fn entry(path: PathBuf) -> Result<Option<Entry>> {
    let dir = Dir::open(&path);
    describe(path, dir)
}

/// Lists one store in a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn entry_on(disk: Box<dyn crate::disk::Directory>, dir: &Path) -> Result<Option<Entry>> {
    describe(dir.to_owned(), Dir::on(disk, dir))
}

fn describe(path: PathBuf, dir: Result<Dir>) -> Result<Option<Entry>> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut entry = Entry {
        name,
        path,
        health: Health::Empty,
        locked: false,
        seq: Seq::ZERO,
        modified: None,
        finished: false,
        report: LoadReport::default(),
    };
    let read = dir.and_then(|dir| {
        if dir.own()?.is_empty() {
            return Ok(None);
        }
        entry.locked = lock::is_held(&dir)?;
        let loaded = newest(&dir, LoadPurpose::Anything)?;
        if let Some(used) = &loaded.report.used {
            entry.modified = dir.disk().stat(used).ok().map(|stat| stat.modified);
        }
        Ok(Some(loaded))
    });
    match read {
        Ok(None) => return Ok(None),
        Ok(Some(loaded)) => {
            entry.seq = Seq::new(loaded.seq);
            entry.finished = loaded.is_finished();
            entry.report = loaded.report;
            entry.health = match &entry.report.used {
                None => Health::Empty,
                Some(_) if entry.report.is_undamaged() => Health::Valid,
                Some(_) => Health::Damaged,
            };
        }
        Err(err) if err.is_not_found() => return Ok(None),
        Err(err) => entry.health = Health::Unreadable(err.to_string()),
    }
    Ok(Some(entry))
}
