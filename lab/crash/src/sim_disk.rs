//! Implements the disk of the store on the modelled computer.

use std::any::Any;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use checkpoint_store::disk::{Directory, FileHandle, OpenMode, Stat};

use crate::computer::{Call, Computer};
use crate::disk::{Disk, Ino, ROOT, errno};

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
/// 2026-01-01, so that timestamps look like real ones.
const FIRST_DAY: Duration = Duration::from_secs(1_767_225_600);

/// A computer that several programs use.
#[derive(Debug, Clone)]
pub struct Shared(Arc<Mutex<Computer>>);

impl Shared {
    /// Starts a computer; see [`Computer::new`].
    pub fn new(computer: Computer) -> Self {
        Self(Arc::new(Mutex::new(computer)))
    }

    /// Returns the computer, exclusively until the guard is dropped.
    pub fn pc(&self) -> MutexGuard<'_, Computer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` immediately before the call with this number.
    pub fn before(&self, call: u64, act: impl FnOnce() + Send + 'static) {
        self.pc().hook = Some(crate::computer::Hook(call, Box::new(act)));
    }

    /// Makes a directory in the top directory if it is missing, makes its name durable, and opens it. The real store does the same with a path.
    ///
    /// # Panics
    /// If a file has that name.
    pub fn make_directory(&self, name: &str) -> Box<dyn Directory> {
        let mut pc = self.pc();
        if pc.disk.lookup(ROOT, name).is_none() {
            pc.disk.create(ROOT, name, true).expect("the name is free");
        }
        pc.disk.sync_dir(ROOT).expect("the root is a directory");
        drop(pc);
        self.directory(name)
    }

    /// Opens a directory in the top directory, and makes it if it is missing.
    ///
    /// # Panics
    /// If a file has that name.
    pub fn directory(&self, name: &str) -> Box<dyn Directory> {
        let mut pc = self.pc();
        let there = pc.disk.lookup(ROOT, name);
        let ino =
            there.unwrap_or_else(|| pc.disk.create(ROOT, name, true).expect("the name is free"));
        assert!(pc.disk.is_dir(ino), "{name} must be a directory");
        drop(pc);
        Box::new(SimDirectory {
            shared: self.clone(),
            ino,
            parent: ROOT,
            name: name.into(),
        })
    }

    fn call<T>(&self, call: Call, act: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        self.step();
        self.pc().call(call, act)
    }

    /// Runs the action of another process that is due now.
    fn step(&self) {
        let mut pc = self.pc();
        let now = pc.calls().len() as u64;
        if let Some(hook) = pc.hook.take_if(|hook| hook.0 == now) {
            drop(pc);
            hook.1();
        }
    }
}

#[derive(Debug)]
struct SimDirectory {
    shared: Shared,
    ino: Ino,
    parent: Ino,
    name: Arc<str>,
}

impl SimDirectory {
    fn call<T>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Disk, Ino) -> io::Result<T>,
    ) -> io::Result<T> {
        self.shared.call(call, |disk| act(disk, self.ino))
    }

    /// Does the same as `call`, but fails in a directory that was removed.
    fn change<T>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Disk, Ino) -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(call, |disk, ino| {
            match disk.lookup(self.parent, &self.name) {
                Some(here) if here == ino => act(disk, ino),
                _ => Err(errno(ENOENT)),
            }
        })
    }

    fn at(&self, ino: Ino, parent: Ino, name: &str) -> Box<dyn Directory> {
        Box::new(Self {
            shared: self.shared.clone(),
            ino,
            parent,
            name: name.into(),
        })
    }
}

fn stat(disk: &Disk, ino: Ino) -> Stat {
    let is_file = !disk.is_dir(ino);
    Stat {
        id: (1, ino as u64),
        len: disk.read(ino).map_or(0, <[u8]>::len) as u64,
        is_file,
        is_own: true,
        mode: if is_file { 0o600 } else { 0o700 },
        modified: SystemTime::UNIX_EPOCH + FIRST_DAY,
    }
}

impl Directory for SimDirectory {
    fn names(&self) -> io::Result<Vec<String>> {
        self.call(Call::Look, |disk, ino| {
            Ok(disk.names(ino)?.map(str::to_owned).collect())
        })
    }

    fn stat(&self, name: &str) -> io::Result<Stat> {
        self.call(Call::Look, |disk, ino| match name {
            "." => Ok(stat(disk, ino)),
            name => disk
                .lookup(ino, name)
                .map(|ino| stat(disk, ino))
                .ok_or_else(|| errno(ENOENT)),
        })
    }

