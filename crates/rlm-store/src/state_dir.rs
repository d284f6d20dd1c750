//! The only code that opens files below `.rlm`: an agent, a repository or another user may have planted them.
//!
//! Every function takes a path. The part up to the first `.rlm` is trusted and resolved as usual. The part from `.rlm` on is opened component by
//! component, relative to a directory descriptor, and each component must be a real directory that belongs to the caller (see [`trust`]). For a path
//! without `.rlm`, the parent is resolved as usual, and only the last component is checked.
//!
//! No function follows a symbolic link, waits for a FIFO, opens a device, or reads more than its limit.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use parent_dir::ParentDir;

pub use owner::{OtherOwner, check_owner, trust};

mod owner;
mod parent_dir;
#[cfg(test)]
mod tests;

const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The largest number of levels of directories that [`remove_tree`] enters.
const DEEPEST: usize = 256;
/// A temporary file lives for milliseconds. A file of this age is an orphan, even if another process has its pid now.
const OLD: Duration = Duration::from_secs(60 * 60);

/// Identifies a file independently of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The device that has the file.
    pub device: u64,
    /// The number of the file on that device.
    pub inode: u64,
}

impl From<&std::fs::Metadata> for Identity {
    fn from(meta: &std::fs::Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
        }
    }
}

impl Identity {
    /// Returns the identity of the file at a trusted path; follows links.
    ///
    /// # Errors
    ///
    /// An error if there is no file.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs_err::metadata(path)?))
    }

    fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// The metadata of a file, read without opening it. Describes a link itself, not its target.
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    stat: rustix::fs::Stat,
}

