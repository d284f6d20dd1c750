//! A store's directory as a descriptor. Every call is relative to it and follows no symbolic link, so no call reaches a file outside the directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::io::Errno;

use crate::disk::{Directory, FileHandle, OpenMode, unix};
use crate::error::{Error, Kind, Result};
use crate::name::FileName;
use crate::sabotage::{self, Sabotage};

/// Largest file that is read, and largest size to which the writer lets a file grow.
pub(crate) const MAX_FILE: u64 = 1 << 30;

/// The directories below which a store of any owner is accepted.
static ACCEPTED: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Accepts stores of other owners below a directory, for the whole process. Without this, a store that belongs to another user is refused, also for
/// root. It is for volumes and user namespaces where the caller is not the owner. `directory` must come from the user, never from a file in or near
/// the store.
pub fn accept_any_owner(directory: PathBuf) {
    let mut accepted = ACCEPTED.write().unwrap_or_else(PoisonError::into_inner);
    accepted.push(directory);
}

fn is_accepted(path: &Path) -> bool {
    let accepted = ACCEPTED.read().unwrap_or_else(PoisonError::into_inner);
    let path = std::path::absolute(path);
    path.is_ok_and(|path| accepted.iter().any(|it| path.starts_with(it)))
}

#[derive(Debug)]
pub(crate) struct Dir {
    disk: Box<dyn Directory>,
    path: PathBuf,
}

