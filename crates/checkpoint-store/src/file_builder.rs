//! Whole files in memory: encodes a new phase file or journal, and reads it back.

use serde::{Deserialize, Serialize};

use crate::codec::{self, CompressionEffort};
use crate::error::{Kind, within};
use crate::frame::{
    self, DELTA, END, FrameFault, HEADER, MAX_META, META, Tail, damaged, decode, decode_header,
    encode_header, scan,
};
use crate::meta::FileMeta;
use crate::replay::unpacked;
use crate::replay::{Events, Needed, Replay, State};
use crate::sabotage::{self, Sabotage};
use crate::saves::PackedFrame;

/// Events of a phase are packed in pieces of about this size; larger pieces compress no better.
const CHUNK: usize = 4 << 20;

/// Payload of the last frame of a phase file: the counts of the frames and bytes before it.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct PhaseEnd {
    frames: u64,
    bytes: u64,
}

/// A file under construction.
#[derive(Debug)]
pub(crate) struct FileBuilder {
    pub(crate) salt: u64,
    pub(crate) bytes: Vec<u8>,
}

impl FileBuilder {
    /// Begins a file with its metadata frame, numbered `seq`; `salt` is random.
    pub(crate) fn new(meta: &FileMeta, seq: u64, salt: u64) -> Result<Self, Kind> {
        let mut raw = Vec::new();
        codec::encode(&mut raw, meta).map_err(Kind::Encode)?;
        within("the metadata", raw.len(), MAX_META as usize)?;
        let mut image = Self {
            salt,
            bytes: encode_header(salt),
        };
        image.push(META, seq, 0, raw)?;
        Ok(image)
    }

    fn push(&mut self, kind: u8, seq: u64, head_len: usize, raw: Vec<u8>) -> Result<(), Kind> {
        self.push_stored(&PackedFrame::pack(
            kind,
            seq,
            head_len,
            raw,
            CompressionEffort::Phase,
        )?);
        Ok(())
    }

    /// Appends a frame without a change of its payload.
    pub(crate) fn push_stored(&mut self, kept: &PackedFrame) {
        kept.frame.encode(&mut self.bytes, self.salt, &kept.stored);
    }

    /// Appends a whole state and the end frame, and returns the complete file.
    pub(crate) fn write_phase(mut self, state: &State) -> Result<Vec<u8>, Kind> {
        let mut seq = 1;
        let mut piece: Vec<u8> = Vec::new();
        for events in state.events.iter().map(Events::bytes) {
            if !piece.is_empty() && piece.len() + events.len() > CHUNK {
                self.push(DELTA, seq, 0, std::mem::take(&mut piece))?;
                seq += 1;
            }
            piece.extend_from_slice(events);
        }
        let mut raw = state.head.clone().unwrap_or_default();
        let head_len = raw.len();
        if !piece.is_empty() && head_len + piece.len() > CHUNK {
            // Each part fits into one frame; together they may not.
            self.push(DELTA, seq, 0, std::mem::take(&mut piece))?;
            seq += 1;
        }
        raw.append(&mut piece);
        self.push(DELTA, seq, head_len, raw)?;
        seq += 1;
        let mut raw = Vec::new();
        let end = PhaseEnd {
            frames: seq,
            bytes: self.bytes.len() as u64,
        };
        codec::encode(&mut raw, &end).map_err(Kind::Encode)?;
        self.push(END, seq, 0, raw)?;
        Ok(self.bytes)
    }
}

/// Returns the number of bytes that are needed to read the metadata of a file, if its first bytes are good.
pub(crate) fn meta_end(first: &[u8]) -> usize {
    HEADER + frame::len(first.get(HEADER..).unwrap_or_default()).min(HEADER + MAX_META as usize)
}

/// Reads the metadata at the start of a file.
pub(crate) fn read_meta(file: &[u8]) -> Result<FileMeta, FrameFault> {
    let salt = decode_header(file)?;
    let frame = decode(file, HEADER, salt)?;
    if frame.kind != META {
        return Err(damaged(HEADER, "the first frame is not the metadata"));
    }
    let raw = codec::unpack(frame.flags, frame.stored(file), frame.raw_len, HEADER)?;
    codec::decode(&raw).map_err(|_| damaged(HEADER, "the metadata cannot be read"))
}

/// Reads the state of a phase file, as far as it is needed; anything but a perfect file is a fault.
pub(crate) fn read_phase(file: &[u8], needed: Needed) -> Result<State, FrameFault> {
    let (frames, tail) = scan(file, decode_header(file)?)?;
    let ([_, deltas @ .., last], Tail::Clean) = (&frames[..], tail) else {
        let (Tail::Torn { offset } | Tail::Damaged { offset, .. }) = tail else {
            return Err(damaged(file.len(), "the end frame is missing"));
        };
        return Err(damaged(offset, "a frame before the end frame is bad"));
    };
    let stored_end = (last.kind == END)
        .then(|| codec::unpack(last.flags, last.stored(file), last.raw_len, last.offset))
        .transpose()?
        .and_then(|raw| codec::decode::<PhaseEnd>(&raw).ok());
    if stored_end
        != Some(PhaseEnd {
            frames: last.seq,
            bytes: last.offset as u64,
        })
    {
        return Err(damaged(
            last.offset,
            "the end frame is missing or has wrong counts",
        ));
    }
    if last.end() != file.len() && !sabotage::is_on(Sabotage::IgnoreTrailing) {
        return Err(damaged(last.end(), "bytes follow the end frame"));
    }
    let mut replay = Replay::new(0);
    for (frame, raw) in deltas.iter().zip(unpacked(file, deltas, needed)) {
        replay.step(frame, raw?)?;
    }
    if needed == Needed::NewestHead {
        replay.fetch_head([(file, deltas)])?;
    }
    Ok(replay.state())
}