impl Metadata {
    fn kind(self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Returns whether the file is a directory.
    #[must_use]
    pub fn is_dir(self) -> bool {
        self.kind().is_dir()
    }

    /// Returns whether the file is a regular file.
    #[must_use]
    pub fn is_file(self) -> bool {
        self.kind().is_file()
    }

    /// Returns whether the file is a socket.
    #[must_use]
    pub fn is_socket(self) -> bool {
        self.kind().is_socket()
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.stat.st_size as u64
    }

    /// Returns whether the file has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of disk that the file uses.
    #[must_use]
    pub fn disk(self) -> u64 {
        self.stat.st_blocks as u64 * 512
    }

    /// Returns the identity of the file.
    #[must_use]
    pub fn identity(self) -> Identity {
        Identity::of(&self.stat)
    }

    /// Returns the time of the last rename, link, or change of mode or content.
    #[must_use]
    pub fn changed(self) -> SystemTime {
        let seconds = u64::try_from(self.stat.st_ctime).unwrap_or_default();
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Returns the time of the last write.
    #[must_use]
    pub fn modified(self) -> SystemTime {
        let seconds = u64::try_from(self.stat.st_mtime).unwrap_or_default();
        let nanos = self.stat.st_mtime_nsec;
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos)
    }
}

/// Opens a regular file for reading.
///
/// # Errors
///
/// An error if there is no file, or it is not a regular file of the caller.
pub fn open(path: &Path) -> io::Result<File> {
    open_file(path, OFlags::RDONLY)
}

/// Opens a regular file of at most `most` bytes for reading.
///
/// # Errors
///
/// As [`open`], and if the file is longer.
pub fn open_bounded(path: &Path, most: u64) -> io::Result<File> {
    let file = open(path)?;
    let bytes = rustix::fs::fstat(&file)?.st_size as u64;
    match bytes > most {
        true => Err(too_long(bytes, most)),
        false => Ok(file),
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
///
/// As [`open_bounded`], and if the file grows beyond `most` meanwhile.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_bounded(path, most)?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(too_long(bytes.len() as u64, most)),
        false => Ok(bytes),
    }
}

/// Opens a regular file for appending, and creates it with mode 0600 if it doesn't exist.
///
/// # Errors
///
/// An error if the file is not a regular file of the caller, or has a second name (a hard link), so that the write would reach another place.
pub fn append(path: &Path) -> io::Result<File> {
    let file = open_file(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?;
    match rustix::fs::fstat(&file)?.st_nlink > 1 {
        true => Err(io::Error::other(
            "the file has a second name (a hard link); move it away",
        )),
        false => Ok(file),
    }
}

/// Creates a file with mode 0600 for reading and writing.
///
/// # Errors
///
/// An error if the name is taken, by any kind of file.
pub fn create_new(path: &Path) -> io::Result<File> {
    open_file(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
}

/// Opens a file that the user named, at any path, for reading; follows links. Returns `None` if it is not a regular file; doesn't open a FIFO or a
/// device, and doesn't wait for one that replaces the file meanwhile.
///
/// # Errors
///
/// An error if there is no file, or it can't be opened.
pub fn open_named(path: &Path) -> io::Result<Option<File>> {
    let is_regular = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_file();
    if !is_regular(rustix::fs::stat(path)?) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(is_regular(rustix::fs::fstat(&file)?).then(|| file.into()))
}

fn open_file(path: &Path, flags: OFlags) -> io::Result<File> {
    let place = ParentDir::of(path)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::openat(&place.directory, place.name, flags, PRIVATE_FILE);
    let file = opened.map_err(|e| match e {
        Errno::LOOP => not_regular("a symbolic link"),
        // A socket, a device without a driver, or a FIFO without a reader.
        Errno::NXIO | Errno::NODEV => not_regular("a socket, a pipe or a device"),
        e => e.into(),
    })?;
    let stat = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(not_regular("a directory")),
        _ => return Err(not_regular("a pipe or a device")),
    }
    place.check(path, &stat)?;
    Ok(file.into())
}

fn not_regular(what: &str) -> io::Error {
    io::Error::other(format!("this is {what}, not a regular file; move it away"))
}

fn too_long(bytes: u64, most: u64) -> io::Error {
    io::Error::other(format!(
        "the file has {bytes} bytes, more than the limit of {most}; move it away"
    ))
}

/// Writes a file atomically, through a temporary file with a random name. Replaces an existing file; replaces a link itself, not its target.
///
/// # Errors
///
/// An error if it can't be written. The old file is then unchanged.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let place = ParentDir::of(path)?;
    let name = temporary_name(place.name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let written = rustix::fs::openat(&place.directory, &name, flags, PRIVATE_FILE)
        .map_err(io::Error::from)
        .and_then(|file| File::from(file).write_all(bytes))
        .and_then(|()| {
            let to = (&place.directory, place.name);
            Ok(rustix::fs::renameat(&place.directory, &name, to.0, to.1)?)
        });
    if written.is_err() {
        let _gone = rustix::fs::unlinkat(&place.directory, &name, AtFlags::empty());
    }
    written
}

/// Renames a file, a directory, or a link itself.
///
/// # Errors
///
/// An error if a parent directory can't be reached without a link, or the rename fails.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (ParentDir::of(from)?, ParentDir::of(to)?);
    rustix::fs::renameat(&from.directory, from.name, &to.directory, to.name)?;
    Ok(())
}

/// Renames to a name that must be free.
///
/// # Errors
///
/// As [`rename`]; `AlreadyExists` when the name is taken.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    let (from, to) = (ParentDir::of(from)?, ParentDir::of(to)?);
    let directories = (&from.directory, &to.directory);
    match rustix::fs::renameat_with(directories.0, from.name, directories.1, to.name, flags) {
        // Some file systems don't support this.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match rustix::fs::statat(directories.1, to.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(_) => {
                    rustix::fs::renameat(directories.0, from.name, directories.1, to.name)?;
                    Ok(())
                }
            }
        }
        renamed => Ok(renamed?),
    }
}

