//! A save apart from its file: what a writer holds in memory, and what goes from one file to the next.

use crate::codec::{self, Effort};
use crate::error::{Kind, within};
use crate::frame::{Fault, Frame, HEADER, MAX_STORED, damaged, max_raw};

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
