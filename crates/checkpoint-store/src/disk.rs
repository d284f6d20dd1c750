//! The disk as the store sees it: the few calls on which all other modules build.
//!
//! `unix.rs` is the real disk. Tests bring other disks that lose power between any two calls, or fail any call. The time and the random numbers come
//! from the disk too, so that a test run depends on nothing else and can be repeated. This module knows no file names, limits or safety rules; they
//! are in `dir.rs`.

#![cfg_attr(
    not(any(test, feature = "test-util")),
    expect(unreachable_pub, reason = "tests bring disks of their own")
)]

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::time::SystemTime;

#[cfg(unix)]
pub(crate) mod unix;

/// The largest number of bytes by which a journal grows ahead of its saves.
pub(crate) const MAX_PREALLOCATED: u64 = 1 << 20;

/// The purpose for which a file is opened. No purpose follows a symbolic link or blocks on a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read from.
    Read,
    /// A file to read from and write to. The call makes the file with mode 0600 if it does not exist.
    Make,
    /// A file to read from and write to that must not exist yet. The call makes it with mode 0600.
    MakeNew,
}

/// Metadata of a file or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Identifies the file, whatever its name is.
    pub id: (u64, u64),
    /// The length in bytes.
    pub len: u64,
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Whether it belongs to the effective user of this process.
    pub is_own: bool,
    /// The permission bits.
    pub mode: u32,
    /// The time when the bytes last changed.
    pub modified: SystemTime,
}

/// An open directory. A name is a single component; no call follows a link.
pub trait Directory: Any + Debug + Send + Sync {
    /// Returns the names of all entries except `.` and `..`, in any order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Describes the entry `name`; of a link, the link itself and not its target. `.` is the directory.
    fn stat(&self, name: &str) -> io::Result<Stat>;

    /// Opens the file `name`.
    fn open(&self, name: &str, how: OpenMode) -> io::Result<Box<dyn FileHandle>>;

    /// Renames the file `from` to `name` in `to`, a directory of the same kind, in one step; fails with `AlreadyExists` if that name is taken.
    fn rename_new(&self, from: &str, to: &dyn Directory, name: &str) -> io::Result<()>;

    /// Removes the name of a file.
    fn unlink(&self, name: &str) -> io::Result<()>;

    /// Removes an empty directory inside this one.
    fn unlink_sub(&self, name: &str) -> io::Result<()>;

    /// Makes the directory `name` with mode 0700; fails with `AlreadyExists` if the name is taken.
    fn make_sub(&self, name: &str) -> io::Result<()>;

    /// Opens the directory `name` inside this one.
    fn sub(&self, name: &str) -> io::Result<Box<dyn Directory>>;

    /// Makes the names in this directory durable.
    fn sync(&self) -> io::Result<()>;

    /// Opens the directory that is at this directory's path now. If there is none and `make` is set, makes it first, durably and with mode 0700.
    fn reopen(&self, make: bool) -> io::Result<Box<dyn Directory>>;

    /// Returns whether another directory, or a link, is at this directory's path now.
    fn is_replaced(&self) -> bool {
        false
    }

    /// Returns the largest number of bytes by which a journal grows ahead of its saves. Zero on a file system where written zeros reserve no room
    /// because each write goes to a new place.
    fn ahead(&self) -> u64 {
        MAX_PREALLOCATED
    }

    /// Returns [`ahead`](Self::ahead), or 1 MiB where that is zero. Other limits are multiples or fractions of this number.
    fn stride(&self) -> u64 {
        match self.ahead() {
            0 => MAX_PREALLOCATED,
            ahead => ahead,
        }
    }

    /// Returns the time of day.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Returns a random number.
    fn random(&self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().1
    }

    /// Waits 2 ms for another process to release a lock.
    fn pause(&self) {
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
}

/// An open file. Reads and writes return the number of bytes they handled, as the system calls do.
pub trait FileHandle: Debug + Send + Sync {
    /// Reads into `buf` from byte `at` on; returns zero at the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes from `buf` to the bytes from `at` on.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize>;

    /// Truncates or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the bytes durable, and the length if it grew (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the bytes and the metadata durable (`fsync`).
    fn sync_all(&self) -> io::Result<()>;

    /// Describes the file.
    fn stat(&self) -> io::Result<Stat>;

    /// Takes the file's lock, exclusive or shared, without waiting; returns false if another open file holds it. Closing the handle releases the
    /// lock.
    fn try_lock(&self, shared: bool) -> io::Result<bool>;

    /// Releases the lock.
    fn unlock(&self) -> io::Result<()>;
}
