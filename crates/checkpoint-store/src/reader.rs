//! Reads a store without a lock and without writing, also while a writer is live.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::blob as blobs;
use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::fold::Folded;
pub use crate::history::history;
use crate::id::Seq;
pub use crate::list::{Entry, Health, list};
use crate::load::{self, Index, LoadPurpose};
use crate::lock::{self, Lock};
use crate::meta::PhaseInfo;
use crate::newest_head;
use crate::options::Options;
use crate::replay::Needed;
use crate::writer::Loaded;

/// The number of reads before a load reports damage: during a read, a live writer may have replaced a file, or may have been inside a save.
const MAX_READS: usize = 4;

/// Loads the newest valid state.
///
/// A save that a live writer has just begun is left out, like one that a crash left incomplete.
/// The schema is not checked; the report names it.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no directory,
/// [`is_corrupt`](Error::is_corrupt) if there are files but no valid state,
/// [`is_unsupported_version`](Error::is_unsupported_version) if a newer container is found.
pub fn load<H: DeserializeOwned, E: DeserializeOwned + Send>(
    dir: impl AsRef<Path>,
) -> Result<Loaded<H, E>> {
    let dir = Dir::open(dir.as_ref())?;
    Loaded::decode(dir.path(), newest(&dir, LoadPurpose::Anything)?)
}

/// Loads the newest valid state of the schema that `options` name, migrated to its version.
///
/// A newer version can be read if its writer permits this; see [`Options::min_reader_version`].
///
/// # Errors
/// As [`load`](fn@load); also for another schema, for damage in strict mode, and if a step of the migrations fails.
pub fn load_with<H: DeserializeOwned, E: DeserializeOwned + Send>(
    dir: impl AsRef<Path>,
    options: &Options,
) -> Result<Loaded<H, E>> {
    let dir = Dir::open(dir.as_ref())?;
    Loaded::decode(dir.path(), newest(&dir, LoadPurpose::Reader(options))?)
}

/// Loads only the head of the state that [`load_with`] loads. This is much faster for a long history, because the events are checked by their checksums,
/// but neither unpacked nor decoded. For a store without damage, a small part of a file is in memory at a time.
///
/// So it does not notice an event whose checksum is right, and which nevertheless cannot be unpacked, decoded or migrated.
///
/// # Errors
/// As [`load_with`].
pub fn head<H: DeserializeOwned>(
    dir: impl AsRef<Path>,
    options: &Options,
) -> Result<Folded<H, ()>> {
    head_in(&Dir::open(dir.as_ref())?, LoadPurpose::Reader(options))
}

/// Does the same as [`head`], of any schema, from a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn head_on<H: DeserializeOwned>(
    disk: Box<dyn crate::disk::Directory>,
    dir: &Path,
) -> Result<Folded<H, ()>> {
    head_in(&Dir::on(disk, dir)?, LoadPurpose::Anything)
}

fn head_in<H: DeserializeOwned>(dir: &Dir, purpose: LoadPurpose<'_>) -> Result<Folded<H, ()>> {
    if let Ok(Some(raw)) = newest_head::read(dir, purpose) {
        return Folded::without_events(dir.path(), raw);
    }
    let raw = match newest_as(dir, purpose, Needed::NewestHead) {
        Ok(raw) if raw.report.is_undamaged() => raw,
        // With damage, the payloads decide which save is the newest valid one.
        _ => newest(dir, purpose)?,
    };
    Folded::without_events(dir.path(), raw)
}

/// Loads the same state as [`load_with`], and passes its events to `each` one at a time, oldest first, instead of returning them all. `each` gets the
/// value so far, first `start`, and returns the next one.
///
/// One event at a time is in memory, beside its encoded form. The encoded events of the whole state stay in memory until `each` got them.
///
/// # Errors
/// As [`load_with`]. If an event can't be decoded, `each` has got the events before it, and their value is dropped.
///
/// # Examples
///
/// ```
/// use checkpoint_store::{Options, Writer, reader};
///
/// let dir = tempfile::tempdir()?;
/// let log = dir.path().join("log");
/// let (mut writer, _) = Writer::<(), u64>::open(&log, Options::default())?;
/// writer.append(&(), &[1, 2])?;
/// writer.append(&(), &[3])?;
/// let sum = reader::fold(&log, &Options::default(), 0, |sum, event: u64| sum + event)?;
/// assert_eq!((sum.head, sum.value), (Some(()), 6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fold<H: DeserializeOwned, E: DeserializeOwned, S>(
    dir: impl AsRef<Path>,
    options: &Options,
    start: S,
    each: impl FnMut(S, E) -> S,
) -> Result<Folded<H, S>> {
    let dir = Dir::open(dir.as_ref())?;
    let raw = newest(&dir, LoadPurpose::Reader(options))?;
    Folded::decode(dir.path(), raw, start, each)
}

/// Loads the state as of the save `seq`, even if that save was undone.
///
/// A save stays readable until its journal is compacted or removed. A compacted journal has only the heads of the newest saves. A journal is removed
/// together with the phase that it continues.
///
/// # Errors
/// As [`load_with`]; [`is_not_found`](Error::is_not_found) if that save no longer exists.
pub fn load_at<H: DeserializeOwned, E: DeserializeOwned + Send>(
    dir: impl AsRef<Path>,
    seq: Seq,
    options: &Options,
) -> Result<Loaded<H, E>> {
    let dir = Dir::open(dir.as_ref())?;
    Loaded::decode(dir.path(), at(&dir, seq, options)?)
}

