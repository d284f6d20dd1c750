//! Reads whole-state checkpoints of other programs: `.json` and `.json.gz`.
//!
//! The file is read into the caller's own type, which needs only the fields that the caller uses, or into a `serde_json::Value`. The caller decides
//! what to save of it in a store. The file is never changed, renamed or removed, and no link is followed.

use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::dir::{Dir, read_up_to};
use crate::disk::OpenMode;
use crate::error::{Error, Kind, Result, within};

/// Largest file, as stored and unpacked.
const MAX_STORED: u64 = 64 << 20;
const MAX_RAW: u64 = 128 << 20;

/// Reads the value of a JSON file. The first bytes of the file, not its name, show whether it is compressed with gzip. Like the directory of a store,
/// the directory of the file must belong to the user.
///
/// The limits are 64 MiB as stored and 128 MiB unpacked.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no such file, [`is_corrupt`](Error::is_corrupt) if it is truncated, has a wrong checksum or is
/// not JSON, and another error if it is too large or not of the requested type.
///
/// # Examples
/// ```
/// # let root = tempfile::tempdir()?;
/// # let old = root.path().join("task.json");
/// # std::fs::write(&old, r#"{"iteration": 4, "messages": ["a", "b"], "more": null}"#)?;
/// use checkpoint_store::{Options, Writer, import};
///
/// #[derive(serde::Deserialize)]
/// struct Old {
///     iteration: u64,
///     messages: Vec<String>,
/// }
/// let old: Old = import::json(&old)?;
/// let (mut writer, _) =
///     Writer::<u64, String>::open(root.path().join("store"), Options::default())?;
/// writer.append(&old.iteration, &old.messages)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn json<T: DeserializeOwned>(file: impl AsRef<Path>) -> Result<T> {
    let path = file.as_ref();
    let raw = unpacked(path, read(path)?)?;
    serde_json::from_slice(&raw).map_err(|err| {
        let reason = err.to_string();
        let kind = match err.classify() {
            serde_json::error::Category::Data => Kind::Decode {
                what: "the value",
                reason,
            },
            _ => Kind::Corrupt { reason },
        };
        Error::new(path, kind)
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let missing = || Error::new(path, Kind::NotFound("file"));
    let name = path.file_name().and_then(|name| name.to_str());
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = fs_err::canonicalize(parent).map_err(|err| match err.kind() {
        ErrorKind::NotFound => missing(),
        _ => Error::io(parent, "find the directory", err),
    })?;
    let dir = Dir::open(&parent)?;
    let file = dir
        .open_file(name.ok_or_else(missing)?, OpenMode::Read)?
        .ok_or_else(missing)?;
    let bytes = read_up_to(&*file, MAX_STORED + 1).map_err(|err| Error::io(path, "read", err))?;
    let too_large = |kind| Error::new(path, kind);
    within("the file", bytes.len(), MAX_STORED as usize).map_err(too_large)?;
    Ok(bytes)
}

fn unpacked(path: &Path, stored: Vec<u8>) -> Result<Vec<u8>> {
    if !stored.starts_with(&[0x1f, 0x8b]) {
        return Ok(stored);
    }
    let mut raw = Vec::new();
    // Some programs append one gzip member for each part.
    let mut reader = flate2::read::MultiGzDecoder::new(&stored[..]).take(MAX_RAW + 1);
    reader.read_to_end(&mut raw).map_err(|err| {
        let reason = err.to_string();
        Error::new(path, Kind::Corrupt { reason })
    })?;
    let too_large = |kind| Error::new(path, kind);
    within("the unpacked file", raw.len(), MAX_RAW as usize).map_err(too_large)?;
    Ok(raw)
}
