//! Reads whole-state checkpoints that other programs wrote: `.json` and `.json.gz`.
//!
//! The file is read into the caller's own type, which need not know more of it than it
//! wants, or into a `serde_json::Value`; what becomes of that in a store is the caller's
//! matter. The file is never written to, renamed or removed, and no link is followed.

use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::dir::{Dir, read_up_to};
use crate::disk::Open;
use crate::error::{Error, Kind, Result, within};

/// Most bytes that a file may hold, as stored and unpacked.
const MAX_STORED: u64 = 64 << 20;
const MAX_RAW: u64 = 128 << 20;

/// Reads the value of a JSON file, compressed by gzip or not: its first bytes tell, not its
/// name. Like the directories of stores, that of the file must be the user's own.
///
/// Takes at most 64 MiB as stored and 128 MiB unpacked.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if there is no such file,
/// [`is_corrupt`](Error::is_corrupt) if it is cut, its checksum is wrong or it is no JSON,
/// and another error if it is too large or not the asked type.
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
        .open_file(name.ok_or_else(missing)?, Open::Read)?
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
    // Some programs append a member for each part.
    let mut reader = flate2::read::MultiGzDecoder::new(&stored[..]).take(MAX_RAW + 1);
    reader.read_to_end(&mut raw).map_err(|err| {
        let reason = err.to_string();
        Error::new(path, Kind::Corrupt { reason })
    })?;
    let too_large = |kind| Error::new(path, kind);
    within("the unpacked file", raw.len(), MAX_RAW as usize).map_err(too_large)?;
    Ok(raw)
}
