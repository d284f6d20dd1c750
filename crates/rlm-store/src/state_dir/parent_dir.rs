//! Opens the parent directory of a file below `.rlm`, one directory after the other, and never through a link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::owner;
use crate::state_directory;

/// The parent directory of a file, and the file's name in it.
#[derive(Debug)]
pub(super) struct ParentDir<'a> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'a OsStr,
    /// The project, if the file is in its state directory.
    project: Option<PathBuf>,
}

impl<'a> ParentDir<'a> {
    pub(super) fn of(path: &'a Path) -> io::Result<Self> {
        let Some(name) = path.file_name() else {
            return Err(io::Error::other("the path must end with a file name"));
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = directory(parent)?;
        let project = split(path)?.map(|(project, _)| project);
        let in_state = { project }.filter(|_| split(parent).is_ok_and(|it| it.is_some()));
        Ok(Self {
            directory,
            name,
            project: in_state
                .or_else(|| (name == state_directory()).then(|| or_here(parent).to_owned())),
        })
    }

    /// Returns an error for a file of another user in a state directory.
    pub(super) fn check(&self, path: &Path, stat: &rustix::fs::Stat) -> io::Result<()> {
        match &self.project {
            Some(project) => owner::check(project, path, stat),
            None => Ok(()),
        }
    }
}

/// Opens a directory at a path.
pub(super) fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Some((project, below)) = split(path)? else {
        return Ok(rustix::fs::openat(
            CWD,
            or_here(path),
            flags,
            Mode::empty(),
        )?);
    };
    let mut at = project.clone();
    let mut directory = rustix::fs::openat(CWD, or_here(&project), flags, Mode::empty())?;
    for name in below {
        at.push(name);
        directory = open_directory(&directory, name)?;
        owner::check(&project, &at, &rustix::fs::fstat(&directory)?)?;
    }
    Ok(directory)
}

/// Opens a directory in another one, but not through a link.
pub(super) fn open_directory(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&parent, name, flags | OFlags::NONBLOCK, Mode::empty());
    opened.map_err(|e| match e {
        Errno::LOOP | Errno::NOTDIR => not_a_directory(parent, name),
        e => e.into(),
    })
}

/// Returns an error that describes the file in place of a directory, with the fix. The error text has the file's name, because the caller knows only
/// the whole path.
fn not_a_directory(parent: impl AsFd, name: &OsStr) -> io::Error {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_link = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
    let shown = name.to_string_lossy();
    let shown = shown.escape_debug();
    io::Error::other(match is_link {
        true => format!(
            "`{shown}` is a symbolic link, which rlm does not follow; remove the link, or put the directory itself in its place"
        ),
        false => format!("`{shown}` is not a directory; move it away"),
    })
}

/// Splits a path into the project and the components from `.rlm` on; `None` without `.rlm`.
fn split(path: &Path) -> io::Result<Option<(PathBuf, Vec<&OsStr>)>> {
    let mut project = PathBuf::new();
    let mut below = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) if name == state_directory() || !below.is_empty() => {
                below.push(name)
            }
            _ if below.is_empty() => project.push(component),
            Component::CurDir => {}
            _ => {
                return Err(io::Error::other(
                    "the path leads out of the state directory",
                ));
            }
        }
    }
    Ok((!below.is_empty()).then_some((project, below)))
}

fn or_here(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}
