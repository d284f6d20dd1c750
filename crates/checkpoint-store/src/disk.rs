//! The disk as the store sees it: the few calls that everything else is made of.
//!
//! `unix.rs` is the real one. Tests bring others, to lose power between any two calls and
//! to fail any of them; so whatever a run depends on besides the bytes, the time and the
//! random numbers, is asked of the disk as well. What the calls mean for the store, names,
//! limits and safety, is decided above them, in `dir.rs`.

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

/// By how many bytes a journal grows ahead of its saves, at most.
pub(crate) const AHEAD: u64 = 1 << 20;

/// What a file is opened for. None of them follows a symbolic link or waits for a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read from.
    Read,
    /// A file to read from and write to, made with mode 0600 if there is none.
    Make,
    /// A file to read from and write to that must not exist yet, made with mode 0600.
    MakeNew,
}

/// What is known about a file or a directory without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Tells two files apart, however they are named.
    pub id: (u64, u64),
    /// Its length in bytes.
    pub len: u64,
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Whether it belongs to the user that this process acts for.
    pub is_own: bool,
    /// Its permission bits.
    pub mode: u32,
    /// When its bytes last changed.
    pub modified: SystemTime,
}

/// An open directory. Names are single components; none is followed if it is a link.
pub trait Directory: Any + Debug + Send + Sync {
    /// Returns the names of all entries but `.` and `..`, in any order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Describes the entry `name`, a link itself and not what it points to; `.` is the directory.
    fn stat(&self, name: &str) -> io::Result<Stat>;

    /// Opens the file `name`.
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn Handle>>;

    /// Gives the file `from` the name `name` in `to`, a directory of the same kind, in one
    /// step; fails with `AlreadyExists` if that name is taken.
    fn rename_new(&self, from: &str, to: &dyn Directory, name: &str) -> io::Result<()>;

    /// Removes the name of a file.
    fn unlink(&self, name: &str) -> io::Result<()>;

    /// Removes an empty directory inside this one.
    fn unlink_sub(&self, name: &str) -> io::Result<()>;

    /// Makes the directory `name` with mode 0700; fails with `AlreadyExists` if it is taken.
    fn make_sub(&self, name: &str) -> io::Result<()>;

    /// Opens the directory `name` inside this one.
    fn sub(&self, name: &str) -> io::Result<Box<dyn Directory>>;

    /// Makes the names in this directory durable.
    fn sync(&self) -> io::Result<()>;

    /// Opens what stands at this directory's path now; makes it first, durably and with mode
    /// 0700, if nothing does and `make` is set.
    fn reopen(&self, make: bool) -> io::Result<Box<dyn Directory>>;

    /// Returns whether another directory, or a link, has taken this one's place at its path.
    fn is_replaced(&self) -> bool {
        false
    }

    /// Returns by how many bytes a journal is to grow ahead of its saves at most. Zero where written
    /// zeros reserve no room because each write goes to a new place.
    fn ahead(&self) -> u64 {
        AHEAD
    }

    /// Returns the same where a journal grows ahead, and what it would be elsewhere: what other amounts are measured by.
    fn stride(&self) -> u64 {
        match self.ahead() {
            0 => AHEAD,
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

    /// Waits an instant for another process to let a lock go.
    fn pause(&self) {
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
}

/// An open file. Reads and writes say how many bytes they did, as the system calls do.
pub trait Handle: Debug + Send + Sync {
    /// Reads into `buf` from the byte `at` on; zero at the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes from `buf` to the byte `at` and the following ones.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize>;

    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the bytes durable, and the length if it grew (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the bytes and everything known about the file durable (`fsync`).
    fn sync_all(&self) -> io::Result<()>;

    /// Describes the file.
    fn stat(&self) -> io::Result<Stat>;

    /// Takes the file's lock, alone or together with others that share it, without waiting;
    /// false if another open file holds it. It ends with the handle.
    fn try_lock(&self, shared: bool) -> io::Result<bool>;

    /// Lets the lock go.
    fn unlock(&self) -> io::Result<()>;
}