/// Exchanges two files or directories atomically.
///
/// # Errors
///
/// An error if the exchange fails; `Unsupported` if the file system does not support it.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) = (ParentDir::of(one)?, ParentDir::of(other)?);
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    let directories = (&one.directory, &other.directory);
    match rustix::fs::renameat_with(directories.0, one.name, directories.1, other.name, flags) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        exchanged => Ok(exchanged?),
    }
}

/// Removes a file, or a link itself.
///
/// # Errors
///
/// An error if there is no file, or it can't be removed.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let place = ParentDir::of(path)?;
    rustix::fs::unlinkat(&place.directory, place.name, AtFlags::empty())?;
    Ok(())
}

/// Removes a file, or a directory with its content, without following a link.
///
/// # Errors
///
/// An error if there is no such file, or a part of it can't be removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let place = ParentDir::of(path)?;
    remove_below(&place.directory, place.name, DEEPEST)
}

fn remove_below(parent: &OwnedFd, name: &OsStr, depth: usize) -> io::Result<()> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !FileType::from_raw_mode(stat.st_mode).is_dir() {
        rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
        return Ok(());
    }
    if depth == 0 {
        return Err(io::Error::other("the directories are nested too deep"));
    }
    let directory = parent_dir::open_directory(parent, name)?;
    for entry in names(&directory)? {
        match remove_below(&directory, &entry, depth - 1) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
    Ok(())
}

fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    use std::os::unix::ffi::OsStringExt as _;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}

/// Makes a socket accessible only to its owner; if a link has replaced it, leaves the link and its target unchanged.
///
/// # Errors
///
/// An error if there is no socket, or its mode can't be set.
pub fn make_private_socket(path: &Path) -> io::Result<()> {
    let place = ParentDir::of(path)?;
    #[cfg(target_os = "linux")]
    {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(&place.directory, place.name, flags, Mode::empty())?;
        if !FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode).is_socket() {
            return Err(io::Error::other("another file replaced the socket"));
        }
        let by_number = format!("/proc/self/fd/{}", socket.as_raw_fd());
        if rustix::fs::chmod(by_number, PRIVATE_FILE).is_ok() {
            return Ok(());
        }
    }
    // The fallback without `/proc`.
    Ok(rustix::fs::chmodat(
        &place.directory,
        place.name,
        PRIVATE_FILE,
        AtFlags::empty(),
    )?)
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| {
        // A process of another user is alive too.
        rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    })
}

/// Removes temporary files of dead processes, and those older than an hour, from a directory. Returns their number.
#[must_use]
pub fn remove_orphans(directory: &Path) -> usize {
    let entries = entries(directory).unwrap_or_default();
    let orphans = entries.into_iter().filter(|path| {
        let Some(pid) = path.file_name().and_then(temporary_owner) else {
            return false;
        };
        let metadata = metadata(path);
        let age = metadata.ok().and_then(|it| it.modified().elapsed().ok());
        !is_alive(pid) || age.is_some_and(|age| age > OLD)
    });
    orphans.filter(|path| remove_file(path).is_ok()).count()
}

/// Returns the paths of a directory's entries, in any order.
///
/// # Errors
///
/// An error if there is no directory, or it can't be reached without a link.
pub fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let names = names(&open_directory(directory)?)?;
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

/// Returns the paths of a directory's entries, in any order; an empty list if there is no directory.
///
/// # Errors
///
/// An error if it can't be reached without a link.
pub fn entries_if_any(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match entries(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries,
    }
}

/// Returns the metadata of the file at a path.
///
/// # Errors
///
/// An error if there is no file, or it can't be reached without a link.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    let place = ParentDir::of(path)?;
    let stat = rustix::fs::statat(&place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Metadata { stat })
}

/// Returns whether there is a directory at a path; a link to a directory doesn't count.
#[must_use]
pub fn is_dir(path: &Path) -> bool {
    metadata(path).is_ok_and(Metadata::is_dir)
}

/// Returns whether there is a regular file at a path; a link to a file doesn't count.
#[must_use]
pub fn is_file(path: &Path) -> bool {
    metadata(path).is_ok_and(Metadata::is_file)
}

