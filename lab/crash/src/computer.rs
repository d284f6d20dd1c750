//! A computer with a modelled disk. It counts the calls, can make one fail, can lose its power, and keeps a snapshot of the disk after each call that
//! changed it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;

use crate::disk::{Disk, EIO, Ino, errno};
use crate::rng::Rng;

const EINTR: i32 = 4;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
/// More calls than any run of a program makes. A run with more calls counts as endless.
const MOST_CALLS: u64 = 20_000;

/// A request of a program to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Lists names, or reads metadata or links.
    Look,
    /// Reads bytes.
    Read,
    /// Opens an existing file.
    Open,
    /// Makes a file or a directory.
    Create,
    /// Renames a file.
    Rename,
    /// Removes a name.
    Unlink,
    /// Takes or releases the lock.
    Lock,
    /// Writes bytes.
    Write,
    /// Truncates or extends a file.
    SetLen,
    /// Syncs a file.
    SyncFile(Ino),
    /// Syncs a directory.
    SyncDir(Ino),
}

impl Call {
    fn changes(self) -> bool {
        !matches!(self, Self::Look | Self::Read | Self::Open | Self::Lock)
    }

    fn synced(self) -> Option<Ino> {
        match self {
            Self::SyncFile(ino) | Self::SyncDir(ino) => Some(ino),
            _ => None,
        }
    }
}

/// A fault of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The medium fails. A write writes half of its bytes first.
    Io,
    /// The disk is full.
    Full,
    /// The quota is used up.
    Quota,
    /// A signal interrupts the call.
    Interrupted,
    /// A write writes half of its bytes and reports that.
    Short,
    /// The power fails before the call.
    Before,
    /// The power fails after the call, and the program gets no result.
    After,
}

impl CallFault {
    const LETTERS: [char; 7] = ['i', 'f', 'q', 's', 'h', 'b', 'a'];
    /// All faults.
    pub const ALL: [Self; 7] = [
        Self::Io,
        Self::Full,
        Self::Quota,
        Self::Interrupted,
        Self::Short,
        Self::Before,
        Self::After,
    ];

    /// Returns whether this fault can happen to such a call.
    pub fn applies(self, call: Call) -> bool {
        match self {
            Self::Io | Self::Before => true,
            Self::Full | Self::Quota => call.changes() && call != Call::Unlink,
            Self::Interrupted => !matches!(call, Call::Look | Call::Unlink | Call::Rename),
            Self::Short => call == Call::Write,
            Self::After => call.changes(),
        }
    }

    /// Returns whether a correct program is not affected by the fault.
    fn is_harmless(self, call: Call) -> bool {
        match self {
            Self::Short => true,
            Self::Interrupted => matches!(call, Call::Read | Call::Write),
            _ => false,
        }
    }

    fn error(self) -> io::Error {
        errno(match self {
            Self::Full => ENOSPC,
            Self::Quota => EDQUOT,
            Self::Interrupted => EINTR,
            _ => EIO,
        })
    }
}

/// A call with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The number of the call, from 0.
    pub at: u64,
    /// The fault.
    pub hit: CallFault,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.at, CallFault::LETTERS[self.hit as usize])
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a call with a fault");
        let letter = text.chars().next_back().ok_or_else(bad)?;
        let hit = CallFault::LETTERS
            .iter()
            .position(|&known| known == letter)
            .ok_or_else(bad)?;
        let at = text.trim_end_matches(letter).parse().map_err(|_| bad())?;
        Ok(Self {
            at,
            hit: CallFault::ALL[hit],
        })
    }
}

/// The progress of a program: its started saves, and the last acknowledged one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Index of the newest acknowledged state.
    pub acked: usize,
    /// Index of the newest state that was passed to a save.
    pub tried: usize,
    /// Number of acknowledged forks.
    pub forks: usize,
    /// Number of acknowledged blobs.
    pub blobs: usize,
    /// Whether files were removed since the last acknowledged save.
    pub is_void: bool,
    /// Number of records that the replica has, if the program has a replica.
    pub replicated: usize,
    /// Number of times that the program rebuilt its store from the replica.
    pub claims: usize,
}

/// The disk at one moment of a run.
#[derive(Debug, Clone)]
pub struct DiskSnapshot {
    /// The disk, with its pending writes.
    pub disk: Disk,
    /// The number of the last call.
    pub call: u64,
    /// The progress of the program.
    pub progress: Progress,
}

/// An action of another process in the middle of a run.
pub(crate) struct Hook(pub(crate) u64, pub(crate) Box<dyn FnOnce() + Send>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({})", self.0)
    }
}

