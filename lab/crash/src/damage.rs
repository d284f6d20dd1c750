//! The damage that media and people do to the bytes of a file.

use crate::rng::Rng;

const MAGIC: &[u8] = b"CKF1";
/// Length of the header of a file and of a frame.
const HEADER: usize = 32;

/// One kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// One bit is flipped.
    Flip,
    /// The end is missing.
    Cut,
    /// A frame is there twice.
    Repeat,
    /// A frame is missing.
    Gap,
    /// Two frames are swapped.
    Swap,
    /// Bytes follow the end.
    Trail,
    /// A sector is zero.
    Zero,
    /// The last frame is followed by a frame of another file.
    Foreign,
}

impl Damage {
    /// All kinds of damage.
    pub const ALL: [Self; 8] = [
        Self::Flip,
        Self::Cut,
        Self::Repeat,
        Self::Gap,
        Self::Swap,
        Self::Trail,
        Self::Zero,
        Self::Foreign,
    ];

    /// Returns the damaged bytes; `None` if this damage does not fit the file.
    pub fn of(self, bytes: &[u8], other: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
        let frames = frames(bytes);
        let mut damaged = bytes.to_vec();
        let last = frames.last().map_or(bytes.len(), |last| last.end);
        match self {
            _ if bytes.is_empty() => return None,
            Self::Flip => damaged[rng.below(last)] ^= 1 << rng.below(8),
            Self::Cut => damaged.truncate(rng.below(last)),
            Self::Trail => {
                let byte = [0, b'C', 0xff][rng.below(3)];
                damaged.resize(damaged.len() + 1 + rng.below(64), byte);
            }
            Self::Zero => {
                let at = rng.below(last) / 64 * 64;
                let end = (at + 64).min(damaged.len());
                damaged[at..end].fill(0);
            }
            Self::Repeat => {
                let frame = frames.get(rng.below(frames.len().max(1)))?.clone();
                damaged.splice(frame.end..frame.end, bytes[frame].iter().copied());
            }
            Self::Gap => {
                let frame = frames.get(rng.below(frames.len().max(1)))?.clone();
                damaged.drain(frame);
            }
            Self::Swap => {
                let first = rng.below(frames.len().max(1));
                let (one, two) = (frames.get(first)?.clone(), frames.get(first + 1)?.clone());
                let swapped = [&bytes[two.clone()], &bytes[one.clone()]].concat();
                damaged.splice(one.start..two.end, swapped);
            }
            Self::Foreign => {
                let after = seq(bytes, frames.last()?)? + 1;
                let mut theirs = self::frames(other).into_iter();
                let frame = theirs.rfind(|frame| seq(other, frame) == Some(after))?;
                damaged.splice(last..last, other[frame].iter().copied());
            }
        }
        (damaged != bytes).then_some(damaged)
    }
}

fn seq(bytes: &[u8], frame: &std::ops::Range<usize>) -> Option<u64> {
    let seq = bytes.get(frame.start + 16..frame.start + 24)?;
    Some(u64::from_le_bytes(seq.try_into().ok()?))
}

/// Returns the ranges of the frames of a valid file.
fn frames(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut frames, mut at) = (Vec::new(), HEADER);
    while let Some(header) = bytes
        .get(at..at + HEADER)
        .filter(|header| header.starts_with(MAGIC))
    {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let end = at + HEADER + len;
        if end > bytes.len() {
            break;
        }
        frames.push(at..end);
        at = end;
    }
    frames
}
