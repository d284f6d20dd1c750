//! Builds a state from the frames of one file. Large files are unpacked on several threads; the rest does no I/O and has no threads.

use std::num::NonZero;
use std::thread::ScopedJoinHandle;

use crate::codec::{self, Unpacker};
use crate::frame::{self, DELTA, END, EVENTS, Frame, FrameFault, TRUNCATE, damaged};

/// Largest number of bytes of the events of one state. It protects the memory from hostile files, and the writer makes no state that could not be
/// loaded.
pub(crate) const MAX_STATE: u64 = 4 << 30;

/// A head and the events up to it, as CBOR.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) head: Option<Vec<u8>>,
    /// Each element is a sequence of arrays of events, never empty.
    pub(crate) events: Vec<Events>,
    /// The number of bytes of the events that are not in `events`, because only the head was needed.
    pub(crate) unread: u64,
}

/// A sequence of arrays of events, which may follow a head that is not needed.
#[derive(Debug)]
pub(crate) struct Events {
    raw: Vec<u8>,
    from: usize,
}

impl Events {
    pub(crate) fn new(raw: Vec<u8>) -> Self {
        Self { raw, from: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.raw[self.from..]
    }
}

impl State {
    /// Returns this state, continued by `after`.
    pub(crate) fn then(mut self, mut after: Self) -> Self {
        self.events.append(&mut after.events);
        self.unread += after.unread;
        self.head = after.head.or(self.head);
        self
    }

    pub(crate) fn event_bytes(&self) -> u64 {
        let rows = self.events.iter();
        self.unread + rows.map(|events| events.bytes().len() as u64).sum::<u64>()
    }
}

/// A save, and what it adds.
#[derive(Debug)]
struct ReplayedSave {
    seq: u64,
    /// False for events whose head was dropped.
    has_head: bool,
    /// `None` for an undo, whose state is that of the save before it in the list.
    delta: Option<(Vec<u8>, usize)>,
    /// The number of bytes of its events, if they were not unpacked.
    unread: u64,
}

/// The saves of one file that were not undone.
#[derive(Debug)]
pub(crate) struct Replay {
    base: u64,
    pub(crate) seq: u64,
    saves: Vec<ReplayedSave>,
    bytes: u64,
}

/// The payloads that a replay needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Needed {
    #[default]
    Everything,
    /// Only the head of the newest save. The events are checked by their checksums, but neither unpacked nor decoded.
    NewestHead,
}

impl Replay {
    /// Begins after the save `base`, to which an undo can return too.
    pub(crate) fn new(base: u64) -> Self {
        Self {
            base,
            seq: base,
            saves: Vec::new(),
            bytes: 0,
        }
    }

    /// Applies one frame with its payload.
    pub(crate) fn step(&mut self, frame: &Frame, raw: Vec<u8>) -> Result<(), FrameFault> {
        match frame.kind {
            DELTA | EVENTS => {
                self.bytes += u64::from(frame.raw_len);
                if self.bytes > MAX_STATE {
                    return Err(damaged(frame.offset, "the state is larger than allowed"));
                }
                let has_head = frame.kind == DELTA;
                let head_len = if has_head { frame.head_len as usize } else { 0 };
                let unread = match raw.is_empty() {
                    true => u64::from(frame.raw_len) - head_len as u64,
                    false => 0,
                };
                self.saves.push(ReplayedSave {
                    seq: frame.seq,
                    has_head,
                    delta: Some((raw, head_len)),
                    unread,
                });
            }
            TRUNCATE => {
                let to: u64 = codec::decode(&raw)
                    .map_err(|_| damaged(frame.offset, "the undo cannot be read"))?;
                while self.saves.last().is_some_and(|mark| mark.seq > to) {
                    self.saves.pop();
                }
                let reached = self
                    .saves
                    .last()
                    .map_or((self.base, true), |mark| (mark.seq, mark.has_head));
                if reached != (to, true) {
                    return Err(damaged(frame.offset, "the undo names an unknown save"));
                }
                self.saves.push(ReplayedSave {
                    seq: frame.seq,
                    has_head: true,
                    delta: None,
                    unread: 0,
                });
            }
            frame::META | END | frame::LINK => {
                return Err(damaged(frame.offset, "the frame is in the wrong place"));
            }
            // A newer kind whose flags permit readers to skip it.
            _ => {}
        }
        self.seq = frame.seq;
        Ok(())
    }

