//! Opens files and directories without following a link anywhere in a path, so that a path that was judged can't lead elsewhere when it is used. It walks
//! from the root, because `O_NOFOLLOW` is only for the last part of a path.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

/// The action if a directory is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingDirectory {
    Fail,
    Make,
}

/// The flags of a directory that is only a step to another file. `O_PATH` needs no permission to list the directory.
#[cfg(target_os = "linux")]
const STEP: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const STEP: OFlags = OFlags::empty();

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens the directory of a path. Returns it, and the last part of the path.
///
/// # Errors
///
/// Fails with [`NotADirectory`](io::ErrorKind::NotADirectory) if a part of the path is a link or a file.
pub(crate) fn parent(path: &Path, missing: MissingDirectory) -> io::Result<(OwnedFd, &OsStr)> {
    let name = { path.file_name() }.ok_or(io::Error::from(io::ErrorKind::IsADirectory))?;
    let parent = path.parent().unwrap_or(Path::new(""));
    Ok((walk(parent, missing)?, name))
}

/// Lists a directory: its names, and their types.
///
/// # Errors
///
/// As [`parent`].
pub(crate) fn list(path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
    use std::os::unix::ffi::OsStrExt as _;

    let directory = openat(
        walk(path, MissingDirectory::Fail)?,
        ".",
        OFlags::RDONLY | DIRECTORY,
        Mode::empty(),
    )?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    // It was removed meanwhile.
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            kind => kind,
        };
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}

fn walk(path: &Path, missing: MissingDirectory) -> io::Result<OwnedFd> {
    let start = match path.is_absolute() {
        true => "/",
        false => ".",
    };
    let mut directory = openat(CWD, start, STEP | DIRECTORY, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::RootDir | Component::CurDir => continue,
            Component::ParentDir | Component::Prefix(_) => {
                let why = "the path has `..`";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        };
        let open = || openat(&directory, name, STEP | DIRECTORY, Mode::empty());
        directory = match open() {
            Err(Errno::NOENT) if missing == MissingDirectory::Make => {
                match mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => open()?,
                    Err(error) => return Err(error.into()),
                }
            }
            // Some systems report a link in this way.
            Err(Errno::LOOP) => return Err(Errno::NOTDIR.into()),
            opened => opened?,
        };
    }
    Ok(directory)
}
