//! The real disk. Each call is relative to the descriptor of a directory.

use std::any::Any;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Directory, FileHandle, MAX_PREALLOCATED, OpenMode, Stat};

const ENTER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Flags to pass through a directory. On Linux this needs no permission to list it.
#[cfg(target_os = "linux")]
const PASS: OFlags = ENTER.union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = ENTER;
const PRIVATE_DIR: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug)]
pub(crate) struct UnixDirectory {
    file: File,
    path: PathBuf,
    /// Whether no component of `path` was a link when the directory was opened. If so, none may be a link when it is reopened.
    is_plain: bool,
}

impl UnixDirectory {
    /// Opens the directory at `path`, which must not end in a slash: a path with a slash at its end follows a link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // `reopen` must find the directory even if the program changed its working directory.
        let absolute = std::path::absolute(path)?;
        let is_plain = open_components(&absolute, false).is_ok();
        Self::open_at(CWD, path, absolute, is_plain)
    }

    fn open_at(at: impl AsFd, name: &Path, path: PathBuf, is_plain: bool) -> io::Result<Self> {
        let file = File::from(rustix::fs::openat(at, name, ENTER, Mode::empty())?);
        Ok(Self {
            file,
            path,
            is_plain,
        })
    }
}

impl Directory for UnixDirectory {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = match rustix::fs::Dir::read_from(&self.file) {
            // The directory itself was removed while it was open.
            Err(Errno::NOENT) => return Ok(names),
            entries => entries?,
        };
        for entry in entries {
            // A name that is not UTF-8 does not belong to the store.
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn stat(&self, name: &str) -> io::Result<Stat> {
        let stat = match name {
            // `fstat` also works after the directory was removed.
            "." => rustix::fs::fstat(&self.file)?,
            name => rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW)?,
        };
        let seconds = Duration::from_secs(stat.st_mtime.try_into().unwrap_or_default());
        Ok(Stat {
            id: (stat.st_dev as u64, stat.st_ino as u64),
            len: stat.st_size as u64,
            is_file: rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file(),
            is_own: stat.st_uid == rustix::process::geteuid().as_raw(),
            mode: stat.st_mode as u32 & 0o7777,
            modified: SystemTime::UNIX_EPOCH + seconds,
        })
    }

    fn open(&self, name: &str, how: OpenMode) -> io::Result<Box<dyn FileHandle>> {
        let flags = match how {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Make => OFlags::RDWR | OFlags::CREATE,
            OpenMode::MakeNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        // Without NONBLOCK, opening a pipe in the place of a file would block for ever.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.file, name, flags, PRIVATE_FILE)?;
        Ok(Box::new(UnixHandle(File::from(file))))
    }

    fn rename_new(&self, from: &str, to: &dyn Directory, name: &str) -> io::Result<()> {
        let to: &dyn Any = to;
        let to = to
            .downcast_ref::<Self>()
            .ok_or_else(|| io::Error::from(io::ErrorKind::CrossesDevices))?;
        let flags = RenameFlags::NOREPLACE;
        let renamed = rustix::fs::renameat_with(&self.file, from, &to.file, name, flags);
        match renamed {
            // Some file systems don't support this rename; a hard link fails in the same way if the name is taken.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(&self.file, from, &to.file, name, AtFlags::empty())
                    .and_then(|()| rustix::fs::unlinkat(&self.file, from, AtFlags::empty()))
            }
            other => other,
        }
        .map_err(io::Error::from)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.file, name, AtFlags::empty())?)
    }

    fn unlink_sub(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.file, name, AtFlags::REMOVEDIR)?)
    }

    fn make_sub(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.file, name, PRIVATE_DIR)?)
    }

    fn sub(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        let path = self.path.join(name);
        let sub = Self::open_at(&self.file, Path::new(name), path, self.is_plain);
        Ok(Box::new(sub?))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn reopen(&self, make: bool) -> io::Result<Box<dyn Directory>> {
        if self.is_plain {
            return Ok(Box::new(Self {
                file: open_components(&self.path, make)?,
                path: self.path.clone(),
                is_plain: true,
            }));
        }
        if make {
            make_all(&self.path)?;
        }
        Ok(Box::new(Self::open(&self.path)?))
    }

    fn is_replaced(&self) -> bool {
        if !self.is_plain {
            return false;
        }
        let id = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino()));
        match open_components(&self.path, false) {
            Ok(there) => id(&there).ok() != id(&self.file).ok(),
            // A link, or no directory. A missing path is not a replacement: somebody may have moved the directory together with its parents, and the
            // writer continues to write to it.
            Err(err) => matches!(err.kind(), io::ErrorKind::NotADirectory) || is_link(&err),
        }
    }

    #[cfg(target_os = "linux")]
    fn ahead(&self) -> u64 {
        const BTRFS: u32 = 0x9123_683e;
        const ZFS: u32 = 0x2fc1_2fc1;
        const BCACHEFS: u32 = 0xca45_1a4e;
        match rustix::fs::fstatfs(&self.file) {
            // The type of this field differs between architectures.
            Ok(stat) if ![BTRFS, ZFS, BCACHEFS].contains(&(stat.f_type as u32)) => MAX_PREALLOCATED,
            _ => 0,
        }
    }

    /// APFS, the file system of macOS, writes each block to a new place.
    #[cfg(not(target_os = "linux"))]
    fn ahead(&self) -> u64 {
        if cfg!(target_vendor = "apple") {
            0
        } else {
            MAX_PREALLOCATED
        }
    }
}

