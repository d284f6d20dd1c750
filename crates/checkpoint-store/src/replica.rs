//! A second place that has every acknowledged save, and the records that it gets. This module does no I/O.
//!
//! # The order
//!
//! A writer makes a save durable in its own files, then sends the record of the save to its replica, and then acknowledges the save. So at any moment
//! the acknowledged saves are a prefix of the replica, and the replica is a prefix of the files, which have at most one save more.
//!
//! The files come first because of the failures that a writer survives. If the disk is full, the save fails before the replica knows of it, and the
//! caller may save again. If the replica came first, it would have that save twice. A failure of the replica is final for the writer, because the
//! writer can't know whether the replica has the save.
//!
//! # The bytes of a record
//!
//! A record is a small file in the format of `frame.rs`: a header, a metadata frame, and one frame with the save. The metadata states the number of the
//! record, the phase that it continues, and the schema of its values. The number of the metadata frame is that of the save before, so a reader notices
//! a missing record. A record of a phase has only the head, because the events are in the records before it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

use serde::de::IgnoredAny;

use crate::codec;
use crate::error::{Error, Kind, Result};
use crate::file_builder::{FileBuilder, read_meta};
use crate::frame::{
    DELTA, Frame, FrameFault, HEADER, LAST_KIND, TRUNCATE, damaged, decode, decode_header,
};
use crate::id::Seq;
use crate::meta::FileMeta;
use crate::saves::PackedFrame;

/// A second place that has every acknowledged save: a file on another disk, or a log on a server.
///
/// [`Writer::set_replica`](crate::Writer::set_replica) gives a writer its replica. For each save, undo, phase and blob, the writer makes it durable in
/// its own files, calls the replica, and returns to its caller only after the replica returned `Ok`. After an error or a panic of a replica, the writer
/// never saves again: the replica may have the save, or not. To continue, [`rebuild`](crate::rebuild()) a store from the records in another directory.
///
/// Removals, compactions and repairs of the writer's files don't change the replica.
pub trait Replica: fmt::Debug + Send + Sync {
    /// Returns the number of the newest record; [`Seq::ZERO`] if there is none.
    fn newest(&self) -> Seq;

    /// Appends a record durably, if no other writer appended one since the newest record of this replica. Blocks the save.
    ///
    /// # Errors
    /// [`ReplicaError::Fenced`] if another writer appended a record, or may do so from now on. [`ReplicaError::Unconfirmed`] if it is not certain that
    /// the record is durable.
    fn append(&mut self, record: &Record) -> Result<(), ReplicaError>;

    /// Stores a blob durably. To store the same bytes again is no error. Blocks the call.
    ///
    /// # Errors
    /// As [`append`](Self::append); also if there is a blob of that name with other bytes.
    fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReplicaError>;
}

/// The reason why a replica did not confirm a record or a blob.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicaError {
    /// Another writer continues the replica. The writer that gets this error has lost its store; see [`Error::is_fenced`].
    #[error("writer {by} continues the replica")]
    Fenced {
        /// The number of the other writer, in the numbering of the replica.
        by: u64,
    },
    /// The replica may have the record, or not; see [`Error::is_unreplicated`].
    #[error("{0}")]
    Unconfirmed(Box<dyn StdError + Send + Sync>),
}

impl From<io::Error> for ReplicaError {
    fn from(err: io::Error) -> Self {
        Self::Unconfirmed(err.into())
    }
}

/// One save, undo or phase of a store, as bytes. Any process can check a record alone, and [`rebuild`](crate::rebuild()) a store from all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    bytes: Vec<u8>,
    pub(crate) meta: FileMeta,
    /// The number of the save before.
    pub(crate) previous: u64,
    frame: Frame,
}

