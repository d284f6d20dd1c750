//! The journal to which a writer appends.

use std::io;
use std::sync::Arc;

use crate::dir::{Dir, MAX_FILE, write_all_at};
use crate::disk::{FileHandle, MAX_PREALLOCATED};
use crate::error::{Error, Result, is_full, within};
use crate::sabotage::{self, Sabotage};
use crate::saves::PackedFrame;

/// The reserved room ends at a multiple of this.
const BLOCK: u64 = 512;
/// A static that is never written takes no memory. A buffer would stay allocated for each thread that used one.
static ZEROS: [u8; (MAX_PREALLOCATED + BLOCK) as usize] = [0; (MAX_PREALLOCATED + BLOCK) as usize];
/// Free space that a journal leaves below the largest file size: the next journal has the same saves after its own metadata, which may be longer.
const SPARE: u64 = 1 << 10;

/// An open journal with room for more frames.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) file: Arc<dyn FileHandle>,
    pub(crate) name: String,
    salt: u64,
    /// The end of the last frame.
    end: u64,
    /// The number of bytes of the saves in the journals that this one continues. A repair writes them to the same file.
    pub(crate) linked: u64,
    /// The end of the room that zeros reserve, so that a few more saves succeed on a full disk.
    room: u64,
    /// The largest number of bytes by which the room grows; zero where reserving is useless.
    ahead: u64,
}

impl Journal {
    pub(crate) fn new(
        file: Arc<dyn FileHandle>,
        name: String,
        salt: u64,
        end: u64,
        dir: &Dir,
    ) -> Self {
        let ahead = dir.disk().ahead();
        let room = end;
        Self {
            file,
            name,
            salt,
            end,
            linked: 0,
            room,
            ahead,
        }
    }

    /// Writes frames to disk with one write and one sync. There is one frame, except in a sabotage test.
    ///
    /// After a failure it is unknown what is on disk, so this consumes the journal: the result of a second sync of the same file proves nothing.
    pub(crate) fn put(mut self, dir: &Dir, frames: &[PackedFrame]) -> Result<Self> {
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

    /// Writes a frame that ends at `end`, and zeros after it if the frame does not fit into the reserved room.
    fn write(&mut self, frame: &[u8], end: u64) -> io::Result<u64> {
        write_all_at(&*self.file, frame, self.end)?;
        if end <= self.room || self.ahead == 0 {
            return Ok(self.room.max(end));
        }
        // The file doubles within bounds, so that a short history stays small.
        let more = end.clamp(self.ahead / 8, self.ahead);
        let room = (end + more).next_multiple_of(BLOCK).min(MAX_FILE.max(end));
        match write_all_at(&*self.file, &ZEROS[..(room - end) as usize], end) {
            Err(err) if is_full(&err) => {
                self.ahead = 0;
                // Other programs may need the little space that is left. No save is after this place.
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

    /// Refuses a frame that makes the file too large.
    pub(crate) fn check_room(&self, dir: &Dir, kept: &PackedFrame) -> Result<()> {
        let end = self.linked + self.end + kept.len();
        within("the journal", end as usize, (MAX_FILE - SPARE) as usize)
            .map_err(|kind| Error::new(dir.path().join(&self.name), kind))
    }
}
