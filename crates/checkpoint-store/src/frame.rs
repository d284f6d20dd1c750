//! The container format: a file header and frames, as bytes. This module does no I/O; `journal.rs` and `file_builder.rs` write the frames, `load.rs`
//! reads them.
//!
//! Every integer is little-endian.
//!
//! | file header | bytes | frame header | bytes |
//! |---|---|---|---|
//! | magic `89 CKP 0D 0A 1A 0A` | 0..8 | magic `CKF1` | 0..4 |
//! | major, minor | 8..12 | kind, flags, 0, 0 | 4..8 |
//! | header length | 12..16 | stored and raw length | 8..16 |
//! | salt | 16..24 | seq | 16..24 |
//! | 0 | 24..28 | length of the head in the raw payload | 24..28 |
//! | CRC32C | 28..32 | CRC32C of salt, header, payload | 28..32 |
//!
//! The salt is random for each file, so an old disk block that appears in a new file after a crash is never valid. The frame magic is not zero, so a
//! tail of zeros ends the journal.

use crc32c::{crc32c, crc32c_append};

use crate::sabotage::{self, Sabotage};

pub(crate) const HEADER: usize = 32;
pub(crate) const MAJOR: u16 = 1;
const MINOR: u16 = 0;
const FILE_MAGIC: [u8; 8] = *b"\x89CKP\r\n\x1a\n";
const FRAME_MAGIC: [u8; 4] = *b"CKF1";

/// Largest payload as stored, and largest payload of a save after decompression. The writer makes no larger one, and the reader checks both before it
/// allocates memory.
pub(crate) const MAX_STORED: u32 = 64 << 20;
pub(crate) const MAX_RAW: u32 = 128 << 20;
/// Largest encoded metadata.
pub(crate) const MAX_META: u32 = 1 << 20;
/// Largest payload of an undo, a link and an end frame, which contain only a few numbers.
const MAX_NUMBERS: u32 = 1 << 10;
/// Largest raw length for one stored byte. The writer stores a payload uncompressed if it exceeds this ratio.
pub(crate) const MAX_RATIO: u64 = 1000;

/// The metadata; the first frame of every file.
pub(crate) const META: u8 = 1;
/// A head and the events that led to it.
pub(crate) const DELTA: u8 = 2;
/// An undo: the state is again the one of an earlier save.
pub(crate) const TRUNCATE: u8 = 3;
/// The last frame of a phase file.
pub(crate) const END: u8 = 4;
/// The events of a save whose head was dropped, so that nothing can return to this save.
pub(crate) const EVENTS: u8 = 5;
/// The first saves of a journal are in another file. Always critical: a reader without this kind would return a state without those saves.
pub(crate) const LINK: u8 = 6;
pub(crate) const LAST_KIND: u8 = LINK;

/// Returns the largest payload after decompression that a writer makes for this kind.
pub(crate) fn max_raw(kind: u8) -> u32 {
    match kind {
        META => MAX_META,
        TRUNCATE | END | LINK => MAX_NUMBERS,
        _ => MAX_RAW,
    }
}

pub(crate) const ZSTD: u8 = 1;
/// A reader that does not know the kind must refuse the file; it must not skip the frame.
pub(crate) const CRITICAL: u8 = 0x80;

/// A reason why a reader of this version cannot use a file or a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrameFault {
    Damaged {
        offset: usize,
        reason: &'static str,
    },
    /// The checksum is right, but no writer of this version makes a frame of this size.
    TooLarge {
        offset: usize,
        bytes: u32,
        limit: u32,
    },
    NewerContainer {
        found: u16,
    },
    NewerFrame {
        kind: u8,
    },
    NewerPacking {
        found: u8,
    },
    #[cfg(not(feature = "zstd"))]
    NoZstd,
}

pub(crate) fn damaged(offset: usize, reason: &'static str) -> FrameFault {
    FrameFault::Damaged { offset, reason }
}

