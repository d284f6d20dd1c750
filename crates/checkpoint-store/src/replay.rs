//! From the frames of one file to a state. Pure.

use crate::codec;
use crate::frame::{self, DELTA, EVENTS, Fault, Frame, SEAL, TRUNCATE, damaged};

/// Most bytes that the events of one state may take, so that hostile files cannot
/// fill the memory and the writer makes no state that could not be loaded.
pub(crate) const MAX_STATE: u64 = 4 << 30;

/// A head and the events up to it, as CBOR.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) head: Option<Vec<u8>>,
    /// Each element is a row of arrays of events, never empty.
    pub(crate) events: Vec<Events>,
}

/// A row of arrays of events, which may stand behind a head that is of no interest.
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
    /// Returns this state with what came after it.
    pub(crate) fn then(mut self, mut after: Self) -> Self {
        self.events.append(&mut after.events);
        self.head = after.head.or(self.head);
        self
    }

    pub(crate) fn event_bytes(&self) -> u64 {
        let rows = self.events.iter();
        rows.map(|events| events.bytes().len() as u64).sum()
    }
}

/// A save that can be returned to.
#[derive(Debug)]
struct Mark {
    seq: u64,
    /// False for events whose head was dropped.
    has_head: bool,
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

    /// Applies one frame with its payload.
    pub(crate) fn step(&mut self, frame: &Frame, raw: Vec<u8>) -> Result<(), Fault> {
        match frame.kind {
            DELTA | EVENTS => {
                self.bytes += u64::from(frame.raw_len);
                if self.bytes > MAX_STATE {
                    return Err(damaged(frame.offset, "the state is larger than allowed"));
                }
                let has_head = frame.kind == DELTA;
                let head_len = if has_head { frame.head_len as usize } else { 0 };
                self.marks.push(Mark {
                    seq: frame.seq,
                    has_head,
                    delta: Some((raw, head_len)),
                });
            }
            TRUNCATE => {
                let to: u64 = codec::decode(&raw)
                    .map_err(|_| damaged(frame.offset, "the undo cannot be read"))?;
                while self.marks.last().is_some_and(|mark| mark.seq > to) {
                    self.marks.pop();
                }
                let reached = self
                    .marks
                    .last()
                    .map_or((self.base, true), |mark| (mark.seq, mark.has_head));
                if reached != (to, true) {
                    return Err(damaged(frame.offset, "the undo names an unknown save"));
                }
                self.marks.push(Mark {
                    seq: frame.seq,
                    has_head: true,
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
        let marks = self.marks.iter().filter(|mark| mark.has_head);
        marks.map(|mark| mark.seq).collect()
    }

    /// Returns the saves that can be returned to with their heads, oldest first. An undo has
    /// the head of what it went back to; of one to the base that is not known here.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut last: &[u8] = &[];
        let heads = self.marks.iter().filter(|mark| mark.has_head);
        let heads = heads.map(move |mark| {
            if let Some((raw, head_len)) = &mark.delta {
                last = &raw[..*head_len];
            }
            (mark.seq, last)
        });
        heads.filter(|(_, head)| !head.is_empty())
    }

    /// Returns the state reached, apart from what it stands on.
    pub(crate) fn state(self) -> State {
        let mut state = State::default();
        let last = self.marks.iter().rposition(|mark| {
            let head_len = mark.delta.as_ref().map_or(0, |(_, head_len)| *head_len);
            head_len > 0
        });
        for (index, mark) in self.marks.into_iter().enumerate() {
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
