//! The real disk, except for calls that a test changes. It syncs nothing: no test with this disk simulates a power cut, and syncs are slow.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Directory, FileHandle, OpenMode, Stat, unix};

/// A call that a test may fail or delay.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// A write that makes its file larger, with the length of the write.
    Grow(u64),
    /// The sync of a save.
    SyncData,
    /// The creation of a new file, before it happens.
    Make,
    /// A write within the file's length, another sync, a rename or a removal.
    Other,
}

type Hook = Arc<dyn Fn(Call) -> io::Result<()> + Send + Sync>;

pub(crate) struct TestDisk {
    real: Box<dyn Directory>,
    ahead: u64,
    hook: Hook,
}

struct TestHandle {
    real: Box<dyn FileHandle>,
    hook: Hook,
}

impl TestDisk {
    /// Opens the directory at `path`, and makes it if it is missing.
    pub(crate) fn open(
        path: &Path,
        ahead: u64,
        hook: impl Fn(Call) -> io::Result<()> + Send + Sync + 'static,
    ) -> Box<dyn Directory> {
        unix::make_all(path).unwrap();
        Box::new(Self {
            real: Box::new(unix::UnixDirectory::open(path).unwrap()),
            ahead,
            hook: Arc::new(hook),
        })
    }

    fn around(&self, real: Box<dyn Directory>) -> Box<dyn Directory> {
        let (hook, ahead) = (self.hook.clone(), self.ahead);
        Box::new(Self { real, ahead, hook })
    }
}

impl fmt::Debug for TestDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.real.fmt(f)
    }
}

impl fmt::Debug for TestHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.real.fmt(f)
    }
}

impl Directory for TestDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        self.real.names()
    }
    fn stat(&self, name: &str) -> io::Result<Stat> {
        self.real.stat(name)
    }
    fn open(&self, name: &str, how: OpenMode) -> io::Result<Box<dyn FileHandle>> {
        if how == OpenMode::MakeNew {
            (self.hook)(Call::Make)?;
        }
        let (real, hook) = (self.real.open(name, how)?, self.hook.clone());
        Ok(Box::new(TestHandle { real, hook }))
    }
    fn rename_new(&self, from: &str, to: &dyn Directory, name: &str) -> io::Result<()> {
        let to: &dyn std::any::Any = to;
        let to = to.downcast_ref::<Self>().unwrap();
        (self.hook)(Call::Other)?;
        self.real.rename_new(from, &*to.real, name)
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        (self.hook)(Call::Other)?;
        self.real.unlink(name)
    }
    fn unlink_sub(&self, name: &str) -> io::Result<()> {
        self.real.unlink_sub(name)
    }
    fn make_sub(&self, name: &str) -> io::Result<()> {
        self.real.make_sub(name)
    }
    fn sub(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        Ok(self.around(self.real.sub(name)?))
    }
    fn sync(&self) -> io::Result<()> {
        (self.hook)(Call::Other)
    }
    fn reopen(&self, make: bool) -> io::Result<Box<dyn Directory>> {
        Ok(self.around(self.real.reopen(make)?))
    }
    fn ahead(&self) -> u64 {
        self.ahead
    }
}

impl FileHandle for TestHandle {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.real.read_at(buf, at)
    }
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        if at + buf.len() as u64 > self.stat()?.len
            && let Err(err) = (self.hook)(Call::Grow(buf.len() as u64))
        {
            // A disk that becomes full accepts a part of a large write, and nothing after it.
            return match buf.starts_with(b"CKF1") && buf.len() > 4096 {
                true => self.real.write_at(&buf[..700], at),
                false => Err(err),
            };
        }
        if at + buf.len() as u64 <= self.stat()?.len {
            (self.hook)(Call::Other)?;
        }
        self.real.write_at(buf, at)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.real.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        (self.hook)(Call::SyncData)
    }
    fn sync_all(&self) -> io::Result<()> {
        (self.hook)(Call::Other)
    }
    fn stat(&self) -> io::Result<Stat> {
        self.real.stat()
    }
    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        self.real.try_lock(shared)
    }
    fn unlock(&self) -> io::Result<()> {
        self.real.unlock()
    }
}
