//! Reading a store without a lock and without writing anything, also while a writer lives.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use crate::blob as blobs;
use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::id::Seq;
use crate::load::{self, Index};
use crate::lock;
use crate::meta::PhaseInfo;
use crate::report::LoadReport;
use crate::writer::Loaded;

/// How often damage is looked at again: a writer at work may have replaced a file, or
/// been inside a save, between two looks.
const LOOKS: usize = 4;

/// Loads the newest valid state.
///
/// A save that a live writer has just begun is left out, as one that a crash cut.
/// The schema is not checked; the report names it.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no directory,
/// [`is_corrupt`](Error::is_corrupt) if there are files but no valid state,
/// [`is_unsupported_version`](Error::is_unsupported_version) if a newer container is found.
pub fn load<H: DeserializeOwned, E: DeserializeOwned>(
    dir: impl AsRef<Path>,
) -> Result<Loaded<H, E>> {
    let dir = Dir::open(dir.as_ref())?;
    Loaded::decode(dir.path(), newest(&dir)?)
}

/// [`load`] from a directory of any disk; messages call it `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn load_on<H: DeserializeOwned, E: DeserializeOwned>(
    disk: Box<dyn crate::disk::Directory>,
    dir: &Path,
) -> Result<Loaded<H, E>> {
    let dir = Dir::on(disk, dir)?;
    Loaded::decode(dir.path(), newest(&dir)?)
}

/// [`blob`] from a directory of any disk; messages call it `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn blob_on(disk: Box<dyn crate::disk::Directory>, dir: &Path, name: &str) -> Result<Vec<u8>> {
    blobs::get(&Dir::on(disk, dir)?, name)
}

fn newest(dir: &Dir) -> Result<load::Loaded> {
    let mut look = 1;
    loop {
        let loaded = Index::read(dir, None).and_then(|index| load::newest(dir, index));
        let sound = match &loaded {
            Ok(loaded) => loaded.report.is_sound(),
            Err(err) => !err.is_corrupt(),
        };
        if sound || look == LOOKS {
            return loaded;
        }
        look += 1;
    }
}

/// Lists the sealed phases of a store, newest first; of damaged files only those whose
/// beginning is good.
///
/// # Errors
/// As [`load`].
pub fn phases(dir: impl AsRef<Path>) -> Result<Vec<PhaseInfo>> {
    let dir = Dir::open(dir.as_ref())?;
    let index = Index::read(&dir, None)?;
    Ok(index
        .entries
        .iter()
        .filter_map(|entry| entry.meta.phase_info())
        .collect())
}

/// Loads the newest valid checkpoint that was sealed under the name `phase`.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if no phase was sealed yet,
/// [`is_other_phase`](Error::is_other_phase) if only others were,
/// [`is_corrupt`](Error::is_corrupt) if those of this name are all damaged.
pub fn load_phase<H: DeserializeOwned, E: DeserializeOwned>(
    dir: impl AsRef<Path>,
    phase: &str,
) -> Result<Loaded<H, E>> {
    let dir = Dir::open(dir.as_ref())?;
    let mut index = Index::read(&dir, None)?;
    index.entries.retain(|entry| entry.meta.phase.is_some());
    let mut others: Vec<String> = index
        .entries
        .iter()
        .filter_map(|e| e.meta.phase.clone())
        .collect();
    index
        .entries
        .retain(|entry| entry.meta.phase.as_deref() == Some(phase));
    index
        .skipped
        .retain(|skipped| skipped.file.starts_with("phase-"));
    if index.entries.is_empty() && index.skipped.is_empty() {
        others.sort();
        others.dedup();
        let (found, wanted) = (others.join(", "), phase.to_owned());
        let kind = match others.is_empty() {
            true => Kind::NotFound("sealed phase"),
            false => Kind::OtherPhase { found, wanted },
        };
        return Err(Error::new(dir.path(), kind));
    }
    Loaded::decode(dir.path(), load::newest(&dir, index)?)
}

/// Returns the bytes of a blob.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is none of that name.
pub fn blob(dir: impl AsRef<Path>, name: &str) -> Result<Vec<u8>> {
    blobs::get(&Dir::open(dir.as_ref())?, name)
}

/// Tells whether a writer has the store open.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no directory.
pub fn is_locked(dir: impl AsRef<Path>) -> Result<bool> {
    lock::is_held(&Dir::open(dir.as_ref())?)
}

/// How well a listed store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The newest state is valid.
    Sound,
    /// Nothing was saved yet.
    Empty,
    /// The newest state is damaged; an older one is valid.
    Damaged,
    /// No valid state is left, or a newer program wrote it; the text says which.
    Unreadable(String),
}

/// One store in a directory of stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of its directory.
    pub name: String,
    /// Path of its directory.
    pub path: PathBuf,
    /// Whether it can be loaded.
    pub health: Health,
    /// Whether a writer has it open.
    pub locked: bool,
    /// The number of its newest valid save.
    pub seq: Seq,
    /// When its newest file was last written to, by the clock of that machine.
    pub modified: Option<SystemTime>,
    /// Where the state comes from and what was damaged.
    pub report: LoadReport,
}

/// Lists the stores right below `root`, by name. Those that cannot be read are listed as
/// such, never hidden. Reads each whole, so that the health is true.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no such directory, or one that
/// cannot be listed.
pub fn list(root: impl AsRef<Path>) -> Result<Vec<Entry>> {
    let root = root.as_ref();
    let failed = |err: std::io::Error| match err.kind() {
        std::io::ErrorKind::NotFound => Error::new(root, Kind::NotFound("directory")),
        _ => Error::io(root, "list the directory", err),
    };
    let mut entries = Vec::new();
    for found in fs_err::read_dir(root).map_err(failed)? {
        let found = found.map_err(failed)?;
        if found.file_type().map_err(failed)?.is_dir()
            && let Some(entry) = entry(found.path())?
        {
            entries.push(entry);
        }
    }
    entries.sort_by(|a: &Entry, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Returns none for a directory that is not a store.
fn entry(path: PathBuf) -> Result<Option<Entry>> {
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
        report: LoadReport::default(),
    };
    let read = Dir::open(&entry.path).and_then(|dir| {
        if dir.own()?.is_empty() {
            return Ok(None);
        }
        entry.locked = lock::is_held(&dir)?;
        newest(&dir).map(Some)
    });
    match read {
        Ok(None) => return Ok(None),
        Ok(Some(loaded)) => {
            entry.seq = Seq::new(loaded.seq);
            entry.report = loaded.report;
            entry.health = match &entry.report.used {
                None => Health::Empty,
                Some(_) if entry.report.is_sound() => Health::Sound,
                Some(_) => Health::Damaged,
            };
            let used = entry.report.used.as_ref().map(|file| entry.path.join(file));
            entry.modified = used
                .and_then(|file| fs_err::symlink_metadata(file).ok())
                .and_then(|meta| meta.modified().ok());
        }
        Err(err) if err.is_not_found() => return Ok(None),
        Err(err) => entry.health = Health::Unreadable(err.to_string()),
    }
    Ok(Some(entry))
}