pub(crate) fn at(dir: &Dir, seq: Seq, options: &Options) -> Result<load::Loaded> {
    let mut attempt = 1;
    loop {
        let index = Index::read(dir, LoadPurpose::Reader(options))?;
        match load::at(dir, &index, seq.get())? {
            Some(loaded) => return Ok(loaded),
            None if attempt == MAX_READS => {
                return Err(Error::new(dir.path(), Kind::NotFound("save")));
            }
            None => attempt += 1,
        }
    }
}

/// Does the same as [`load_at`], from a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn load_at_on<H: DeserializeOwned, E: DeserializeOwned + Send>(
    disk: Box<dyn crate::disk::Directory>,
    dir: &Path,
    seq: Seq,
    options: &Options,
) -> Result<Loaded<H, E>> {
    let dir = Dir::on(disk, dir)?;
    Loaded::decode(dir.path(), at(&dir, seq, options)?)
}

/// Does the same as [`load`](fn@load), from a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn load_on<H: DeserializeOwned, E: DeserializeOwned + Send>(
    disk: Box<dyn crate::disk::Directory>,
    dir: &Path,
) -> Result<Loaded<H, E>> {
    let dir = Dir::on(disk, dir)?;
    Loaded::decode(dir.path(), newest(&dir, LoadPurpose::Anything)?)
}

/// Does the same as [`blob`], from a directory of any disk; error messages show `dir`.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn blob_on(disk: Box<dyn crate::disk::Directory>, dir: &Path, name: &str) -> Result<Vec<u8>> {
    blobs::get(&Dir::on(disk, dir)?, name)
}

pub(crate) fn newest(dir: &Dir, want: LoadPurpose<'_>) -> Result<load::Loaded> {
    newest_as(dir, want, Needed::Everything)
}

fn newest_as(dir: &Dir, want: LoadPurpose<'_>, needed: Needed) -> Result<load::Loaded> {
    let mut attempt = 1;
    loop {
        let loaded = Index::read(dir, want).and_then(|mut index| {
            index.needed = needed;
            load::newest(dir, index)
        });
        let sound = match &loaded {
            Ok(loaded) => loaded.report.is_undamaged(),
            Err(err) => !err.is_corrupt(),
        };
        if sound || attempt == MAX_READS {
            return loaded;
        }
        attempt += 1;
    }
}

/// Lists the finished phases of a store, newest first. A damaged file is listed only if its metadata is good.
///
/// # Errors
/// As [`load`](fn@load).
pub fn phases(dir: impl AsRef<Path>) -> Result<Vec<PhaseInfo>> {
    let dir = Dir::open(dir.as_ref())?;
    let index = Index::read(&dir, LoadPurpose::Anything)?;
    Ok(index
        .entries
        .iter()
        .filter_map(|entry| entry.meta.phase_info())
        .collect())
}

/// Loads the newest valid checkpoint with the name `phase` and the schema that `options` name, migrated to its version.
///
/// # Errors
/// As [`load_with`]; [`is_not_found`](Error::is_not_found) if no phase is finished yet, [`is_other_phase`](Error::is_other_phase) if only other
/// phases are, [`is_corrupt`](Error::is_corrupt) if all files of this name are damaged.
pub fn load_phase<H: DeserializeOwned, E: DeserializeOwned + Send>(
    dir: impl AsRef<Path>,
    phase: &str,
    options: &Options,
) -> Result<Loaded<H, E>> {
    let dir = Dir::open(dir.as_ref())?;
    let mut index = Index::read(&dir, LoadPurpose::Reader(options))?;
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
            true => Kind::NotFound("finished phase"),
            false => Kind::OtherPhase { found, wanted },
        };
        return Err(Error::new(dir.path(), kind));
    }
    Loaded::decode(dir.path(), load::newest(&dir, index)?)
}

/// Returns the bytes of a blob that has at most `limit` bytes. A larger blob, which may come from another user, is not read.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no blob of that name; another error if it is larger.
pub fn blob(dir: impl AsRef<Path>, name: &str, limit: u64) -> Result<Vec<u8>> {
    blobs::get_within(&Dir::open(dir.as_ref())?, name, limit)
}

/// A lock that keeps every writer out of a store, for example while its directory is moved away. Dropping it lets writers in again.
#[doc(hidden)] // only `rlm-store` needs it, for a transfer
#[derive(Debug)]
#[must_use = "dropping it lets writers in again"]
pub struct WriterLockout {
    _lock: Lock,
}

/// Locks every writer out of the store. Makes the lock's file if there is none.
///
/// # Errors
/// [`is_locked`](Error::is_locked) if a writer has the store open, [`is_not_found`](Error::is_not_found) if there is no directory.
#[doc(hidden)] // as `WriterLockout`
pub fn lock_out_writers(dir: impl AsRef<Path>) -> Result<WriterLockout> {
    let _lock = Lock::take(&Dir::open(dir.as_ref())?)?;
    Ok(WriterLockout { _lock })
}

/// Returns whether a writer has the store open.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no directory.
pub fn is_locked(dir: impl AsRef<Path>) -> Result<bool> {
    lock::is_held(&Dir::open(dir.as_ref())?)
}
