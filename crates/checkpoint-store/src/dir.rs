//! A store's directory as a descriptor. Every call is relative to it and follows
//! no symbolic link, so that nothing outside the directory can be reached.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};
use crate::name::FileName;

/// Largest file that is read, and that the writer lets a file become.
pub(crate) const MAX_FILE: u64 = 1 << 30;

const PRIVATE_DIR: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug)]
pub(crate) struct Dir {
    file: File,
    path: PathBuf,
}

impl Dir {
    /// Opens the directory at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_at(CWD, &plain(path)?, path)
    }

    /// Opens the directory at `path` and makes it, and those above it, if it is missing.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        make(&plain(path)?)?;
        Self::open(path)
    }

    fn open_at(at: impl std::os::fd::AsFd, name: &Path, path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: File = match rustix::fs::openat(at, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Err(Error::new(path, Kind::NotFound("store"))),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(Error::new(
                    path,
                    Kind::Unsafe("it is not a directory, or a link to one"),
                ));
            }
            Err(err) => return Err(Error::io(path, "open the directory", err)),
        };
        let meta = file
            .metadata()
            .map_err(|err| Error::io(path, "inspect the directory", err))?;
        let unsafe_because = if meta.uid() != rustix::process::geteuid().as_raw() {
            Some("it belongs to another user")
        } else if meta.mode() & 0o022 != 0 {
            Some("others may write to it; make it yours alone with `chmod go-w`")
        } else {
            None
        };
        match unsafe_because {
            Some(reason) => Err(Error::new(path, Kind::Unsafe(reason))),
            None => Ok(Self {
                file,
                path: path.to_owned(),
            }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn error(
        &self,
        name: &str,
        doing: &'static str,
        err: impl Into<io::Error>,
    ) -> Error {
        Error::io(self.path.join(name), doing, err)
    }

    /// Opens a directory inside this one, and makes it first if `create` is set.
    pub(crate) fn sub(&self, name: &str, create: bool) -> Result<Self> {
        if create {
            match rustix::fs::mkdirat(&self.file, name, PRIVATE_DIR) {
                Ok(()) => self.sync()?,
                Err(Errno::EXIST) => {}
                Err(err) => return Err(self.error(name, "make the directory", err)),
            }
        }
        Self::open_at(&self.file, Path::new(name), &self.path.join(name))
    }

    /// Returns the names of all entries, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let failed = |err| self.error("", "list the directory", err);
        let mut names = Vec::new();
        let entries = match rustix::fs::Dir::read_from(&self.file) {
            // The directory itself was removed while it was open.
            Err(Errno::NOENT) => return Ok(names),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.map_err(failed)?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the store's own files.
    pub(crate) fn own(&self) -> Result<Vec<FileName>> {
        Ok(self
            .names()?
            .iter()
            .filter_map(|name| FileName::parse(name))
            .collect())
    }

    pub(crate) fn exists(&self, name: &str) -> Result<bool> {
        match rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(err) => Err(self.error(name, "inspect", err)),
        }
    }

    /// Opens a regular file; none if there is none of that name.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> Result<Option<File>> {
        // Without NONBLOCK a pipe in the place of a file would block for ever.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.file, name, flags, PRIVATE_FILE) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(Error::new(
                    self.path.join(name),
                    Kind::Unsafe("it is a symbolic link"),
                ));
            }
            Err(err) => return Err(self.error(name, "open", err)),
        };
        let meta = file
            .metadata()
            .map_err(|err| self.error(name, "inspect", err))?;
        if meta.is_file() {
            Ok(Some(file))
        } else {
            Err(Error::new(
                self.path.join(name),
                Kind::Unsafe("it is not a regular file"),
            ))
        }
    }

    /// Reads at most `limit` bytes from the start of a file; none if there is no such file.
    pub(crate) fn read_up_to(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(name, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.take(limit)
            .read_to_end(&mut bytes)
            .map_err(|err| self.error(name, "read", err))?;
        Ok(Some(bytes))
    }

    /// Reads a whole file; none if there is no such file.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let bytes = self.read_up_to(name, MAX_FILE + 1)?;
        match &bytes {
            Some(bytes) if bytes.len() as u64 > MAX_FILE => Err(Error::new(
                self.path.join(name),
                Kind::TooLarge {
                    what: "the file",
                    bytes: bytes.len() as u64,
                    limit: MAX_FILE,
                },
            )),
            _ => Ok(bytes),
        }
    }

    /// Writes a file under a temporary name and makes its contents durable.
    pub(crate) fn write_temp(&self, epoch: u64, bytes: &[u8]) -> Result<Temp<'_>> {
        let random = uuid::Uuid::new_v4().as_u64_pair().1;
        let name = FileName::Temp { epoch, random }.to_string();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let Some(file) = self.open_file(&name, flags)? else {
            return Err(self.error(&name, "create", io::Error::from(io::ErrorKind::NotFound)));
        };
        let mut temp = Temp {
            dir: self,
            name,
            file,
        };
        temp.file
            .write_all(bytes)
            .map_err(|err| self.error(&temp.name, "write", err))?;
        temp.file
            .sync_all()
            .map_err(|err| self.error(&temp.name, "sync", err))?;
        Ok(temp)
    }

    /// Creates an empty file; false if the name is taken.
    pub(crate) fn create_empty(&self, name: &str) -> Result<bool> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.file, name, flags, PRIVATE_FILE) {
            Ok(_) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(err) => Err(self.error(name, "create", err)),
        }
    }

    /// Moves a file to a name that is free, in one step; false if that name is taken.
    pub(crate) fn rename_new(&self, from: &str, to: &Self, name: &str) -> Result<bool> {
        let renamed = match rustix::fs::renameat_with(
            &self.file,
            from,
            &to.file,
            name,
            RenameFlags::NOREPLACE,
        ) {
            // Some file systems know no such rename; a hard link conflicts just as well.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(&self.file, from, &to.file, name, AtFlags::empty())
                    .and_then(|()| rustix::fs::unlinkat(&self.file, from, AtFlags::empty()))
            }
            other => other,
        };
        match renamed {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(err) => Err(to.error(name, "rename a file to this name", err)),
        }
    }

    /// Removes a file; it is no error if it is gone already.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.file, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(err) => Err(self.error(name, "remove", err)),
        }
    }

    /// Makes the names in this directory durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file
            .sync_all()
            .map_err(|err| self.error("", "sync the directory", err))
    }
}