/// Returns whether there is any file at a path, even a dangling link.
#[must_use]
pub fn exists(path: &Path) -> bool {
    metadata(path).is_ok()
}

/// Opens a directory.
///
/// # Errors
///
/// An error if there is no directory, it is a link, or it belongs to another user.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    parent_dir::directory(path)
}

/// Returns the identity of an open directory.
///
/// # Errors
///
/// An error if the system call fails.
pub fn identity(directory: &OwnedFd) -> io::Result<Identity> {
    Ok(Identity::of(&rustix::fs::fstat(directory)?))
}

/// Returns the identity of an open file.
///
/// # Errors
///
/// An error if the system call fails.
pub fn file_identity(file: &File) -> io::Result<Identity> {
    Ok(Identity::of(&rustix::fs::fstat(file)?))
}

/// Returns whether an open file still has a name.
///
/// # Errors
///
/// An error if the system call fails.
pub fn has_name(file: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstat(file)?.st_nlink > 0)
}

/// Makes the entries of a directory durable.
///
/// # Errors
///
/// An error if it can't be opened or synced.
pub fn sync(directory: &Path) -> io::Result<()> {
    rustix::fs::fsync(open_directory(directory)?)?;
    Ok(())
}

/// Creates a directory that only its owner can enter, or restricts an existing one.
///
/// # Errors
///
/// An error if another kind of file is there, or it belongs to another user.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    let place = ParentDir::of(path)?;
    match rustix::fs::mkdirat(&place.directory, place.name, Mode::RWXU) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let directory = parent_dir::open_directory(&place.directory, place.name)?;
    let stat = rustix::fs::fstat(&directory)?;
    place.check(path, &stat)?;
    let narrow = || rustix::fs::fchmod(&directory, Mode::RWXU);
    match stat.st_mode & 0o077 != 0 {
        true if owner::is_own(&stat) => Ok(narrow()?),
        // It may belong to another owner that is trusted, and only that owner can change its mode.
        true => Ok(narrow().or_else(|e| if e == Errno::PERM { Ok(()) } else { Err(e) })?),
        false => Ok(()),
    }
}

/// Adds up the bytes of disk of a file or a directory, for at most `left` files. Follows no link.
#[must_use]
pub fn disk_usage(path: &Path, left: &mut usize) -> u64 {
    match ParentDir::of(path) {
        Ok(place) => disk_below(&place.directory, place.name, left, DEEPEST),
        Err(_) => 0,
    }
}

fn disk_below(parent: &OwnedFd, name: &OsStr, left: &mut usize, depth: usize) -> u64 {
    if *left == 0 {
        return 0;
    }
    *left -= 1;
    let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return 0;
    };
    let meta = Metadata { stat };
    let entries = match meta.is_dir() && depth > 0 {
        true => parent_dir::open_directory(parent, name)
            .and_then(|directory| Ok((names(&directory)?, directory))),
        false => return meta.disk(),
    };
    let Ok((entries, directory)) = entries else {
        return meta.disk();
    };
    let below = { entries.iter() }.map(|entry| disk_below(&directory, entry, left, depth - 1));
    below.sum::<u64>() + meta.disk()
}

/// The suffix of every temporary file.
const ENDING: &str = ".tmp";

/// Returns a random name for the temporary file of `name`. The name contains the pid of this process, so that others can check whether the owner is
/// alive.
fn temporary_name(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    let random = Uuid::new_v4().simple().to_string();
    temporary.push(format!(".{}.{random}{ENDING}", std::process::id()));
    temporary
}

/// Returns the pid in the name of a temporary file.
fn temporary_owner(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?.strip_prefix('.')?.strip_suffix(ENDING)?;
    let (rest, random) = name.rsplit_once('.')?;
    let is_random = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (_, pid) = rest.rsplit_once('.').filter(|_| is_random)?;
    pid.parse().ok()
}
