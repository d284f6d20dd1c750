//! Opens regular files only. A FIFO would wait for ever, and a device can have effects.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::no_links::{self, MissingDirectory};

/// Opens a regular file to read it; returns `None` if there is none. `path` is resolved: a link in it is an error.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    match no_links::parent(path, MissingDirectory::Fail) {
        Ok((parent, name)) => open_in(parent, name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a regular file of a directory to read it; returns `None` if there is none.
pub(crate) fn open_in(directory: impl AsFd, name: &OsStr) -> io::Result<Option<File>> {
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
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