impl Record {
    /// Encodes a save. `meta.seq` is its number, and the number of `kept` is that after the save before; they differ if a phase skips numbers.
    pub(crate) fn new(meta: FileMeta, kept: &PackedFrame, salt: u64) -> Result<Self, Kind> {
        let previous = kept.frame.seq - 1;
        let mut image = FileBuilder::new(&meta, previous, salt)?;
        let frame = Frame {
            offset: image.bytes.len(),
            ..kept.frame
        };
        image.push_stored(kept);
        Ok(Self {
            bytes: image.bytes,
            meta,
            previous,
            frame,
        })
    }

    /// Checks the bytes that [`as_bytes`](Self::as_bytes) returned. `from` is the place where they were read, for the error.
    ///
    /// The bytes may come from an attacker: the check takes memory for at most one save, which is 128 MiB.
    ///
    /// # Errors
    /// [`is_corrupt`](Error::is_corrupt) if the bytes are not a whole record, or one that no writer makes,
    /// [`is_unsupported_version`](Error::is_unsupported_version) if a newer program made them.
    pub fn parse(bytes: Vec<u8>, from: impl AsRef<Path>) -> Result<Self> {
        Self::decode(bytes).map_err(|fault| Error::record(from.as_ref(), fault))
    }

    /// Returns the number of the save.
    pub fn seq(&self) -> Seq {
        Seq::new(self.meta.seq)
    }

    /// Returns the bytes of the record, for [`parse`](Self::parse). They have a length of their own only as a whole, so a log must store their length.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the frame of the save. In a record of a phase, it has only the head.
    pub(crate) fn packed(&self) -> PackedFrame {
        PackedFrame {
            frame: self.frame,
            stored: self.frame.stored(&self.bytes).to_vec(),
        }
    }

    fn decode(bytes: Vec<u8>) -> Result<Self, FrameFault> {
        let meta = read_meta(&bytes)?;
        let salt = decode_header(&bytes)?;
        let first = decode(&bytes, HEADER, salt)?;
        let frame = decode(&bytes, first.end(), salt)?;
        let wrong = |reason| Err(damaged(frame.offset, reason));
        match frame.kind {
            DELTA | TRUNCATE => {}
            kind if kind > LAST_KIND => return Err(FrameFault::NewerFrame { kind }),
            _ => return wrong("the frame is in the wrong place"),
        }
        if frame.end() != bytes.len() {
            return Err(damaged(frame.end(), "bytes follow the save"));
        }
        if first.seq.checked_add(1) != Some(frame.seq) {
            return wrong("the frame is out of sequence");
        }
        if meta.phase.is_none() && meta.seq != frame.seq || meta.seq < frame.seq {
            return wrong("the save has another number than the metadata");
        }
        check_payload(&bytes, &frame, meta.phase.is_some())?;
        Ok(Self {
            bytes,
            meta,
            previous: first.seq,
            frame,
        })
    }
}

/// Fails unless the payload is one that a writer makes, as far as this is visible without its types.
fn check_payload(bytes: &[u8], frame: &Frame, is_phase: bool) -> Result<(), FrameFault> {
    let unreadable = |reason| damaged(frame.offset, reason);
    let raw = codec::unpack(
        frame.flags,
        frame.stored(bytes),
        frame.raw_len,
        frame.offset,
    )?;
    if frame.kind == TRUNCATE {
        let to = codec::decode::<u64>(&raw).ok();
        return match to {
            Some(to) if to < frame.seq && !is_phase => Ok(()),
            _ => Err(unreadable("the undo cannot be read")),
        };
    }
    let (head, mut events) = raw.split_at(frame.head_len as usize);
    codec::decode::<IgnoredAny>(head).map_err(|_| unreadable("the head cannot be read"))?;
    if is_phase && !events.is_empty() {
        return Err(unreadable("events follow the head of a phase"));
    }
    while !events.is_empty() {
        codec::decode_each::<IgnoredAny>(&mut events, drop)
            .map_err(|_| unreadable("an event cannot be read"))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "replica_tests.rs"]
mod tests;
