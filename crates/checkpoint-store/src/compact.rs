//! Compacts journals: removes the heads of old saves, so that nothing can return to those saves. This module does no I/O.
//!
//! Each save writes its whole head. So in a store with large heads and few events, most of a journal is old heads. A compacted journal has all
//! events, but only the heads of the newest saves. The numbers stay: a save without its head becomes an *events* frame, and an undone save becomes an
//! empty *events* frame.

use std::path::Path;

use crate::codec::CompressionEffort;
use crate::error::{Error, Result};
use crate::frame::{DELTA, EVENTS, Frame, TRUNCATE};
use crate::id::Seqs;
use crate::saves::PackedFrame;

/// The number of newest saves to which a caller can still return after a compaction.
pub(crate) const KEPT_HEADS: u64 = 16;

/// Returns about how many stored bytes the head of a frame takes.
fn head_share(frame: &Frame) -> u64 {
    match (frame.kind, frame.raw_len) {
        (DELTA, raw @ 1..) => {
            u64::from(frame.stored_len) * u64::from(frame.head_len) / u64::from(raw)
        }
        _ => 0,
    }
}

/// The bytes of the old heads, and the other bytes, in the frames of a journal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JournalWeight {
    heads: u64,
    rest: u64,
}

impl JournalWeight {
    /// Returns this weight, with all current heads counted as needed.
    pub(crate) fn compacted(self) -> Self {
        Self {
            heads: 0,
            rest: self.heads + self.rest,
        }
    }

    pub(crate) fn add(&mut self, kept: &PackedFrame) {
        self.add_frame(&kept.frame);
    }

    pub(crate) fn add_frame(&mut self, frame: &Frame) {
        let head = head_share(frame);
        self.heads += head;
        self.rest += u64::from(frame.stored_len).saturating_sub(head);
    }

    /// Returns whether old heads take more bytes than everything else, and more than `least`. Below `least`, a new file is not worth its syncs.
    pub(crate) fn is_due(&self, least: u64) -> bool {
        self.heads > least.max(self.rest)
    }
}

/// A compaction of a journal, after which the save `first` is the oldest save that still has its head.
#[derive(Debug)]
pub(crate) struct Compaction {
    first: u64,
    /// The saves up to `first` whose events are part of the state at `first`.
    live_saves: Seqs,
    /// The save that wrote the head of `first`.
    head_of: u64,
    /// The head of `first`, once `next` has processed the save that wrote it.
    head: Vec<u8>,
}

impl Compaction {
    /// Reads the journal's saves, oldest first, and plans the compaction.
    pub(crate) fn plan_compaction(
        saves: impl Iterator<Item = Result<PackedFrame>>,
        first: u64,
        path: &Path,
    ) -> Result<Self> {
        let (mut alive, mut heads) = (Seqs::default(), Seqs::default());
        for kept in saves {
            let kept = kept?;
            let seq = kept.frame.seq;
            match kept.frame.kind {
                _ if seq > first => break,
                TRUNCATE => {
                    let to: u64 = kept.undo_to().map_err(|fault| Error::fault(path, fault))?;
                    alive.truncate_after(to);
                    heads.truncate_after(to);
                }
                DELTA | EVENTS => {
                    alive.push(seq);
                    if kept.frame.head_len > 0 {
                        heads.push(seq);
                    }
                }
                // A newer kind whose flags permit readers to skip it.
                _ => {}
            }
        }
        Ok(Self {
            first,
            head_of: heads.last().unwrap_or(0),
            head: Vec::new(),
            live_saves: alive,
        })
    }

    /// Returns the compacted form of the next save.
    pub(crate) fn next(&mut self, kept: PackedFrame, path: &Path) -> Result<PackedFrame> {
        let frame = kept.frame;
        let is_alive = self.live_saves.contains(frame.seq);
        if frame.seq > self.first || (frame.kind == EVENTS && is_alive) {
            return Ok(kept);
        }
        let mut events = Vec::new();
        if is_alive {
            let mut head = kept.unpack().map_err(|fault| Error::fault(path, fault))?;
            events = head.split_off(frame.head_len as usize);
            if frame.seq == self.head_of {
                self.head = head;
            }
        }
        let (kind, mut raw) = match frame.seq == self.first {
            true => (DELTA, std::mem::take(&mut self.head)),
            false => (EVENTS, Vec::new()),
        };
        let head_len = raw.len();
        raw.append(&mut events);
        PackedFrame::pack(kind, frame.seq, head_len, raw, CompressionEffort::Save)
            .map_err(|kind| Error::new(path, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Replay;

    fn save(seq: u64, events: &[u64]) -> PackedFrame {
        let mut raw = Vec::new();
        crate::codec::encode(&mut raw, &seq).unwrap();
        let head_len = raw.len();
        if !events.is_empty() {
            crate::codec::encode(&mut raw, events).unwrap();
        }
        PackedFrame::pack(DELTA, seq, head_len, raw, CompressionEffort::Save).unwrap()
    }

    fn undo(seq: u64, to: u64) -> PackedFrame {
        let mut raw = Vec::new();
        crate::codec::encode(&mut raw, &to).unwrap();
        PackedFrame::pack(TRUNCATE, seq, 0, raw, CompressionEffort::Save).unwrap()
    }

    fn replay(frames: &[PackedFrame]) -> Replay {
        let mut replay = Replay::new(0);
        for kept in frames {
            replay.step(&kept.frame, kept.unpack().unwrap()).unwrap();
        }
        replay
    }

    fn compacted(frames: &[PackedFrame], first: u64) -> Vec<PackedFrame> {
        let path = Path::new("journal");
        let saves = frames.iter().cloned().map(Ok);
        let mut compact = Compaction::plan_compaction(saves, first, path).unwrap();
        let frames = frames.iter().cloned();
        frames
            .map(|kept| compact.next(kept, path).unwrap())
            .collect()
    }

    proptest::proptest! {
        /// After any saves and undos, the compacted journal has the same state and the same newest saves.
        #[test]
        fn a_compacted_journal_holds_the_same_state(
            ops in proptest::collection::vec((0..4u8, 0..9usize), 1..80)
        ) {
            let mut frames = Vec::new();
            for (seq, (op, n)) in (1..).zip(ops) {
                let known = replay(&frames).seqs();
                frames.push(match (op, known.len()) {
                    (0, 1..) => undo(seq, known[known.len() - 1 - n % known.len()]),
                    _ => save(seq, &vec![seq; n % 3]),
                });
            }
            let before = replay(&frames);
            let seqs = before.seqs();
            match seqs.len().checked_sub(KEPT_HEADS as usize) {
                None => {}
                Some(first) => {
                    let kept = &seqs[first..];
                    let after = compacted(&compacted(&frames, kept[0]), kept[0]);
                    let after_replay = replay(&after);
                    proptest::prop_assert_eq!(after_replay.seqs(), kept);
                    for seq in kept {
                        let until = |frames: &[PackedFrame]| {
                            let end = frames.partition_point(|kept| kept.frame.seq <= *seq);
                            let state = replay(&frames[..end]).state();
                            let events = state.events.iter().flat_map(|row| row.bytes());
                            (state.head, events.copied().collect::<Vec<_>>())
                        };
                        proptest::prop_assert_eq!(until(&after), until(&frames));
                    }
                    proptest::prop_assert_eq!(after_replay.seq, before.seq);
                }
            }
        }
    }
}