impl FrameFault {
    /// Returns this fault with an offset that is `before` bytes later in the file.
    pub(crate) fn after(self, before: usize) -> Self {
        match self {
            Self::Damaged { offset, reason } => damaged(before + offset, reason),
            Self::TooLarge {
                offset,
                bytes,
                limit,
            } => Self::TooLarge {
                offset: before + offset,
                bytes,
                limit,
            },
            newer => newer,
        }
    }
}

/// A frame inside a file that is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) raw_len: u32,
    pub(crate) head_len: u32,
    pub(crate) seq: u64,
    pub(crate) offset: usize,
    pub(crate) stored_len: u32,
}

impl Frame {
    pub(crate) fn stored<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        &file[self.offset + HEADER..self.end()]
    }

    pub(crate) fn end(&self) -> usize {
        self.offset + HEADER + self.stored_len as usize
    }

    /// Appends this frame to `out`, the bytes of a file whose salt is `salt`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, salt: u64, stored: &[u8]) {
        let start = out.len();
        out.extend_from_slice(&FRAME_MAGIC);
        out.extend_from_slice(&[self.kind, self.flags, 0, 0]);
        out.extend_from_slice(&self.stored_len.to_le_bytes());
        out.extend_from_slice(&self.raw_len.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.head_len.to_le_bytes());
        let crc = checksum(salt, &out[start..], stored);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(stored);
    }
}

fn checksum(salt: u64, header: &[u8], payload: &[u8]) -> u32 {
    let salt = match sabotage::is_on(Sabotage::SkipSalt) {
        true => 0,
        false => salt,
    };
    crc32c_append(crc32c_append(crc32c(&salt.to_le_bytes()), header), payload)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(
        bytes[at..at + 4]
            .try_into()
            .expect("four bytes were sliced"),
    )
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        bytes[at..at + 8]
            .try_into()
            .expect("eight bytes were sliced"),
    )
}