    /// Unpacks the head of the newest save, of the replayed frames of these files. For [`Needed::NewestHead`], after all steps.
    pub(crate) fn fetch_head<'a>(
        &mut self,
        files: impl IntoIterator<Item = (&'a [u8], &'a [Frame])>,
    ) -> Result<(), FrameFault> {
        let newest = self.saves.iter_mut().rev().find_map(|save| {
            let (raw, head_len) = save.delta.as_mut()?;
            (*head_len > 0).then_some((save.seq, raw))
        });
        let Some((seq, raw)) = newest else {
            return Ok(());
        };
        let found = files.into_iter().find_map(|(file, frames)| {
            let frame = frames.iter().rfind(|frame| frame.seq == seq)?;
            Some((file, frame))
        });
        let (file, frame) = found.ok_or(damaged(0, "the newest head is missing"))?;
        *raw = Unpacker::default().unpack_frame(file, frame)?;
        raw.truncate(frame.head_len as usize);
        Ok(())
    }

    /// Returns the saves to which a caller can return, oldest first, without the base.
    pub(crate) fn seqs(&self) -> Vec<u64> {
        let marks = self.saves.iter().filter(|mark| mark.has_head);
        marks.map(|mark| mark.seq).collect()
    }

    /// Returns the saves to which a caller can return, with their heads, oldest first. An undo has the head of the save to which it returned. An undo
    /// to the base is left out, because the head of the base is not in this file.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut last: &[u8] = &[];
        let heads = self.saves.iter().filter(|mark| mark.has_head);
        let heads = heads.map(move |mark| {
            if let Some((raw, head_len)) = &mark.delta {
                last = &raw[..*head_len];
            }
            (mark.seq, last)
        });
        heads.filter(|(_, head)| !head.is_empty())
    }

    /// Returns the state that was reached, without that of the base.
    pub(crate) fn state(self) -> State {
        let mut state = State::default();
        let last = self.saves.iter().rposition(|mark| {
            let head_len = mark.delta.as_ref().map_or(0, |(_, head_len)| *head_len);
            head_len > 0
        });
        for (index, mark) in self.saves.into_iter().enumerate() {
            state.unread += mark.unread;
            let Some((mut raw, head_len)) = mark.delta else {
                continue;
            };
            if Some(index) == last {
                state.head = Some(raw[..head_len].to_vec());
            }
            if head_len < raw.len() {
                let from = if head_len > raw.len() / 2 {
                    // The head would take more memory than the events.
                    raw = raw.split_off(head_len);
                    0
                } else {
                    head_len
                };
                state.events.push(Events { raw, from });
            }
        }
        state
    }
}

/// Number of bytes for which a thread is worth its cost.
const SHARE: usize = 512 << 10;
const MOST_THREADS: usize = 4;

/// Passes parts of `items` to `work`, on several threads if they have many bytes, and returns the results in the order of the parts.
pub(crate) fn in_parts<T: Sync, R: Send>(
    items: &[T],
    bytes: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    // `available_parallelism` reads files of the system, so it is called only if needed.
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = match bytes / SHARE {
        0 | 1 => 1,
        shares => shares.min(MOST_THREADS).min(cores()),
    };
    if threads < 2 {
        return vec![work(items)];
    }
    std::thread::scope(|scope| {
        let work = &work;
        let parts = items.chunks(items.len().div_ceil(threads));
        let start = |part| {
            let thread = std::thread::Builder::new();
            // If the system has no room for a thread, this one does the work.
            let started = thread.spawn_scoped(scope, move || work(part));
            started.map_err(|_| work(part))
        };
        let workers: Vec<_> = parts.map(start).collect();
        let result =
            |worker: Result<ScopedJoinHandle<'_, R>, R>| match worker.map(ScopedJoinHandle::join) {
                Ok(Ok(done)) | Err(done) => done,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
            };
        workers.into_iter().map(result).collect()
    })
}

/// Returns one payload for each of `frames`, in their order. A payload that is not needed is empty. If the frames together take more than a state may,
/// the first frame above the limit is a fault and ends the list.
pub(crate) fn unpacked(
    file: &[u8],
    frames: &[Frame],
    needed: Needed,
) -> Vec<Result<Vec<u8>, FrameFault>> {
    let mut total = 0;
    let within = frames.iter().position(|frame| {
        total += u64::from(frame.raw_len);
        total > MAX_STATE
    });
    let fits = &frames[..within.unwrap_or(frames.len())];
    let stored: usize = fits.iter().map(|frame| frame.stored_len as usize).sum();
    let mut raws: Vec<_> = match needed {
        Needed::Everything => {
            let raws = in_parts(fits, stored, |part| {
                unpack_in_order(file, part).collect::<Vec<_>>()
            });
            raws.into_iter().flatten().collect()
        }
        Needed::NewestHead => {
            let mut unpacker = Unpacker::default();
            let mut undo = |frame: &Frame| match frame.kind {
                TRUNCATE => unpacker.unpack_frame(file, frame),
                _ => Ok(Vec::new()),
            };
            fits.iter().map(&mut undo).collect()
        }
    };
    if let Some(frame) = within.map(|at| &frames[at]) {
        let reason = "the state is larger than allowed";
        raws.push(Err(damaged(frame.offset, reason)));
    }
    raws
}

fn unpack_in_order<'a>(
    file: &'a [u8],
    frames: &'a [Frame],
) -> impl Iterator<Item = Result<Vec<u8>, FrameFault>> {
    let mut unpacker = Unpacker::default();
    frames
        .iter()
        .map(move |frame| unpacker.unpack_frame(file, frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CompressionEffort;
    use crate::frame::DELTA;
    use crate::saves::PackedFrame;

    #[test]
    fn threads_change_nothing() {
        let mut file = Vec::new();
        let mut frames = Vec::new();
        for n in 0..40_u8 {
            // Bytes that compress badly, so that there is work for several threads.
            let raw: Vec<u8> = (0..60_000_u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n)
                .collect();
            let mut kept =
                PackedFrame::pack(DELTA, u64::from(n), 0, raw, CompressionEffort::Save).unwrap();
            kept.frame.offset = file.len();
            kept.frame.encode(&mut file, 7, &kept.stored);
            frames.push(kept.frame);
        }
        let together = unpacked(&file, &frames, Needed::Everything);
        let alone: Vec<_> = unpack_in_order(&file, &frames).collect();
        assert_eq!(together, alone);
        assert!(alone.iter().all(Result::is_ok));
        frames[20].raw_len += 1;
        assert!(unpacked(&file, &frames, Needed::Everything)[20].is_err());
        frames.iter_mut().for_each(|frame| frame.raw_len = 1 << 28);
        let bomb = unpacked(&file, &frames, Needed::Everything);
        assert_eq!(
            bomb.len(),
            17,
            "16 frames of 256 MiB take 4 GiB, and the next one is the fault"
        );
    }
}