    fn open(&self, name: &str, how: OpenMode) -> io::Result<Box<dyn FileHandle>> {
        let there = self.shared.pc().disk.lookup(self.ino, name);
        let ino = match (there, how) {
            (Some(ino), OpenMode::Read | OpenMode::Make) => self.call(Call::Open, |_, _| Ok(ino)),
            (None, OpenMode::Read) => self.call(Call::Open, |_, _| Err(errno(ENOENT))),
            _ => self.change(Call::Create, |disk, ino| disk.create(ino, name, false)),
        }?;
        let mut pc = self.shared.pc();
        pc.handles += 1;
        Ok(Box::new(SimHandle {
            shared: self.shared.clone(),
            ino,
            number: pc.handles,
        }))
    }

    fn rename_new(&self, from: &str, to: &dyn Directory, name: &str) -> io::Result<()> {
        let to = (to as &dyn Any)
            .downcast_ref::<Self>()
            .ok_or_else(|| errno(EXDEV))?;
        self.change(Call::Rename, |disk, ino| {
            match disk.rename_new(ino, from, to.ino, name)? {
                true => Ok(()),
                false => Err(errno(EEXIST)),
            }
        })
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        self.call(Call::Unlink, |disk, ino| disk.unlink(ino, name))
    }

    fn unlink_sub(&self, name: &str) -> io::Result<()> {
        self.unlink(name)
    }

    fn make_sub(&self, name: &str) -> io::Result<()> {
        self.change(Call::Create, |disk, ino| {
            disk.create(ino, name, true).map(drop)
        })
    }

    fn sub(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        let ino = self.call(Call::Open, |disk, ino| {
            disk.lookup(ino, name).ok_or_else(|| errno(ENOENT))
        })?;
        Ok(self.at(ino, self.ino, name))
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Call::SyncDir(self.ino), |disk, ino| disk.sync_dir(ino))
    }

    fn reopen(&self, make: bool) -> io::Result<Box<dyn Directory>> {
        let (parent, name) = (self.parent, &self.name);
        let there = self.shared.pc().disk.lookup(parent, name);
        let ino = match there {
            None if make => self
                .shared
                .call(Call::Create, |disk| disk.create(parent, name, true)),
            there => self
                .shared
                .call(Call::Open, |_| there.ok_or_else(|| errno(ENOENT))),
        }?;
        if make
            && let Err(err) = self
                .shared
                .call(Call::SyncDir(parent), |disk| disk.sync_dir(parent))
        {
            // Removes the new directory, so that a second try makes it again and its sync has something to write.
            if there.is_none() {
                drop(
                    self.shared
                        .call(Call::Unlink, |disk| disk.unlink(parent, name)),
                );
            }
            return Err(err);
        }
        Ok(self.at(ino, parent, name))
    }

    fn ahead(&self) -> u64 {
        self.shared.pc().ahead
    }

    fn now(&self) -> SystemTime {
        let mut pc = self.shared.pc();
        pc.clock += 1;
        SystemTime::UNIX_EPOCH + FIRST_DAY + Duration::from_millis(pc.clock)
    }

    fn random(&self) -> u64 {
        self.shared.pc().rng.draw()
    }

    fn pause(&self) {}
}

#[derive(Debug)]
struct SimHandle {
    shared: Shared,
    ino: Ino,
    number: u64,
}

impl FileHandle for SimHandle {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.shared.call(Call::Read, |disk| {
            let bytes = disk.read(self.ino)?.get(at as usize..).unwrap_or_default();
            let len = bytes.len().min(buf.len());
            buf[..len].copy_from_slice(&bytes[..len]);
            Ok(len)
        })
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        self.shared.step();
        self.shared.pc().write(self.ino, at as usize, buf)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared
            .call(Call::SetLen, |disk| disk.set_len(self.ino, len as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.shared
            .call(Call::SyncFile(self.ino), |disk| disk.sync_file(self.ino))
    }

    fn stat(&self) -> io::Result<Stat> {
        self.shared
            .call(Call::Look, |disk| Ok(stat(disk, self.ino)))
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        self.shared.call(Call::Lock, |_| Ok(()))?;
        let mut pc = self.shared.pc();
        let holders = pc.locks.entry(self.ino).or_default();
        let free = holders
            .iter()
            .all(|&(number, theirs)| number == self.number || (shared && theirs));
        if free {
            holders.retain(|&(number, _)| number != self.number);
            holders.push((self.number, shared));
        }
        Ok(free)
    }

    fn unlock(&self) -> io::Result<()> {
        let mut pc = self.shared.pc();
        if let Some(holders) = pc.locks.get_mut(&self.ino) {
            holders.retain(|&(number, _)| number != self.number);
        }
        Ok(())
    }
}

impl Drop for SimHandle {
    fn drop(&mut self) {
        drop(self.unlock());
    }
}