/// The disk, and the state of the computer around it.
#[derive(Debug)]
pub struct Computer {
    /// The disk.
    pub disk: Disk,
    /// The progress, as the program reports it.
    pub progress: Progress,
    /// Number of bytes by which files may still grow; `None` for an unlimited disk.
    pub room: Option<usize>,
    /// Whether there was a fault after which a call of the store may fail.
    pub harmed: bool,
    /// Whether the program made more calls than any run makes.
    pub endless: bool,
    /// Number of bytes by which a journal grows ahead of its saves.
    pub ahead: u64,
    /// Milliseconds since the first start of this computer.
    pub clock: u64,
    pub(crate) rng: Rng,
    /// The handles that hold the lock of a file, and whether they share it.
    pub(crate) locks: BTreeMap<Ino, Vec<(u64, bool)>>,
    pub(crate) handles: u64,
    pub(crate) hook: Option<Hook>,
    calls: Vec<Call>,
    plan: Option<Plan>,
    is_off: bool,
    shots: Option<Vec<DiskSnapshot>>,
}

impl Computer {
    /// Starts a computer with this disk; its random numbers come from `seed`.
    pub fn new(disk: Disk, seed: u64) -> Self {
        Self {
            ahead: 0,
            clock: 0,
            rng: Rng::new(seed),
            locks: BTreeMap::new(),
            handles: 0,
            hook: None,
            disk,
            progress: Progress::default(),
            room: None,
            harmed: false,
            endless: false,
            calls: Vec::new(),
            plan: None,
            is_off: false,
            shots: None,
        }
    }

    /// Sets the fault of one later call.
    pub fn hit(&mut self, plan: Option<Plan>) {
        self.plan = plan;
    }

    /// Starts to keep snapshots.
    pub fn watch(&mut self) {
        self.shots = Some(Vec::new());
        self.shoot();
    }

    /// Returns the snapshots since [`watch`](Self::watch).
    pub fn shots(&mut self) -> Vec<DiskSnapshot> {
        self.shots.take().unwrap_or_default()
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns whether the power is off.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Records the progress of the program.
    pub fn reached(&mut self, progress: Progress) {
        self.progress = progress;
        self.shoot();
    }

    fn shoot(&mut self) {
        if let Some(shots) = &mut self.shots {
            let (call, progress) = (self.calls.len() as u64, self.progress);
            shots.push(DiskSnapshot {
                disk: self.disk.clone(),
                call,
                progress,
            });
        }
    }

    /// Counts a call and executes it, unless it has a fault.
    pub(crate) fn call<T>(
        &mut self,
        call: Call,
        act: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.enter(call)? {
            None => {}
            Some(CallFault::Before) => return Err(errno(EIO)),
            Some(CallFault::After) => {
                drop(act(&mut self.disk));
                return Err(errno(EIO));
            }
            Some(hit) => {
                if let Some(ino) = call.synced().filter(|_| hit != CallFault::Interrupted) {
                    self.disk.fail_sync(ino);
                    self.shoot();
                }
                return Err(hit.error());
            }
        }
        let done = act(&mut self.disk);
        if call.changes() && done.is_ok() {
            self.shoot();
        }
        done
    }

    /// Writes bytes; returns how many were written.
    pub(crate) fn write(&mut self, ino: Ino, at: usize, bytes: &[u8]) -> io::Result<usize> {
        let hit = self.enter(Call::Write)?;
        let mut len = match hit {
            Some(CallFault::Short | CallFault::Io) => bytes.len() / 2,
            None | Some(CallFault::After) => bytes.len(),
            Some(_) => 0,
        };
        if let Some(room) = &mut self.room {
            let free = self.disk.read(ino)?.len().saturating_sub(at) + *room;
            len = len.min(free);
            let grown = (at + len).saturating_sub(self.disk.read(ino)?.len());
            *room -= grown;
        }
        if len > 0 {
            self.disk.write(ino, at, &bytes[..len])?;
            self.shoot();
        }
        match hit {
            None if len == 0 && !bytes.is_empty() => Err(CallFault::Full.error()),
            None | Some(CallFault::Short) => Ok(len),
            Some(hit) => Err(hit.error()),
        }
    }

    /// Counts a call; returns its fault, if there is one.
    fn enter(&mut self, call: Call) -> io::Result<Option<CallFault>> {
        if self.is_off {
            return Err(errno(EIO));
        }
        let number = self.calls.len() as u64;
        self.calls.push(call);
        if number > MOST_CALLS {
            self.endless = true;
            self.is_off = true;
            return Err(errno(EIO));
        }
        let hit = self
            .plan
            .filter(|plan| plan.at == number)
            .map(|plan| plan.hit);
        let hit = hit.filter(|hit| hit.applies(call));
        self.harmed |= hit.is_some_and(|hit| !hit.is_harmless(call));
        self.is_off = matches!(hit, Some(CallFault::Before | CallFault::After));
        Ok(hit)
    }
}
