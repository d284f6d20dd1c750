//! A writer on a disk that others fill.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::dir::Dir;
use crate::disk::{Directory, Handle, Open, Stat, unix::UnixDirectory};
use crate::raw_writer::RawWriter;
use crate::{Meta, Options};

#[derive(Debug, Default)]
struct Space {
    is_full: AtomicBool,
    /// Bytes that were asked for in vain, at most.
    wanted: AtomicU64,
}

/// The real disk, until it is full: then no file gets larger.
#[derive(Debug)]
struct FullDisk {
    real: Box<dyn Directory>,
    space: Arc<Space>,
    ahead: u64,
}

#[derive(Debug)]
struct FullHandle {
    real: Box<dyn Handle>,
    space: Arc<Space>,
}

impl FullDisk {
    fn around(&self, real: Box<dyn Directory>) -> Box<dyn Directory> {
        let (space, ahead) = (self.space.clone(), self.ahead);
        Box::new(Self { real, space, ahead })
    }
}

impl Directory for FullDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        self.real.names()
    }
    fn stat(&self, name: &str) -> io::Result<Stat> {
        self.real.stat(name)
    }
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn Handle>> {
        let (real, space) = (self.real.open(name, how)?, self.space.clone());
        Ok(Box::new(FullHandle { real, space }))
    }
    fn rename_new(&self, from: &str, to: &dyn Directory, name: &str) -> io::Result<()> {
        let to: &dyn std::any::Any = to;
        let to = to.downcast_ref::<Self>().unwrap();
        self.real.rename_new(from, &*to.real, name)
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
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
        self.real.sync()
    }
    fn reopen(&self, make: bool) -> io::Result<Box<dyn Directory>> {
        Ok(self.around(self.real.reopen(make)?))
    }
    fn ahead(&self) -> u64 {
        self.ahead
    }
}

impl Handle for FullHandle {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.real.read_at(buf, at)
    }
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        if self.space.is_full.load(Ordering::Relaxed) && at + buf.len() as u64 > self.stat()?.len {
            let wanted = buf.len() as u64;
            self.space.wanted.fetch_max(wanted, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.real.write_at(buf, at)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.real.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.real.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.real.sync_all()
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

fn open(path: &Path, ahead: u64) -> (RawWriter, Arc<Space>) {
    drop(Dir::create(path).unwrap());
    let space = Arc::new(Space::default());
    let disk = FullDisk {
        real: Box::new(UnixDirectory::open(path).unwrap()),
        space: space.clone(),
        ahead,
    };
    let dir = Dir::on(Box::new(disk), path).unwrap();
    let (writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
    (writer, space)
}

/// A head of about a hundred bytes.
fn head(n: u64) -> Vec<u8> {
    let mut raw = Vec::new();
    crate::codec::encode(&mut raw, &(n, "x".repeat(100))).unwrap();
    raw
}

fn save(writer: &mut RawWriter, n: u64) -> crate::Result<u64> {
    let head = head(n);
    let len = head.len();
    writer.append(head, len)
}

fn newest(path: &Path) -> Option<Vec<u8>> {
    let (writer, loaded) = RawWriter::open(path, Options::default()).unwrap();
    assert!(loaded.report.is_sound(), "{}", loaded.report);
    drop(writer);
    loaded.state.head
}

#[test]
fn c62_saves_into_the_room_ahead_succeed_on_a_full_disk_and_the_next_says_what_it_needs() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, space) = open(&path, 4096);
    save(&mut writer, 1).unwrap();
    space.is_full.store(true, Ordering::Relaxed);
    let mut n = 1;
    let err = loop {
        match save(&mut writer, n + 1) {
            Ok(_) => n += 1,
            Err(err) => break err,
        }
    };
    assert!(n > 20, "4 KiB hold more than {n} saves");
    assert!(err.is_full() && !err.is_poisoned(), "{err}");
    let needed = space.wanted.load(Ordering::Relaxed);
    assert!(err.to_string().contains("bytes are needed"), "{err}");
    assert!(needed > 100 * n, "the new file would hold all saves");
    assert!(save(&mut writer, n + 1).unwrap_err().is_full());
    let sealed = writer.save_phase("p", head(9), Meta::default());
    assert!(sealed.unwrap_err().is_full());

    space.is_full.store(false, Ordering::Relaxed);
    assert_eq!(save(&mut writer, n + 1).unwrap(), n + 1);
    assert!(writer.healed().is_some(), "by a new file");
    drop(writer);
    assert_eq!(newest(&path), Some(head(n + 1)));
}

/// Where zeros reserve nothing the state on disk is intact all the same.
#[test]
fn c62_control_without_room_ahead_the_first_save_on_a_full_disk_fails() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, space) = open(&path, 0);
    save(&mut writer, 1).unwrap();
    space.is_full.store(true, Ordering::Relaxed);
    assert!(save(&mut writer, 2).unwrap_err().is_full());
    drop(writer);
    assert_eq!(newest(&path), Some(head(1)));
}