pub(crate) fn encode_header(salt: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(&FILE_MAGIC);
    out.extend_from_slice(&MAJOR.to_le_bytes());
    out.extend_from_slice(&MINOR.to_le_bytes());
    out.extend_from_slice(&(HEADER as u32).to_le_bytes());
    out.extend_from_slice(&salt.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Returns the salt of a file.
pub(crate) fn decode_header(file: &[u8]) -> Result<u64, FrameFault> {
    let Some(header) = file.get(..HEADER) else {
        return Err(damaged(file.len(), "the file header is truncated"));
    };
    if header[..8] != FILE_MAGIC {
        return Err(damaged(0, "the file header has no magic number"));
    }
    if u32_at(header, 28) != crc32c(&header[..28]) {
        return Err(damaged(0, "the file header has a wrong checksum"));
    }
    let major = u16::from_le_bytes([header[8], header[9]]);
    if major != MAJOR {
        return Err(FrameFault::NewerContainer { found: major });
    }
    Ok(u64_at(header, 16))
}

/// Returns the frame's length, header included, according to its first bytes. If `first` is too short for that, returns the length of a header.
pub(crate) fn len(first: &[u8]) -> usize {
    let stored = first.get(8..12).map_or(0, |stored| u32_at(stored, 0));
    HEADER + stored.min(MAX_STORED) as usize
}

/// Returns the frame at byte `at`, or the fault there.
pub(crate) fn decode(file: &[u8], at: usize, salt: u64) -> Result<Frame, FrameFault> {
    let Some(header) = file.get(at..at + HEADER) else {
        return Err(damaged(at, "the frame header is truncated"));
    };
    if header[..4] != FRAME_MAGIC {
        return Err(damaged(at, "no frame begins here"));
    }
    let frame = Frame {
        kind: header[4],
        flags: header[5],
        stored_len: u32_at(header, 8),
        raw_len: u32_at(header, 12),
        seq: u64_at(header, 16),
        head_len: u32_at(header, 24),
        offset: at,
    };
    if frame.stored_len > MAX_STORED {
        return Err(damaged(at, "the frame is larger than allowed"));
    }
    let Some(stored) = file.get(at + HEADER..frame.end()) else {
        return Err(damaged(at, "the frame is truncated"));
    };
    if u32_at(header, 28) != checksum(salt, &header[..28], stored)
        && !sabotage::is_on(Sabotage::SkipCrc)
    {
        return Err(damaged(at, "the frame has a wrong checksum"));
    }
    if u64::from(frame.raw_len) > u64::from(frame.stored_len) * MAX_RATIO
        || frame.head_len > frame.raw_len
    {
        return Err(damaged(at, "the frame's lengths contradict each other"));
    }
    if frame.kind > LAST_KIND && frame.flags & CRITICAL != 0 {
        return Err(FrameFault::NewerFrame { kind: frame.kind });
    }
    let (bytes, limit) = (frame.raw_len, max_raw(frame.kind));
    if bytes > limit {
        let offset = at;
        return Err(FrameFault::TooLarge {
            offset,
            bytes,
            limit,
        });
    }
    Ok(frame)
}

/// The bytes after the good frames of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    Clean,
    /// An incomplete save, which was not acknowledged.
    Torn {
        offset: usize,
    },
    /// Damage after an acknowledged save, so acknowledged saves may be lost.
    Damaged {
        offset: usize,
        reason: &'static str,
    },
}

/// Returns the good frames of a file and what follows them. Each frame has the number after that of the frame before it.
///
/// The writer writes and syncs one frame at a time. So a bad frame at the end is an incomplete save, and a bad frame with a valid later one means
/// media damage.
pub(crate) fn scan(file: &[u8], salt: u64) -> Result<(Vec<Frame>, Tail), FrameFault> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut at = HEADER;
    while at < file.len() {
        let expected = frames
            .first()
            .map(|first| first.seq.wrapping_add(frames.len() as u64));
        match decode(file, at, salt) {
            Ok(frame)
                if expected.is_some_and(|seq| seq != frame.seq)
                    && !sabotage::is_on(Sabotage::SkipSeq) =>
            {
                let reason = "the frame is out of sequence";
                return Ok((frames, Tail::Damaged { offset: at, reason }));
            }
            Ok(frame) => {
                at = frame.end();
                frames.push(frame);
            }
            // Reserved room that no save has used yet.
            Err(FrameFault::Damaged { .. }) if is_zero(&file[at..]) => break,
            Err(FrameFault::Damaged { offset, reason }) => {
                let tail = if valid_later(file, at, salt, expected.unwrap_or(0)) {
                    Tail::Damaged { offset, reason }
                } else {
                    Tail::Torn { offset: at }
                };
                return Ok((frames, tail));
            }
            Err(newer) => return Err(newer),
        }
    }
    Ok((frames, Tail::Clean))
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| *chunk == ZEROS[..chunk.len()])
}

/// Returns where the zeros at the end of a file begin, but at least `from`.
pub(crate) fn without_zeros(file: &[u8], from: usize) -> usize {
    let last = file[from..].iter().rposition(|&byte| byte != 0);
    from + last.map_or(0, |last| last + 1)
}

/// Returns whether there is a valid frame with at least the number `seq` at any place from `from` on. A frame with a smaller number is a copy inside
/// the data of a caller.
///
/// The number of bytes that this reads is limited: a file that is made to be expensive counts as damaged.
fn valid_later(file: &[u8], from: usize, salt: u64, seq: u64) -> bool {
    // The reserved room after the last written byte contains no frame.
    let last = without_zeros(file, from);
    let mut budget = 4 * file.len() + MAX_STORED as usize;
    let mut at = from;
    while let Some(found) = file.get(at..last).and_then(|rest| {
        rest.windows(FRAME_MAGIC.len())
            .position(|window| window == FRAME_MAGIC)
    }) {
        at += found;
        // A frame whose stated length exceeds the file is not read, so hostile data with many such lengths costs little.
        let read = Some(len(&file[at..])).filter(|len| at + len <= file.len());
        let Some(left) = budget.checked_sub(read.unwrap_or(HEADER)) else {
            return true;
        };
        budget = left;
        if decode(file, at, salt).is_ok_and(|frame| frame.seq >= seq) {
            return true;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
