//! A read-only disk with files in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use checkpoint_store::disk::{Directory, FileHandle, OpenMode, Stat};

/// A directory with the given files and nothing else.
#[derive(Debug, Clone, Default)]
pub struct Memory(pub BTreeMap<String, Arc<[u8]>>);

impl Memory {
    /// Returns the same directory with other bytes in one file.
    #[must_use]
    pub fn with(&self, name: &str, bytes: &[u8]) -> Self {
        let mut other = self.clone();
        other.0.insert(name.into(), bytes.into());
        other
    }

    fn file(&self, name: &str) -> io::Result<Arc<[u8]>> {
        let file = self.0.get(name).cloned();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn stat(bytes: Option<&[u8]>) -> Stat {
    Stat {
        id: (2, bytes.map_or(0, |bytes| bytes.as_ptr() as u64)),
        len: bytes.map_or(0, |bytes| bytes.len() as u64),
        is_file: bytes.is_some(),
        is_own: true,
        mode: 0o700,
        modified: SystemTime::UNIX_EPOCH,
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Directory for Memory {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.keys().cloned().collect())
    }

    fn stat(&self, name: &str) -> io::Result<Stat> {
        match name {
            "." => Ok(stat(None)),
            name => Ok(stat(Some(&self.file(name)?))),
        }
    }

    fn open(&self, name: &str, how: OpenMode) -> io::Result<Box<dyn FileHandle>> {
        match how {
            OpenMode::Read => Ok(Box::new(Bytes(self.file(name)?))),
            OpenMode::Make | OpenMode::MakeNew => read_only(),
        }
    }

    fn rename_new(&self, _: &str, _: &dyn Directory, _: &str) -> io::Result<()> {
        read_only()
    }

    fn unlink(&self, _: &str) -> io::Result<()> {
        read_only()
    }

    fn unlink_sub(&self, _: &str) -> io::Result<()> {
        read_only()
    }

    fn make_sub(&self, _: &str) -> io::Result<()> {
        read_only()
    }

    fn sub(&self, _: &str) -> io::Result<Box<dyn Directory>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn reopen(&self, _: bool) -> io::Result<Box<dyn Directory>> {
        Ok(Box::new(self.clone()))
    }

    fn pause(&self) {}
}

/// An open file.
#[derive(Debug)]
struct Bytes(Arc<[u8]>);

impl FileHandle for Bytes {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let bytes = self.0.get(at..).unwrap_or_default();
        let len = bytes.len().min(buf.len());
        buf[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        read_only()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn sync_data(&self) -> io::Result<()> {
        read_only()
    }

    fn sync_all(&self) -> io::Result<()> {
        read_only()
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(stat(Some(&self.0)))
    }

    fn try_lock(&self, _: bool) -> io::Result<bool> {
        Ok(true)
    }

    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }
}
