//! Serves a file to the kernel as a disk. So this process sees each write and each flush in the order of a real disk.
//!
//! The root of this file system is a regular file. There are no names and no directories, and only a few kinds of requests, which are handled as
//! bytes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::log::{Entry, Log};

const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const EFBIG: i32 = 27;
/// The largest write that the kernel may send.
const MOST_WRITE: u32 = 128 << 10;
/// Length of the header of a request.
const HEADER: usize = 40;
/// The version of the FUSE protocol, 7.31.
const VERSION: [u32; 2] = [7, 31];
/// Limit of the logged bytes; a workload takes a few MiB.
const MOST_LOGGED: usize = 256 << 20;

/// The requests that a single file can get.
mod op {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
}

/// The bytes of the disk, and the log if there is one.
#[derive(Debug, Default)]
struct State {
    image: Vec<u8>,
    log: Option<Log>,
    logged: usize,
}

/// A disk that this process serves. Dropping the [`Served`] detaches it from the kernel.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

/// The owner of a disk. Dropping it detaches the disk.
#[derive(Debug)]
pub(super) struct Served(Disk);

impl Drop for Served {
    fn drop(&mut self) {
        // The thread that serves the disk ends with the connection.
        let (Ok(()) | Err(_)) = umount2(&self.0.path, MntFlags::MNT_DETACH);
    }
}

impl std::ops::Deref for Served {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.0
    }
}

impl Disk {
    /// Serves a disk with these bytes at `path`, which becomes a file.
    pub(super) fn serve(path: &Path, image: Vec<u8>) -> Result<Served, String> {
        let failed = |what: &str, err: &dyn std::fmt::Display| format!("no FUSE: {what}: {err}");
        File::create(path).map_err(|err| failed("file", &err))?;
        let mut options = File::options();
        let device = options.read(true).write(true).open("/dev/fuse");
        let mut device = device.map_err(|err| failed("/dev/fuse", &err))?;
        let data = format!(
            "fd={},rootmode=100000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("blocklog"),
            path,
            Some("fuse"),
            flags,
            Some(data.as_str()),
        )
        .map_err(|err| failed("mount", &err))?;
        let disk = Self {
            path: path.into(),
            state: Arc::new(Mutex::new(State {
                image,
                ..State::default()
            })),
        };
        let state = Arc::clone(&disk.state);
        std::thread::spawn(move || answer_all(&mut device, &state));
        Ok(Served(disk))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the disk.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the bytes of the disk, which must not be in use.
    pub(super) fn set(&self, image: Vec<u8>) {
        self.state().image = image;
    }

    /// Starts the log.
    pub(super) fn record(&self) {
        let mut state = self.state();
        state.log = Some(Log {
            base: state.image.clone(),
            entries: Vec::new(),
        });
        state.logged = 0;
    }

    /// Logs an event outside the disk.
    pub(super) fn note(&self, entry: Entry) {
        if let Some(log) = &mut self.state().log {
            log.entries.push(entry);
        }
    }

    /// Ends the log and returns it.
    pub(super) fn log(&self) -> Log {
        self.state().log.take().unwrap_or_default()
    }
}

/// Answers requests until the kernel sends no more.
fn answer_all(device: &mut File, state: &Mutex<State>) {
    let mut request = vec![0; MOST_WRITE as usize + 2 * BLOCK];
    // The read fails when the disk is unmounted.
    while let Ok(len) = device.read(&mut request) {
        let Some(request) = request.get(..len).filter(|request| request.len() >= HEADER) else {
            continue;
        };
        let (opcode, body) = (word(request, 4), &request[HEADER..]);
        if matches!(opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT) {
            continue;
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (error, body) = match state.answer(opcode, body) {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        drop(state);
        let mut answer = Vec::with_capacity(16 + body.len());
        answer.extend_from_slice(&(16 + body.len() as u32).to_le_bytes());
        answer.extend_from_slice(&error.to_le_bytes());
        answer.extend_from_slice(&request[8..16]);
        answer.extend_from_slice(&body);
        // The write fails if the kernel cancelled the request.
        let (Ok(_) | Err(_)) = device.write(&answer);
    }
}

const BLOCK: usize = 4096;

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> usize {
    word(bytes, at) as usize | (word(bytes, at + 4) as usize) << 32
}

impl State {
    fn answer(&mut self, opcode: u32, body: &[u8]) -> Result<Vec<u8>, i32> {
        match opcode {
            op::INIT => Ok(init()),
            op::GETATTR | op::SETATTR => Ok(attributes(self.image.len() as u64)),
            op::OPEN => {
                // With this flag every read and write comes here, and none is answered from the kernel's cache.
                const DIRECT_IO: u32 = 1;
                let mut out = vec![0; 16];
                out[8..12].copy_from_slice(&DIRECT_IO.to_le_bytes());
                Ok(out)
            }
            op::READ => {
                let (at, size) = (long(body, 8), word(body, 16) as usize);
                let end = (at + size).min(self.image.len());
                Ok(self.image.get(at..end).unwrap_or_default().to_vec())
            }
            op::WRITE => {
                let (at, size) = (long(body, 8), word(body, 16) as usize);
                let bytes = body.get(HEADER..HEADER + size).ok_or(EFBIG)?;
                let place = self.image.get_mut(at..at + size).ok_or(EFBIG)?;
                place.copy_from_slice(bytes);
                if let Some(log) = &mut self.log {
                    self.logged += size;
                    if self.logged > MOST_LOGGED {
                        return Err(EFBIG);
                    }
                    log.entries.push(Entry::Write(at, bytes.into()));
                }
                let mut out = vec![0; 8];
                out[..4].copy_from_slice(&(size as u32).to_le_bytes());
                Ok(out)
            }
            op::FSYNC => {
                if let Some(log) = &mut self.log {
                    log.entries.push(Entry::Flush);
                }
                Ok(Vec::new())
            }
            op::FLUSH | op::RELEASE | op::DESTROY => Ok(Vec::new()),
            op::FALLOCATE => Err(EOPNOTSUPP),
            _ => Err(ENOSYS),
        }
    }
}

/// Returns the response with this side's capabilities; all others are 0.
fn init() -> Vec<u8> {
    const BIG_WRITES: u32 = 1 << 5;
    let mut out = vec![0; 64];
    let mut put = |at: usize, word: u32| out[at..at + 4].copy_from_slice(&word.to_le_bytes());
    put(0, VERSION[0]);
    put(4, VERSION[1]);
    put(8, MOST_WRITE);
    put(12, BIG_WRITES);
    put(20, MOST_WRITE);
    put(24, 1);
    out
}

/// Returns the attributes of a regular file of `len` bytes, valid for one hour.
fn attributes(len: u64) -> Vec<u8> {
    let mut out = vec![0; 104];
    let mut put = |at: usize, word: u32| out[at..at + 4].copy_from_slice(&word.to_le_bytes());
    put(0, 3_600);
    put(16, 1);
    put(24, len as u32);
    put(28, (len >> 32) as u32);
    put(32, (len / 512) as u32);
    put(76, 0o100_600);
    put(80, 1);
    put(96, BLOCK as u32);
    out
}