impl Dir {
    /// Opens the directory at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let plain = plain(path)?;
        Self::checked(
            path,
            unix::UnixDirectory::open(&plain).map(|disk| Box::new(disk) as _),
        )
    }

    /// Opens the directory at `path`, and makes it and its missing parents first.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        unix::make_all(&plain(path)?).map_err(|err| Error::io(path, "make the directory", err))?;
        Self::open(path)
    }

    /// Uses a directory of any disk; error messages show `path`.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn on(disk: Box<dyn Directory>, path: &Path) -> Result<Self> {
        Self::checked(path, Ok(disk))
    }

    fn checked(path: &Path, opened: io::Result<Box<dyn Directory>>) -> Result<Self> {
        let disk = match opened {
            Ok(disk) => disk,
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                return Err(Error::new(path, Kind::NotFound("store")));
            }
            Err(err) if is_link(&err) || err.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::new(
                    path,
                    Kind::Unsafe("it is not a directory, or it is a symbolic link"),
                ));
            }
            Err(err) => return Err(Error::io(path, "open the directory", err)),
        };
        let stat = disk
            .stat(".")
            .map_err(|err| Error::io(path, "inspect the directory", err))?;
        let unsafe_because = if !stat.is_own && !is_accepted(path) {
            Some("it belongs to another user")
        } else if stat.mode & 0o022 != 0 {
            Some("other users can write to it; remove that permission with `chmod go-w`")
        } else {
            None
        };
        match unsafe_because {
            Some(reason) => Err(Error::new(path, Kind::Unsafe(reason))),
            None => Ok(Self {
                disk,
                path: path.to_owned(),
            }),
        }
    }

    pub(crate) fn disk(&self) -> &dyn Directory {
        &*self.disk
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

    /// Opens the directory that is at the path now, and makes one if there is none.
    pub(crate) fn reopen(&self) -> Result<Self> {
        Self::checked(&self.path, self.disk.reopen(true))
    }

    /// Returns the identity of the directory, whatever its path is.
    pub(crate) fn id(&self) -> Result<(u64, u64)> {
        let stat = self.disk.stat(".");
        stat.map(|stat| stat.id)
            .map_err(|err| self.error("", "inspect the directory", err))
    }

    /// Opens a directory inside this one, and makes it first if `create` is set.
    pub(crate) fn sub(&self, name: &str, create: bool) -> Result<Self> {
        if create {
            match self.disk.make_sub(name) {
                Ok(()) => self.sync()?,
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                Err(err) => return Err(self.error(name, "make the directory", err)),
            }
        }
        Self::checked(&self.path.join(name), self.disk.sub(name))
    }

    /// Returns the names of all entries, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = self
            .disk
            .names()
            .map_err(|err| self.error("", "list the directory", err))?;
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
        Ok(self.id_of(name)?.is_some())
    }

    /// Returns whether `name` refers to the file with this identity. The link count of the file is not enough: the file may have been moved away, or
    /// a backup may have a hard link to it.
    pub(crate) fn resolves_to(&self, name: &str, id: (u64, u64)) -> Result<bool> {
        Ok(self.id_of(name)? == Some(id))
    }

    fn id_of(&self, name: &str) -> Result<Option<(u64, u64)>> {
        match self.disk.stat(name) {
            Ok(stat) => Ok(Some(stat.id)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(self.error(name, "inspect", err)),
        }
    }

    /// Fails if `name` does not refer to the open `file` any more.
    pub(crate) fn confirm_named(&self, name: &str, file: &dyn FileHandle) -> Result<()> {
        let stat = file
            .stat()
            .map_err(|err| self.error(name, "inspect", err))?;
        if sabotage::is_on(Sabotage::SkipNameCheck) || self.resolves_to(name, stat.id)? {
            Ok(())
        } else {
            Err(Error::new(self.path.join(name), Kind::Vanished))
        }
    }

    /// Opens a regular file; returns `None` if there is no file with that name.
    pub(crate) fn open_file(
        &self,
        name: &str,
        how: OpenMode,
    ) -> Result<Option<Box<dyn FileHandle>>> {
        let file = match self.disk.open(name, how) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) if is_link(&err) => {
                return Err(Error::new(
                    self.path.join(name),
                    Kind::Unsafe("it is a symbolic link; move it away"),
                ));
            }
            Err(err) => {
                // Opening a socket fails, and so does opening a directory that this user may not read.
                let foreign = self.disk.stat(name).is_ok_and(|stat| !stat.is_file);
                return Err(match foreign {
                    true => Error::new(self.path.join(name), Kind::Foreign),
                    false => self.error(name, "open", err),
                });
            }
        };
        let stat = file
            .stat()
            .map_err(|err| self.error(name, "inspect", err))?;
        match stat.is_file {
            true => Ok(Some(file)),
            false => Err(Error::new(self.path.join(name), Kind::Foreign)),
        }
    }

    /// Reads at most `limit` bytes from the start of a file; returns `None` if there is no such file.
    pub(crate) fn read_up_to(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(name, OpenMode::Read)? else {
            return Ok(None);
        };
        read_up_to(&*file, limit)
            .map(Some)
            .map_err(|err| self.error(name, "read", err))
    }

    /// Reads a whole file; returns `None` if there is no such file.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(name, OpenMode::Read)? else {
            return Ok(None);
        };
        let failed = |err| self.error(name, "read", err);
        // The length is checked first, because anybody can make a sparse file of terabytes at no cost.
        let bytes = file.stat().map_err(failed)?.len;
        let read = match bytes > MAX_FILE {
            true => Vec::new(),
            false => read_up_to(&*file, MAX_FILE + 1).map_err(failed)?,
        };
        let bytes = bytes.max(read.len() as u64);
        match bytes > MAX_FILE {
            true => Err(Error::new(
                self.path.join(name),
                Kind::TooLarge {
                    what: "the file",
                    bytes,
                    limit: MAX_FILE,
                },
            )),
            false => Ok(Some(read)),
        }
    }

    /// Writes a file under a temporary name.
    pub(crate) fn write_temp(&self, epoch: u64, bytes: &[u8]) -> Result<Temp<'_>> {
        let random = self.disk.random();
        let name = FileName::Temp { epoch, random }.to_string();
        let file = self
            .disk
            .open(&name, OpenMode::MakeNew)
            .map_err(|err| Error::write(self.path.join(&name), "create", err, bytes.len()))?;
        let mut temp = Temp {
            dir: self,
            name,
            len: 0,
            file: Some(file),
        };
        temp.write(bytes)?;
        Ok(temp)
    }

    /// Creates an empty file; returns `None` if the name is taken.
    pub(crate) fn create_empty(&self, name: &str) -> Result<Option<Box<dyn FileHandle>>> {
        match self.disk.open(name, OpenMode::MakeNew) {
            Ok(file) => Ok(Some(file)),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(err) => Err(self.error(name, "create", err)),
        }
    }

    /// Moves a file to a free name in one step; returns false if that name is taken.
    pub(crate) fn rename_new(&self, from: &str, to: &Self, name: &str) -> Result<bool> {
        match self.disk.rename_new(from, &*to.disk, name) {
            Ok(()) => Ok(true),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(err) => Err(to.error(name, "rename a file to this name", err)),
        }
    }

    /// Removes a file; succeeds if it is already gone.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        match self.disk.unlink(name) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                Err(self.error(name, "remove", err))
            }
            _ => Ok(()),
        }
    }

    /// Makes the names in this directory durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.disk
            .sync()
            .map_err(|err| self.error("", "sync the directory", err))
    }
}

