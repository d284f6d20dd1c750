//! The journal that a writer appends to.

use std::io;
use std::sync::Arc;

use crate::dir::{Dir, MAX_FILE, write_all_at};
use crate::disk::{AHEAD, Handle};
use crate::error::{Error, Result, is_full, within};
use crate::sabotage::{self, Sabotage};
use crate::saves::Kept;

/// Room is reserved up to a multiple of this.
const BLOCK: u64 = 512;
/// Never touched and so no memory, where a buffer would stay with each thread that needed one.
static ZEROS: [u8; (AHEAD + BLOCK) as usize] = [0; (AHEAD + BLOCK) as usize];
/// So much stays free of the largest file: the next journal has the same saves behind a
/// provenance of its own, whose numbers are longer.
const SPARE: u64 = 1 << 10;

/// An open journal with room for more frames.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) file: Arc<dyn Handle>,
    pub(crate) name: String,
    salt: u64,
    /// Where the last frame ends.
    end: u64,
    /// Up to where zeros reserve room, so that a full disk takes a few more saves.
    room: u64,
    /// By how much the room grows at most; zero where that is of no use.
    ahead: u64,
}

impl Journal {
    pub(crate) fn new(file: Arc<dyn Handle>, name: String, salt: u64, end: u64, dir: &Dir) -> Self {
        let ahead = dir.disk().ahead();
        let room = end;
        Self {
            file,
            name,
            salt,
            end,
            room,
            ahead,
        }
    }

    /// Puts frames on disk, one in all but sabotage, with one write and one sync.
    ///
    /// After a failure nobody knows what is on disk, so the journal is gone: what the
    /// kernel answers to a second sync of the same file is no proof.
    pub(crate) fn put(mut self, dir: &Dir, frames: &[Kept]) -> Result<Self> {
        let mut bytes = Vec::new();
        for kept in frames {
            kept.frame.encode(&mut bytes, self.salt, &kept.stored);
        }
        let path = dir.path().join(&self.name);
        let failed = |doing, err| Error::write(path.clone(), doing, err, bytes.len());
        let end = self.end + bytes.len() as u64;
        if sabotage::is_on(Sabotage::AckBeforeSync) {
            self.file.sync_data().map_err(|err| failed("sync", err))?;
        }
        let room = self
            .write(&bytes, end)
            .map_err(|err| failed("write", err))?;
        self.sync().map_err(|err| failed("sync", err))?;
        (self.end, self.room) = (end, room);
        Ok(self)
    }

    /// Writes a frame that ends at `end`, and zeros after it if it does not fit into the room.
    fn write(&mut self, frame: &[u8], end: u64) -> io::Result<u64> {
        write_all_at(&*self.file, frame, self.end)?;
        if end <= self.room || self.ahead == 0 {
            return Ok(self.room.max(end));
        }
        // As much again as there is, within bounds, so that a short history stays small.
        let more = end.clamp(self.ahead / 8, self.ahead);
        let room = (end + more).next_multiple_of(BLOCK).min(MAX_FILE.max(end));
        match write_all_at(&*self.file, &ZEROS[..(room - end) as usize], end) {
            Err(err) if is_full(&err) => {
                self.ahead = 0;
                // Others may need what little was left. No save is behind this place.
                self.file.set_len(end).ok();
                Ok(end)
            }
            written => written.map(|()| room),
        }
    }

    fn sync(&self) -> io::Result<()> {
        if sabotage::is_on(Sabotage::AckBeforeSync) {
            return Ok(());
        }
        match self.file.sync_data() {
            Err(_) if sabotage::is_on(Sabotage::RetrySync) => self.file.sync_data(),
            synced => synced,
        }
    }

    /// Refuses a frame that would make the file too large.
    pub(crate) fn check_room(&self, dir: &Dir, kept: &Kept) -> Result<()> {
        let end = self.end + kept.len();
        within("the journal", end as usize, (MAX_FILE - SPARE) as usize)
            .map_err(|kind| Error::new(dir.path().join(&self.name), kind))
    }
}
