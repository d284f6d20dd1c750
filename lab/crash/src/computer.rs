//! A computer with a modelled disk: it counts the calls, can fail one, can lose its power,
//! and keeps a picture of the disk after each call that changed it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;

use crate::disk::{Disk, EIO, Ino, errno};
use crate::rng::Rng;

const EINTR: i32 = 4;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
/// More calls than any single run of a program makes; beyond it, it counts as a run without end.
const MOST_CALLS: u64 = 20_000;

/// What a program asks the disk for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Lists names, looks at lengths or links.
    Look,
    /// Reads bytes.
    Read,
    /// Opens what is there.
    Open,
    /// Makes a file or a directory.
    Create,
    /// Gives another name.
    Rename,
    /// Removes a name.
    Unlink,
    /// Takes or releases the lock.
    Lock,
    /// Writes bytes.
    Write,
    /// Cuts or extends.
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

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    /// The medium fails. A write gets half of its bytes there before.
    Io,
    /// The disk is full.
    Full,
    /// The quota is used up.
    Quota,
    /// A signal comes.
    Interrupted,
    /// A write gets half of its bytes there and says so.
    Short,
    /// The power goes before it.
    Before,
    /// The power goes after it, and nobody hears that it was done.
    After,
}

impl Hit {
    const LETTERS: [char; 7] = ['i', 'f', 'q', 's', 'h', 'b', 'a'];
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Io,
        Self::Full,
        Self::Quota,
        Self::Interrupted,
        Self::Short,
        Self::Before,
        Self::After,
    ];

    /// Tells whether this can happen to such a call.
    pub fn applies(self, call: Call) -> bool {
        match self {
            Self::Io | Self::Before => true,
            Self::Full | Self::Quota => call.changes() && call != Call::Unlink,
            Self::Interrupted => !matches!(call, Call::Look | Call::Unlink | Call::Rename),
            Self::Short => call == Call::Write,
            Self::After => call.changes(),
        }
    }

    /// Tells whether a program that minds its calls does not notice it.
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

/// One call that is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Its number, from 0.
    pub at: u64,
    /// What happens to it.
    pub hit: Hit,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.at, Hit::LETTERS[self.hit as usize])
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no call with a fault");
        let letter = text.chars().next_back().ok_or_else(bad)?;
        let hit = Hit::LETTERS
            .iter()
            .position(|&known| known == letter)
            .ok_or_else(bad)?;
        let at = text.trim_end_matches(letter).parse().map_err(|_| bad())?;
        Ok(Self {
            at,
            hit: Hit::ALL[hit],
        })
    }
}

/// How far a program was: the number of saves that it began, and of the last one that was acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Index of the newest acknowledged state.
    pub acked: usize,
    /// Index of the newest state that was handed to a save.
    pub tried: usize,
    /// How many forks were acknowledged.
    pub forks: usize,
    /// How many blobs were acknowledged.
    pub blobs: usize,
    /// Whether someone removed files since.
    pub is_void: bool,
}

/// The disk at one moment of a run.
#[derive(Debug, Clone)]
pub struct Shot {
    /// The disk, with what was pending.
    pub disk: Disk,
    /// The number of the call that came last.
    pub call: u64,
    /// How far the program was.
    pub progress: Progress,
}

/// Something that another process does in the middle of a run.
pub(crate) struct Hook(pub(crate) u64, pub(crate) Box<dyn FnOnce() + Send>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({})", self.0)
    }
}

/// The disk, and who is watching it.
#[derive(Debug)]
pub struct Computer {
    /// The disk.
    pub disk: Disk,
    /// How far the program is; it says so itself.
    pub progress: Progress,
    /// Bytes by which files may still grow; none for a disk without end.
    pub room: Option<usize>,
    /// Whether something happened that a call of the store may fail for.
    pub harmed: bool,
    /// Whether the program made more calls than any should.
    pub endless: bool,
    /// By how many bytes a journal grows ahead of its saves.
    pub ahead: u64,
    /// Milliseconds since this computer was made for the first time.
    pub clock: u64,
    pub(crate) rng: Rng,
    /// Which handles hold the lock of a file, and whether they share it.
    pub(crate) locks: BTreeMap<Ino, Vec<(u64, bool)>>,
    pub(crate) handles: u64,
    pub(crate) hook: Option<Hook>,
    calls: Vec<Call>,
    plan: Option<Plan>,
    is_off: bool,
    shots: Option<Vec<Shot>>,
}

impl Computer {
    /// Starts one with this disk; random numbers come from `seed`.
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

    /// Hits one call to come.
    pub fn hit(&mut self, plan: Option<Plan>) {
        self.plan = plan;
    }

    /// Begins to keep pictures.
    pub fn watch(&mut self) {
        self.shots = Some(Vec::new());
        self.shoot();
    }

    /// Returns the pictures since [`watch`](Self::watch).
    pub fn shots(&mut self) -> Vec<Shot> {
        self.shots.take().unwrap_or_default()
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Tells whether the power is gone.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Notes how far the program is.
    pub fn reached(&mut self, progress: Progress) {
        self.progress = progress;
        self.shoot();
    }

    fn shoot(&mut self) {
        if let Some(shots) = &mut self.shots {
            let (call, progress) = (self.calls.len() as u64, self.progress);
            shots.push(Shot {
                disk: self.disk.clone(),
                call,
                progress,
            });
        }
    }

    /// Counts a call and does it, unless it is hit.
    pub(crate) fn call<T>(
        &mut self,
        call: Call,
        act: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.enter(call)? {
            None => {}
            Some(Hit::Before) => return Err(errno(EIO)),
            Some(Hit::After) => {
                drop(act(&mut self.disk));
                return Err(errno(EIO));
            }
            Some(hit) => {
                if let Some(ino) = call.synced().filter(|_| hit != Hit::Interrupted) {
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

    /// Writes bytes; returns how many.
    pub(crate) fn write(&mut self, ino: Ino, at: usize, bytes: &[u8]) -> io::Result<usize> {
        let hit = self.enter(Call::Write)?;
        let mut len = match hit {
            Some(Hit::Short | Hit::Io) => bytes.len() / 2,
            None | Some(Hit::After) => bytes.len(),
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
            None if len == 0 && !bytes.is_empty() => Err(Hit::Full.error()),
            None | Some(Hit::Short) => Ok(len),
            Some(hit) => Err(hit.error()),
        }
    }

    /// Counts a call; tells how it is hit.
    fn enter(&mut self, call: Call) -> io::Result<Option<Hit>> {
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
        self.is_off = matches!(hit, Some(Hit::Before | Hit::After));
        Ok(hit)
    }
}
