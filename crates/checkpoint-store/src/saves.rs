//! The saves since the last phase, as a writer has them for the day that a file fails: the
//! newest in memory, and all before them in the journal that took them.
//!
//! What is in that journal was acknowledged, so it is on disk whatever became of a later
//! write, and the descriptor leads to it also when its name is gone. Only a page that the
//! failed write touched may not be as the kernel shows it: what is there is in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::codec::{self, Effort};
use crate::dir::Dir;
use crate::disk::{Directory, Handle};
use crate::error::{Error, Kind, Result, within};
use crate::frame::{self, Fault, Frame, HEADER, MAX_STORED, damaged, max_raw};
use crate::sabotage::{self, Sabotage};

/// A frame apart from its file, compressed as it is stored.
///
/// A writer keeps the newest ones, so that it can write them to a new file when nobody knows
/// any more what is in the old one.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) frame: Frame,
    pub(crate) stored: Vec<u8>,
}

impl Kept {
    /// Packs a payload whose first `head_len` bytes are the head.
    pub(crate) fn pack(
        kind: u8,
        seq: u64,
        head_len: usize,
        raw: Vec<u8>,
        effort: Effort,
    ) -> std::result::Result<Self, Kind> {
        let raw_len = raw.len();
        within("one save", raw_len, max_raw(kind) as usize)?;
        let (flags, stored) = codec::pack(raw, effort);
        within("one save, compressed,", stored.len(), MAX_STORED as usize)?;
        let frame = Frame {
            kind,
            flags,
            raw_len: raw_len as u32,
            head_len: head_len as u32,
            seq,
            offset: 0,
            stored_len: stored.len() as u32,
        };
        Ok(Self { frame, stored })
    }

    /// Returns how many bytes it takes in a file.
    pub(crate) fn len(&self) -> u64 {
        HEADER as u64 + u64::from(self.frame.stored_len)
    }

    /// Returns the payload: the head, then the events.
    pub(crate) fn unpack(&self) -> std::result::Result<Vec<u8>, Fault> {
        codec::unpack(self.frame.flags, &self.stored, self.frame.raw_len, 0)
    }

    /// Returns the save that an undo went back to.
    pub(crate) fn undo_to(&self) -> std::result::Result<u64, Fault> {
        codec::decode(&self.unpack()?).map_err(|_| damaged(0, "the undo cannot be read"))
    }
}

/// So many bytes are read at once.
const WINDOW: usize = 64 << 10;

/// All saves since the last phase, oldest first.
#[derive(Debug)]
pub(crate) struct Saves {
    place: Option<Place>,
    /// How many bytes from the first frame of `place` on are not in memory.
    older: u64,
    newest: VecDeque<Kept>,
    /// How many bytes `newest` takes in a file, and how many it may.
    bytes: u64,
    most: u64,
}

/// The journal that has all saves since the last phase.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) file: Arc<dyn Handle>,
    pub(crate) name: String,
    pub(crate) salt: u64,
    /// Where the first save begins.
    pub(crate) from: u64,
}

impl Saves {
    /// None yet. How many stay in memory depends on the disk.
    pub(crate) fn new(disk: &dyn Directory) -> Self {
        Self {
            place: None,
            older: 0,
            newest: VecDeque::new(),
            bytes: 0,
            most: disk.stride() / 16,
        }
    }

    /// Adds a save that is in the place, or will be before anyone asks for it.
    pub(crate) fn push(&mut self, kept: Kept) {
        self.bytes += kept.len();
        self.newest.push_back(kept);
        while self.bytes > self.most && self.newest.len() > 1 {
            let len = self.newest.pop_front().map_or(0, |kept| kept.len());
            self.bytes -= len;
            self.older += len;
        }
    }

    /// Says where all these saves are.
    pub(crate) fn at(self, place: Place) -> Self {
        let place = Some(place);
        Self { place, ..self }
    }

    /// Forgets the newest save.
    pub(crate) fn pop(&mut self) {
        self.bytes -= self.newest.pop_back().map_or(0, |kept| kept.len());
    }

    /// Returns how many bytes a journal takes that has all of them.
    pub(crate) fn len(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.from) + self.older + self.bytes
    }

    /// Returns the number of the newest save.
    pub(crate) fn last(&self) -> Option<u64> {
        self.newest.back().map(|kept| kept.frame.seq)
    }

    /// Returns all of them, one after the other. An error ends the row.
    pub(crate) fn all(&self, dir: &Dir) -> impl Iterator<Item = Result<Kept>> {
        let older = match sabotage::is_on(Sabotage::HealFromMemory) {
            true => 0,
            false => self.older,
        };
        let mut reading = self.place.as_ref().map(|place| Reading {
            place,
            window: Vec::new(),
            at: place.from,
            used: 0,
            left: older,
        });
        let older = std::iter::from_fn(move || {
            let place = reading.as_mut().filter(|it| it.left > 0)?;
            let kept = place.next(dir);
            if kept.is_err() {
                reading = None;
            }
            Some(kept)
        });
        older.chain(self.newest.iter().cloned().map(Ok))
    }

    #[cfg(test)]
    pub(crate) fn in_memory(&self) -> u64 {
        self.bytes
    }
}

/// A pass over the frames of a file, in bounded memory.
struct Reading<'a> {
    place: &'a Place,
    /// The bytes from `at` on.
    window: Vec<u8>,
    at: u64,
    /// How many of them are behind, and how many bytes from there on are ahead.
    used: usize,
    left: u64,
}

impl Reading<'_> {
    fn next(&mut self, dir: &Dir) -> Result<Kept> {
        let path = dir.path().join(&self.place.name);
        let io = |err| Error::io(&path, "read the saves before", err);
        self.fill(HEADER).map_err(io)?;
        self.fill(frame::len(&self.window[self.used..]))
            .map_err(io)?;
        let frame = frame::decode(&self.window, self.used, self.place.salt)
            .map_err(|fault| Error::fault(&path, fault.after(self.at as usize)))?;
        let stored = frame.stored(&self.window).to_vec();
        self.left = self.left.saturating_sub((frame.end() - self.used) as u64);
        self.used = frame.end();
        Ok(Kept { frame, stored })
    }

    /// Makes the window reach `len` bytes ahead, or as far as there are any.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        let mut have = self.window.len() - self.used;
        let want = len.min(self.left as usize);
        if have >= want {
            return Ok(());
        }
        self.window.drain(..self.used);
        self.at += self.used as u64;
        self.used = 0;
        let room = want.max(WINDOW).min(self.left as usize);
        self.window.resize(room, 0);
        while have < want {
            let at = self.at + have as u64;
            match self.place.file.read_at(&mut self.window[have..], at) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
        self.window.truncate(have);
        Ok(())
    }
}