/// A durable file without its final name. Dropping it removes it, unless it got one.
#[derive(Debug)]
#[must_use = "dropping it removes the file"]
pub(crate) struct Temp<'a> {
    dir: &'a Dir,
    name: String,
    file: File,
}

impl Temp<'_> {
    /// Gives the file its final name in `to`, durably; none if the name is taken.
    pub(crate) fn persist(self, to: &Dir, name: &str) -> Result<Option<File>> {
        if !self.dir.rename_new(&self.name, to, name)? {
            return Ok(None);
        }
        to.sync()?;
        self.file
            .try_clone()
            .map(Some)
            .map_err(|err| to.error(name, "keep open", err))
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        // After `persist` the name is gone; a failure leaves a file for the next writer's sweep.
        drop(self.dir.remove(&self.name));
    }
}

/// Returns `path` without a slash at its end, which would follow a symbolic link.
fn plain(path: &Path) -> Result<PathBuf> {
    let bad = |reason| {
        let kind = Kind::Name {
            what: "store directory",
            name: path.display().to_string(),
            reason,
        };
        Err(Error::new(path, kind))
    };
    match path.file_name().map(|name| name.to_str()) {
        None => bad("it must end in a name of its own"),
        Some(Some(name)) if name.chars().any(char::is_control) => bad("it has a control character"),
        Some(_) => Ok(path.components().collect()),
    }
}

/// Makes a directory and those above it, private from the start, their names durable.
fn make(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match rustix::fs::mkdirat(CWD, path, PRIVATE_DIR) {
        Ok(()) => fs_err::File::open(parent)
            .and_then(|dir| dir.sync_all())
            .map_err(|err| Error::io(parent, "sync the directory", err)),
        Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) if parent != Path::new(".") => {
            make(parent)?;
            make(path)
        }
        Err(err) => Err(Error::io(path, "make the directory", err)),
    }
}
