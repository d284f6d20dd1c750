//! Opens regular files only. A FIFO would wait for ever, and a device can have effects.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file to read it; returns `None` if there is none. `path` is resolved: a link in its place is an error.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).expect("the flags of Unix fit");
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(Some(file)),
        kind if kind.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        )),
    }
}
