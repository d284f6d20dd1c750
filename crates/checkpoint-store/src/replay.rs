//! From the frames of one file to a state. Pure.

use crate::codec;
use crate::frame::{self, DELTA, Fault, Frame, SEAL, TRUNCATE, damaged};

/// Most bytes that the events of one state may take, so that hostile files cannot
/// fill the memory and the writer makes no state that could not be loaded.
pub(crate) const MAX_STATE: u64 = 4 << 30;

/// A head and the events up to it, as CBOR.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) head: Option<Vec<u8>>,
    /// Each element is a row of arrays of events, never empty.
    pub(crate) events: Vec<Vec<u8>>,
}

impl State {
    pub(crate) fn event_bytes(&self) -> u64 {
        self.events.iter().map(|events| events.len() as u64).sum()
    }
}

/// A save that can be returned to.
#[derive(Debug)]
struct Mark {
    seq: u64,
    /// None for an undo: its state is that of the mark below it.
    delta: Option<(Vec<u8>, usize)>,
}

/// The saves of one file that were not undone.
#[derive(Debug)]
pub(crate) struct Replay {
    base: u64,
    pub(crate) seq: u64,
    marks: Vec<Mark>,
    bytes: u64,
}

impl Replay {
    /// Begins after the save `base`, which can be returned to as well.
    pub(crate) fn new(base: u64) -> Self {
        Self {
            base,
            seq: base,
            marks: Vec::new(),
            bytes: 0,
        }
    }

    /// Applies one frame with its payload as stored.
    pub(crate) fn step(&mut self, frame: &Frame, stored: &[u8]) -> Result<(), Fault> {
        match frame.kind {
            DELTA => {
                self.bytes += u64::from(frame.raw_len);
                if self.bytes > MAX_STATE {
                    return Err(damaged(frame.offset, "the state is larger than allowed"));
                }
                let raw = unpack(frame, stored)?;
                self.marks.push(Mark {
                    seq: frame.seq,
                    delta: Some((raw, frame.head_len as usize)),
                });
            }
            TRUNCATE => {
                let to: u64 = codec::decode(&unpack(frame, stored)?)
                    .map_err(|_| damaged(frame.offset, "the undo cannot be read"))?;
                while self.marks.last().is_some_and(|mark| mark.seq > to) {
                    self.marks.pop();
                }
                if self.marks.last().map_or(self.base, |mark| mark.seq) != to {
                    return Err(damaged(frame.offset, "the undo names an unknown save"));
                }
                self.marks.push(Mark {
                    seq: frame.seq,
                    delta: None,
                });
            }
            frame::META | SEAL => {
                return Err(damaged(frame.offset, "the frame stands in the wrong place"));
            }
            // A newer kind that says it may be skipped.
            _ => {}
        }
        self.seq = frame.seq;
        Ok(())
    }

    /// Returns the saves that can be returned to, oldest first, without the base.
    pub(crate) fn seqs(&self) -> Vec<u64> {
        self.marks.iter().map(|mark| mark.seq).collect()
    }

    /// Returns the state reached on top of `state`.
    pub(crate) fn onto(self, mut state: State) -> State {
        for (mut head, head_len) in self.marks.into_iter().filter_map(|mark| mark.delta) {
            let events = head.split_off(head_len);
            if !events.is_empty() {
                state.events.push(events);
            }
            if !head.is_empty() {
                state.head = Some(head);
            }
        }
        state
    }
}

fn unpack(frame: &Frame, stored: &[u8]) -> Result<Vec<u8>, Fault> {
    codec::unpack(frame.flags, stored, frame.raw_len, frame.offset)
}
