//! The saves since the last phase, which a writer needs again if a file fails: the newest in memory, and all older ones in the journals that have
//! them.
//!
//! Every save in those journals was acknowledged. So it is on disk, whatever happened to a later write, and the open descriptor still reads it if the
//! name is gone. On disk, only a page that the failed write touched may differ from what the kernel shows; the saves on that page are in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::codec::{self, CompressionEffort};
use crate::dir::Dir;
use crate::disk::{Directory, FileHandle};
use crate::error::{Error, Kind, Result, within};
use crate::frame::{self, Frame, FrameFault, HEADER, MAX_STORED, damaged, max_raw};
use crate::sabotage::{self, Sabotage};

/// A frame separate from its file, compressed as it is stored.
///
/// A writer keeps the newest frames, so that it can write them to a new file when the contents of the old file are uncertain.
#[derive(Debug, Clone)]
pub(crate) struct PackedFrame {
    pub(crate) frame: Frame,
    pub(crate) stored: Vec<u8>,
}

impl PackedFrame {
    /// Packs a payload whose first `head_len` bytes are the head.
    pub(crate) fn pack(
        kind: u8,
        seq: u64,
        head_len: usize,
        raw: Vec<u8>,
        effort: CompressionEffort,
    ) -> std::result::Result<Self, Kind> {
        let raw_len = raw.len();
        within("one save", raw_len, max_raw(kind) as usize)?;
        let (flags, stored) = codec::pack(raw, effort);
        within("one compressed save", stored.len(), MAX_STORED as usize)?;
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

    /// Returns the number of bytes of the frame in a file.
    pub(crate) fn len(&self) -> u64 {
        HEADER as u64 + u64::from(self.frame.stored_len)
    }

    /// Returns the payload: the head, then the events.
    pub(crate) fn unpack(&self) -> std::result::Result<Vec<u8>, FrameFault> {
        codec::unpack(self.frame.flags, &self.stored, self.frame.raw_len, 0)
    }

    /// Returns the save to which an undo returned.
    pub(crate) fn undo_to(&self) -> std::result::Result<u64, FrameFault> {
        codec::decode(&self.unpack()?).map_err(|_| damaged(0, "the undo cannot be read"))
    }
}

/// Number of bytes to read at once.
const WINDOW: usize = 64 << 10;

/// All saves since the last phase, oldest first.
#[derive(Debug)]
pub(crate) struct Saves {
    /// The saves that the journal doesn't have itself, because it continues other journals; oldest first.
    linked: Vec<LinkedSaves>,
    location: Option<JournalLocation>,
    /// The number of bytes of the journal, after its metadata, that are not in memory.
    bytes_on_disk: u64,
    newest: VecDeque<PackedFrame>,
    /// The number of bytes of `newest` in a file, and its limit.
    bytes: u64,
    max_bytes: u64,
}

/// The journal that has all saves since the last phase.
#[derive(Debug)]
pub(crate) struct JournalLocation {
    pub(crate) file: Arc<dyn FileHandle>,
    pub(crate) name: String,
    pub(crate) salt: u64,
    /// The byte at which the first save begins.
    pub(crate) from: u64,
}

/// Saves in a file that is not written to any more.
#[derive(Debug)]
pub(crate) struct LinkedSaves {
    pub(crate) location: JournalLocation,
    pub(crate) len: u64,
}

impl Saves {
    /// Returns an empty list. The number of saves that stay in memory depends on the disk.
    pub(crate) fn new(disk: &dyn Directory) -> Self {
        Self {
            linked: Vec::new(),
            location: None,
            bytes_on_disk: 0,
            newest: VecDeque::new(),
            bytes: 0,
            max_bytes: disk.stride() / 16,
        }
    }

    /// Adds a save that is in the journal, or will be there before `all` reads it.
    pub(crate) fn push(&mut self, kept: PackedFrame) {
        self.bytes += kept.len();
        self.newest.push_back(kept);
        while self.bytes > self.max_bytes && self.newest.len() > 1 {
            let len = self.newest.pop_front().map_or(0, |kept| kept.len());
            self.bytes -= len;
            self.bytes_on_disk += len;
        }
    }

    /// Sets the journal that contains all these saves, and the earlier saves in the files that it continues.
    pub(crate) fn at(self, location: JournalLocation, linked: Vec<LinkedSaves>) -> Self {
        let location = Some(location);
        Self {
            location,
            linked,
            ..self
        }
    }

    /// Returns the journals that the current one continues.
    pub(crate) fn linked(&self) -> impl Iterator<Item = &JournalLocation> {
        self.linked.iter().map(|linked| &linked.location)
    }

    /// Returns the names of the journal and of all journals that it continues.
    pub(crate) fn files(&self) -> Vec<String> {
        let locations = self.linked().chain(&self.location);
        locations.map(|location| location.name.clone()).collect()
    }

    pub(crate) fn pop(&mut self) {
        self.bytes -= self.newest.pop_back().map_or(0, |kept| kept.len());
    }

    /// Returns the number of bytes of a journal that contains all these saves.
    pub(crate) fn len(&self) -> u64 {
        let from = self.location.as_ref().map_or(0, |location| location.from);
        let linked: u64 = self.linked.iter().map(|linked| linked.len).sum();
        from + linked + self.bytes_on_disk + self.bytes
    }

    /// Returns the number of the newest save.
    pub(crate) fn last(&self) -> Option<u64> {
        self.newest.back().map(|kept| kept.frame.seq)
    }

    /// Returns all saves in order. An error ends the iteration.
    pub(crate) fn all(&self, dir: &Dir) -> impl Iterator<Item = Result<PackedFrame>> {
        let linked = self.linked.iter();
        let linked = linked.map(|linked| (&linked.location, linked.len));
        let current = self.location.iter();
        let on_disk = linked.chain(current.map(|location| (location, self.bytes_on_disk)));
        let on_disk = on_disk.filter(|_| !sabotage::is_on(Sabotage::RepairFromMemory));
        let mut readers = on_disk.map(|(location, left)| FrameReader {
            location,
            window: Vec::new(),
            at: location.from,
            used: 0,
            left,
        });
        let mut reading = readers.next();
        let older = std::iter::from_fn(move || {
            while reading.as_ref()?.left == 0 {
                reading = readers.next();
            }
            let kept = reading.as_mut()?.next(dir);
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

/// A pass over the frames of a file with limited memory.
struct FrameReader<'a> {
    location: &'a JournalLocation,
    /// The bytes from `at` on.
    window: Vec<u8>,
    at: u64,
    /// The number of bytes of the window that were consumed, and the number of bytes of the file that are still to come.
    used: usize,
    left: u64,
}

impl FrameReader<'_> {
    fn next(&mut self, dir: &Dir) -> Result<PackedFrame> {
        let path = dir.path().join(&self.location.name);
        let io = |err| Error::io(&path, "read the earlier saves", err);
        self.fill(HEADER).map_err(io)?;
        self.fill(frame::len(&self.window[self.used..]))
            .map_err(io)?;
        let frame = frame::decode(&self.window, self.used, self.location.salt)
            .map_err(|fault| Error::fault(&path, fault.after(self.at as usize)))?;
        let stored = frame.stored(&self.window).to_vec();
        self.left = self.left.saturating_sub((frame.end() - self.used) as u64);
        self.used = frame.end();
        Ok(PackedFrame { frame, stored })
    }

    /// Extends the window to `len` bytes ahead, or to the end of the saves.
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
            match self.location.file.read_at(&mut self.window[have..], at) {
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
