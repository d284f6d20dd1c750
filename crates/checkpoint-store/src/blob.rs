//! Immutable named blobs in `blobs/`. They are plain files that people and other programs can read.

use crate::dir::{Dir, MAX_FILE};
use crate::error::{Error, Kind, Result};
use crate::name;

const DIR: &str = "blobs";

pub(crate) fn put(dir: &Dir, epoch: u64, name: &str, bytes: &[u8]) -> Result<()> {
    let blobs = dir.sub(DIR, true)?;
    let path = checked(&blobs, name)?;
    if bytes.len() as u64 > MAX_FILE {
        let bytes = bytes.len() as u64;
        return Err(Error::new(
            path,
            Kind::TooLarge {
                what: "the blob",
                bytes,
                limit: MAX_FILE,
            },
        ));
    }
    let write = || {
        let temp = dir.write_temp(epoch, bytes)?;
        temp.sync()?;
        temp.persist(&blobs, name)
    };
    if blobs.exists(name)? || write()?.is_none() {
        if blobs.read(name)?.as_deref() != Some(bytes) {
            return Err(Error::new(path, Kind::Conflict));
        }
        // A crash may have come after the rename and before its sync.
        blobs.sync()?;
    }
    Ok(())
}

/// Returns the name of a blob in messages and reports.
pub(crate) fn shown(name: &str) -> String {
    format!("{DIR}/{name}")
}

/// Returns the names of all blobs, sorted.
pub(crate) fn names(dir: &Dir) -> Result<Vec<String>> {
    let mut names = match dir.sub(DIR, false) {
        Err(err) if err.is_not_found() => return Ok(Vec::new()),
        blobs => blobs?.names()?,
    };
    names.retain(|name| name::check_name(name).is_ok());
    Ok(names)
}

pub(crate) fn get(dir: &Dir, name: &str) -> Result<Vec<u8>> {
    get_within(dir, name, MAX_FILE)
}

/// Returns a blob of at most `limit` bytes. Fails for a larger blob without reading all of it.
pub(crate) fn get_within(dir: &Dir, name: &str, limit: u64) -> Result<Vec<u8>> {
    let limit = limit.min(MAX_FILE);
    let path = dir.path().join(DIR).join(name);
    let missing = || Error::new(path.clone(), Kind::NotFound("blob"));
    let blobs = match dir.sub(DIR, false) {
        Err(err) if err.is_not_found() => return Err(missing()),
        blobs => blobs?,
    };
    checked(&blobs, name)?;
    let bytes = blobs.read_up_to(name, limit + 1)?.ok_or_else(missing)?;
    match bytes.len() as u64 > limit {
        true => Err(Error::new(
            path.clone(),
            Kind::TooLarge {
                what: "the blob",
                bytes: bytes.len() as u64,
                limit,
            },
        )),
        false => Ok(bytes),
    }
}

fn checked(blobs: &Dir, name: &str) -> Result<std::path::PathBuf> {
    match name::check_name(name) {
        Ok(()) => Ok(blobs.path().join(name)),
        Err(reason) => {
            let kind = Kind::Name {
                what: "blob name",
                name: name.into(),
                reason,
            };
            Err(Error::new(blobs.path(), kind))
        }
    }
}
