//! The data of one attempt that is not in the timeline: its transcript, shortened while it is read, and what git reports about its commit.

use std::collections::VecDeque;

use loop_state::{Timestamp, first_bytes, last_bytes};
use rlm_store::Record;
use rlm_text::bytes::show as size;
use rlm_text::escape::without_colours;

/// The maximum number of bytes of one piece of a transcript, and of a prompt.
const MAX_PIECE: usize = 8 << 10;
const MAX_PROMPT: usize = 16 << 10;
/// The maximum number of bytes of the changes of one iteration.
const MAX_CHANGES: usize = 24 << 10;

/// The part of an attempt's transcript that the page shows.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) prompt: Option<Piece>,
    /// The changed files of the iteration, and the patch.
    pub(crate) changes: Option<String>,
    pub(crate) head: Vec<Piece>,
    pub(crate) tail: VecDeque<Piece>,
    /// The maximum number of bytes on the page, and the number of bytes used at the beginning and at the end.
    byte_budget: usize,
    in_head: usize,
    in_tail: usize,
    /// The number of omitted entries between head and tail, and the number of omitted bytes in total.
    pub(crate) left_out: u64,
    pub(crate) bytes_left_out: u64,
    /// The streamed text that no complete message has repeated yet.
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

    /// Returns the approximate number of bytes on the page.
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
    /// Creates a transcript that may use this many bytes of the page.
    pub(crate) fn with_room(room: usize) -> Self {
        Self {
            byte_budget: room,
            ..Self::default()
        }
    }

    /// Returns the time of the last record.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        self.last_at
    }

    /// Adds the next record, and drops the text that the page won't show, so the memory use is bounded.
    pub(crate) fn take(&mut self, record: &Record) {
        self.last_at = self.last_at.max(Some(record.at));
        match record.kind.as_str() {
            // A raw line of the protocol. Its decoded record is shown instead.
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
            // The end of this text is the rest of a patch, which is shown only with the hunks before it.
            "changes" => {
                let shown = first_bytes(&record.text, MAX_CHANGES.min(self.byte_budget / 2));
                let left_out = record.text.len() - shown.len();
                let mut text = shown.to_owned();
                if left_out > 0 {
                    text.push_str(&format!("\n… {} left out …", size(left_out as u64)));
                }
                self.changes = Some(text);
                return;
            }
            _ => {}
        }
        self.bytes_left_out += record.omitted;
        self.push(&record.kind, &record.text);
    }

    /// Adds streamed text that no complete message followed.
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
        if self.tail.is_empty() && self.in_head + weight <= self.byte_budget / 3 {
            self.in_head += weight;
            self.head.push(piece);
            return;
        }
        self.in_tail += weight;
        self.tail.push_back(piece);
        while self.in_tail > self.byte_budget - self.byte_budget / 3 && self.tail.len() > 1 {
            if let Some(gone) = self.tail.pop_front() {
                self.in_tail -= gone.weight();
                self.left_out += 1;
                self.bytes_left_out += gone.text.len() as u64;
            }
        }
    }
}

/// Omits the middle of a text that is longer than `most` bytes; returns the number of omitted bytes too. Also removes the colours of the text, since a
/// page has none, and half a colour sequence would be visible.
#[must_use]
pub fn middle_out(text: &str, most: usize) -> (String, u64) {
    let text = &*without_colours(text);
    if text.len() <= most {
        return (text.to_owned(), 0);
    }
    let (head, tail) = (first_bytes(text, most / 2), last_bytes(text, most / 2));
    let left_out = (text.len() - head.len() - tail.len()) as u64;
    let note = format!("\n… {} left out …\n", size(left_out));
    (format!("{head}{note}{tail}"), left_out)
}

/// The change that git reports for the commit of an attempt.
#[derive(Debug)]
pub(crate) enum CommitChange {
    /// The changed files, with the number of changed lines.
    Changed(String),
    /// The attempt has the same commit as the attempt before it.
    Same,
    /// Git can't find the commit here, or did not answer.
    Unknown,
}

/// The details of one attempt.
#[derive(Debug)]
pub(crate) struct AttemptDetail {
    /// The transcript, or why there is none.
    pub(crate) transcript: Result<Transcript, String>,
    /// The change of the commit, if the attempt has one.
    pub(crate) stat: Option<CommitChange>,
}
