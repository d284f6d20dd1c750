//! Journals without the heads that nobody needs any more. Pure.
//!
//! Each save writes its head whole, so that in a store with large heads and few events most
//! of a journal is old heads. A compacted one keeps all events and the heads of the newest
//! saves. The numbers stay: a save without its head leaves an *events* frame, and one that
//! was undone leaves an empty one.

use crate::codec::Effort;
use crate::frame::{DELTA, EVENTS};
use crate::journal::Kept;
use crate::replay::Replay;

/// How many of the newest saves can still be returned to.
const RECENT: usize = 16;

/// How many stored bytes the head of a frame takes, about.
fn head_share(kept: &Kept) -> u64 {
    let frame = &kept.frame;
    match (frame.kind, frame.raw_len) {
        (DELTA, raw @ 1..) => {
            u64::from(frame.stored_len) * u64::from(frame.head_len) / u64::from(raw)
        }
        _ => 0,
    }
}

/// Old heads and other bytes of the frames of a journal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weight {
    heads: u64,
    rest: u64,
}

impl Weight {
    pub(crate) fn of(frames: &[Kept]) -> Self {
        let mut weight = Self::default();
        frames.iter().for_each(|kept| weight.add(kept));
        weight
    }

    /// The weight of frames whose heads are all needed.
    pub(crate) fn of_compacted(frames: &[Kept]) -> Self {
        let all = Self::of(frames);
        Self {
            heads: 0,
            rest: all.heads + all.rest,
        }
    }

    pub(crate) fn add(&mut self, kept: &Kept) {
        let head = head_share(kept);
        self.heads += head;
        self.rest += u64::from(kept.frame.stored_len).saturating_sub(head);
    }

    /// Tells whether old heads take more than all else, and than `least`, below which a new
    /// file is not worth its syncs.
    pub(crate) fn is_due(&self, least: u64) -> bool {
        self.heads > least.max(self.rest)
    }
}

/// Returns the frames of a journal without the heads before the newest saves, and the first
/// save that still has one; none if `seqs`, the saves that can be returned to, are too few.
pub(crate) fn compacted(frames: &[Kept], seqs: &[u64], base: u64) -> Option<(u64, Vec<Kept>)> {
    let first = *seqs.get(seqs.len().checked_sub(RECENT)?)?;
    let split = frames.partition_point(|kept| kept.frame.seq <= first);
    let mut replay = Replay::new(base);
    for kept in &frames[..split] {
        replay.step(&kept.frame, kept.unpack().ok()?).ok()?;
    }
    let head = replay.head().unwrap_or_default();
    let pack = |kept: &Kept| {
        let seq = kept.frame.seq;
        let events = replay.events_of(seq).unwrap_or_default();
        match seq == first {
            true => Kept::pack(
                DELTA,
                seq,
                head.len(),
                [head, events].concat(),
                Effort::Save,
            ),
            false => Kept::pack(EVENTS, seq, 0, events.to_vec(), Effort::Save),
        }
    };
    let old = frames[..split].iter().map(|kept| pack(kept).ok());
    let new = frames[split..].iter().map(|kept| Some(kept.clone()));
    let all: Option<Vec<Kept>> = old.chain(new).collect();
    Some((first, all?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::TRUNCATE;

    fn save(seq: u64, events: &[u64]) -> Kept {
        let mut raw = Vec::new();
        crate::codec::encode(&mut raw, &seq).unwrap();
        let head_len = raw.len();
        if !events.is_empty() {
            crate::codec::encode(&mut raw, events).unwrap();
        }
        Kept::pack(DELTA, seq, head_len, raw, Effort::Save).unwrap()
    }

    fn undo(seq: u64, to: u64) -> Kept {
        let mut raw = Vec::new();
        crate::codec::encode(&mut raw, &to).unwrap();
        Kept::pack(TRUNCATE, seq, 0, raw, Effort::Save).unwrap()
    }

    fn replay(frames: &[Kept]) -> Replay {
        let mut replay = Replay::new(0);
        for kept in frames {
            replay.step(&kept.frame, kept.unpack().unwrap()).unwrap();
        }
        replay
    }

    proptest::proptest! {
        /// Whatever was saved and undone: the same state, and the newest saves as before.
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
            match compacted(&frames, &seqs, 0) {
                None => proptest::prop_assert!(seqs.len() < RECENT),
                Some((first, after)) => {
                    let after_replay = replay(&after);
                    let kept = &seqs[seqs.len() - RECENT..];
                    proptest::prop_assert_eq!(after_replay.seqs(), kept);
                    proptest::prop_assert_eq!(first, kept[0]);
                    for seq in kept {
                        let until = |frames: &[Kept]| {
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
