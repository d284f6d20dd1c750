//! What a page holds of one attempt beside the timeline: its transcript, shortened as it is read, and what git says of its commit.

use std::collections::VecDeque;

use loop_state::{Timestamp, first_bytes, last_bytes};
use rlm_store::Record;

use crate::words::bytes;

/// The most bytes of one piece of a transcript, and of a prompt.
const MAX_PIECE: usize = 8 << 10;
const MAX_PROMPT: usize = 16 << 10;

/// What is shown of an attempt's transcript.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) prompt: Option<Piece>,
    pub(crate) head: Vec<Piece>,
    pub(crate) tail: VecDeque<Piece>,
    /// How many bytes the page gives to it, and how many are taken at its beginning and its end.
    room: usize,
    in_head: usize,
    in_tail: usize,
    /// How many entries are left out between head and tail, and how many bytes of all.
    pub(crate) left_out: u64,
    pub(crate) bytes_left_out: u64,
    /// Text as it was streamed, until a message says it again.
    streamed: String,
    last_at: Option<Timestamp>,
}

/// A piece of a transcript.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl Piece {
    fn new(kind: &str, text: &str, most: usize) -> (Self, u64) {
        let (text, left_out) = middle_out(text, most);
        let kind = kind.to_owned();
        (Self { kind, text }, left_out)
    }

    /// How much of the page it takes, about.
    fn weight(&self) -> usize {
        let escaped = |byte: u8| match byte {
            b'&' | b'<' | b'>' | b'"' => 5,
            b'\n' | b'\t' => 1,
            0..b' ' | 0x7f => 3,
            _ => 1,
        };
        self.text.bytes().map(escaped).sum::<usize>() + 60
    }
}

impl Transcript {
    /// Makes one that may take so many bytes of the page.
    pub(crate) fn with_room(room: usize) -> Self {
        Self {
            room,
            ..Self::default()
        }
    }

    /// Returns when its last record was made.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        self.last_at
    }

    /// Takes the next record. Holds no more than what is shown.
    pub(crate) fn take(&mut self, record: &Record) {
        self.last_at = self.last_at.max(Some(record.at));
        match record.kind.as_str() {
            // The line behind what is shown.
            "raw" => return,
            "text" => {
                if self.streamed.len() < MAX_PIECE {
                    self.streamed.push_str(&record.text);
                }
                return;
            }
            "message" => self.streamed.clear(),
            "prompt" if self.prompt.is_none() => {
                let (prompt, left_out) = Piece::new("prompt", &record.text, MAX_PROMPT);
                self.prompt = Some(prompt);
                self.bytes_left_out += left_out;
                return;
            }
            _ => {}
        }
        self.bytes_left_out += record.omitted;
        self.push(&record.kind, &record.text);
    }

    /// Takes what was streamed and cut off.
    pub(crate) fn finish(&mut self) {
        let streamed = std::mem::take(&mut self.streamed);
        if !streamed.is_empty() {
            self.push("cut off", &streamed);
        }
    }

    fn push(&mut self, kind: &str, text: &str) {
        let (piece, left_out) = Piece::new(kind, text, MAX_PIECE);
        self.bytes_left_out += left_out;
        let weight = piece.weight();
        if self.tail.is_empty() && self.in_head + weight <= self.room / 3 {
            self.in_head += weight;
            self.head.push(piece);
            return;
        }
        self.in_tail += weight;
        self.tail.push_back(piece);
        while self.in_tail > self.room - self.room / 3 && self.tail.len() > 1 {
            if let Some(gone) = self.tail.pop_front() {
                self.in_tail -= gone.weight();
                self.left_out += 1;
                self.bytes_left_out += gone.text.len() as u64;
            }
        }
    }
}

/// Leaves out the middle of a text that is longer than so many bytes; returns how many were left out.
pub(crate) fn middle_out(text: &str, most: usize) -> (String, u64) {
    if text.len() <= most {
        return (text.to_owned(), 0);
    }
    let (head, tail) = (first_bytes(text, most / 2), last_bytes(text, most / 2));
    let left_out = (text.len() - head.len() - tail.len()) as u64;
    let note = format!("\n… {} left out …\n", bytes(left_out));
    (format!("{head}{note}{tail}"), left_out)
}

/// What git says of a commit.
#[derive(Debug)]
pub(crate) enum Stat {
    /// The files that it changed, and by how many lines.
    Changed(String),
    /// It is the one that was there before.
    Same,
    /// Git does not have it here, or did not answer.
    Unknown,
}

/// What a page shows of one attempt.
#[derive(Debug)]
pub(crate) struct Detail {
    /// Its transcript, or why there is none.
    pub(crate) transcript: Result<Transcript, String>,
    /// Of its commit, if it has one.
    pub(crate) stat: Option<Stat>,
}