fn is_link(err: &io::Error) -> bool {
    err.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Reads at most `limit` bytes from the start of a file.
pub(crate) fn read_up_to(file: &dyn FileHandle, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let have = bytes.len();
        // The length is requested first, so that one call reads the whole file if possible.
        let want = file.stat()?.len.saturating_sub(have as u64).max(1);
        let room = want.min(limit - have as u64) as usize;
        if have == 0 {
            // The kernel returns these pages zeroed, so this costs nothing.
            bytes = vec![0; room];
        } else {
            bytes.resize(have + room, 0);
        }
        match file.read_at(&mut bytes[have..], have as u64) {
            Ok(0) => {
                bytes.truncate(have);
                return Ok(bytes);
            }
            Ok(read) => bytes.truncate(have + read),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => bytes.truncate(have),
            Err(err) => return Err(err),
        }
    }
}

/// Writes all bytes, with as many calls as the disk needs.
pub(crate) fn write_all_at(file: &dyn FileHandle, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

/// A file with a temporary name. Dropping it removes the file, unless the file got its final name.
#[derive(Debug)]
#[must_use = "dropping it removes the file"]
pub(crate) struct Temp<'a> {
    dir: &'a Dir,
    name: String,
    len: usize,
    /// `None` once the file has its final name.
    file: Option<Box<dyn FileHandle>>,
}

impl Temp<'_> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self.len as u64;
        self.len += bytes.len();
        let file = self
            .file
            .as_deref()
            .expect("the file has no final name yet");
        write_all_at(file, bytes, at).map_err(|err| self.error("write", err))
    }

    /// Makes the file's contents durable. After a failure it is unknown what is on disk.
    pub(crate) fn sync(&self) -> Result<()> {
        if sabotage::is_on(Sabotage::DropFileSync) || sabotage::is_on(Sabotage::SyncAfterRename) {
            return Ok(());
        }
        let file = self.file.as_ref().expect("the file has no final name yet");
        file.sync_all().map_err(|err| self.error("sync", err))
    }

    fn error(&self, doing: &'static str, err: io::Error) -> Error {
        Error::write(self.dir.path.join(&self.name), doing, err, self.len)
    }

    /// Gives the file its final name in `to`, durably; returns `None` if the name is taken.
    pub(crate) fn persist(mut self, to: &Dir, name: &str) -> Result<Option<Box<dyn FileHandle>>> {
        if !self.dir.rename_new(&self.name, to, name)? {
            return Ok(None);
        }
        let file = self
            .file
            .take()
            .expect("the file gets its final name only once");
        if sabotage::is_on(Sabotage::SyncAfterRename) {
            file.sync_all().map_err(|err| to.error(name, "sync", err))?;
        }
        if !sabotage::is_on(Sabotage::DropDirSync) {
            to.sync()?;
        }
        Ok(Some(file))
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.file.is_some() {
            // After a failure the next writer removes the file.
            drop(self.dir.remove(&self.name));
        }
    }
}

/// Returns `path` without a slash at its end, because a path with such a slash follows a symbolic link.
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
        None => bad("the path must end in a name, not in `..` or `/`"),
        Some(Some(name)) if name.chars().any(char::is_control) => bad("it has a control character"),
        Some(_) => Ok(path.components().collect()),
    }
}