fn is_link(err: &io::Error) -> bool {
    err.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Opens the directory at an absolute path, component by component, without following a link. With `make` it makes each missing component, private
/// from the start and with a durable name.
fn open_components(path: &Path, make: bool) -> io::Result<File> {
    let mut at = rustix::fs::openat(CWD, "/", PASS, Mode::empty())?;
    let sync =
        |at: &OwnedFd| File::from(rustix::fs::openat(at, ".", ENTER, Mode::empty())?).sync_all();
    let mut names = path.components().skip(1).peekable();
    while let Some(component) = names.next() {
        let Component::Normal(name) = component else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut next = rustix::fs::openat(&at, name, PASS, Mode::empty());
        if make && matches!(next, Err(Errno::NOENT)) {
            match rustix::fs::mkdirat(&at, name, PRIVATE_DIR) {
                // After a failed sync the directory is removed again, as in `make_all`.
                Ok(()) => sync(&at).inspect_err(|_| {
                    rustix::fs::unlinkat(&at, name, AtFlags::REMOVEDIR).ok();
                })?,
                Err(Errno::EXIST) => {}
                Err(err) => return Err(err.into()),
            }
            next = rustix::fs::openat(&at, name, PASS, Mode::empty());
        } else if make && names.peek().is_none() {
            match sync(&at) {
                Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        at = next?;
    }
    Ok(rustix::fs::openat(&at, ".", ENTER, Mode::empty())?.into())
}

/// Makes a directory and its missing parents, private from the start and with durable names.
pub(crate) fn make_all(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let sync_parent = || fs_err::File::open(parent)?.sync_all();
    match rustix::fs::mkdirat(CWD, path, PRIVATE_DIR) {
        // After a failed sync, the kernel may report success for the next sync unless there is something new to write. So the directory is removed
        // here, and made anew by the next call.
        Ok(()) => sync_parent().inspect_err(|_| {
            rustix::fs::rmdir(path).ok();
        }),
        // The process that made it may have died before its sync.
        Err(Errno::EXIST) => match sync_parent() {
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        },
        Err(Errno::NOENT) if parent != Path::new(".") => {
            make_all(parent)?;
            make_all(path)
        }
        Err(err) => Err(err.into()),
    }
}

#[derive(Debug)]
struct UnixHandle(File);

impl FileHandle for UnixHandle {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(buf, at)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn stat(&self) -> io::Result<Stat> {
        let meta = self.0.metadata()?;
        Ok(Stat {
            id: (meta.dev(), meta.ino()),
            len: meta.len(),
            is_file: meta.is_file(),
            is_own: meta.uid() == rustix::process::geteuid().as_raw(),
            mode: meta.mode() & 0o7777,
            modified: meta.modified()?,
        })
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        let locked = if shared {
            self.0.try_lock_shared()
        } else {
            self.0.try_lock()
        };
        match locked {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(err)) => Err(err),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_directory_is_reopened_by_its_absolute_path() {
        let relative = UnixDirectory::open(Path::new("src")).unwrap();
        assert!(relative.path.is_absolute());
        let again = relative.reopen(false).unwrap();
        let id = |dir: &dyn Directory| dir.stat(".").unwrap().id;
        assert_eq!(id(&relative), id(&*again));
    }
    #[test]
    fn h2_directory_replaced_by_a_link_is_not_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs_err::canonicalize(dir.path()).unwrap();
        let (state, other) = (top.join("state"), top.join("other"));
        make_all(&state.join("run")).unwrap();
        make_all(&other).unwrap();
        let run = UnixDirectory::open(&state.join("run")).unwrap();
        fs_err::rename(&state, top.join("moved")).unwrap();
        std::os::unix::fs::symlink(&other, &state).unwrap();
        run.reopen(true).unwrap_err();
        assert_eq!(fs_err::read_dir(&other).unwrap().count(), 0);
        fs_err::remove_file(&state).unwrap();
        run.reopen(true).unwrap();
        assert!(state.join("run").is_dir());
    }
}
