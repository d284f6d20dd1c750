//! Reads the newest head of an undamaged store in one pass, with a small part of a file in memory at a time. A whole load has all files in memory, and
//! most of its time is the memory.
//!
//! It checks each checksum that a whole load checks. It gives no result for damage, an incomplete save, an undo and a newer form: the whole load decides
//! then.

use std::io;

use crate::chain::{Link, MAX_READ};
use crate::codec::{self, Unpacker};
use crate::dir::{Dir, MAX_FILE};
use crate::disk::{FileHandle, OpenMode};
use crate::error;
use crate::frame::{
    self, DELTA, END, EVENTS, Frame, FrameFault, HEADER, LINK, META, TRUNCATE, damaged, decode,
    decode_header,
};
use crate::load::{self, Entry, Index, LoadPurpose, Loaded};
use crate::meta::FileMeta;
use crate::replay::{MAX_STATE, Needed, State};

/// The number of bytes that are read at a time. A longer frame takes more.
const WINDOW: usize = if cfg!(test) { 256 } else { 256 << 10 };

/// Loads the newest head, or returns `None` if only a whole load can.
pub(crate) fn read(dir: &Dir, purpose: LoadPurpose<'_>) -> error::Result<Option<Loaded>> {
    let mut index = Index::read(dir, purpose)?;
    index.needed = Needed::NewestHead;
    let newest = index.entries.first().filter(|_| index.skipped.is_empty());
    let Some(entry) = newest.filter(|entry| entry.meta.phase.is_none()) else {
        return Ok(None);
    };
    let Some((base, phase)) = load::base_state(dir, &index, entry)? else {
        return Ok(None);
    };
    let Some(found) = in_chain(dir, entry) else {
        return Ok(None);
    };
    let own = State {
        head: found.head,
        ..State::default()
    };
    Ok(Some(Loaded {
        state: base.then(index.migrate(dir, entry, own)?),
        seq: found.seq,
        base: entry.meta.base,
        report: load::report(entry, phase),
        ..Loaded::default()
    }))
}

/// The newest save of a chain of journals.
struct NewestSave {
    seq: u64,
    head: Option<Vec<u8>>,
}

/// Reads a journal and the journals that it continues, the newest first. `None` also if a file can't be read: the whole load returns the error.
fn in_chain(dir: &Dir, entry: &Entry) -> Option<NewestSave> {
    let meta = &entry.meta;
    let mut journal = Journal::read(dir, &entry.name, MAX_FILE)?;
    let linked_seq = journal.link.as_ref().map(|(last, _)| *last);
    let seq = journal.last.or(linked_seq).unwrap_or(meta.seq);
    // The saves up to `carried` were durable before the file got its name.
    if journal.meta != *meta || seq < meta.carried {
        return None;
    }
    let mut head = journal.head.take();
    let (mut unpacked, mut linked) = (journal.unpacked, 0);
    for _ in 0..MAX_READ {
        let Some((last, link)) = journal.link.take() else {
            return Some(NewestSave { seq, head });
        };
        linked += link.end;
        if link.epoch >= journal.meta.epoch || linked > MAX_FILE {
            return None;
        }
        journal = Journal::read(dir, &link.target(meta), link.end)?;
        let is_target = link.leads_to(&journal.meta, meta)
            && (journal.last, journal.end) == (Some(last), link.end);
        unpacked += journal.unpacked;
        if !is_target || unpacked > MAX_STATE {
            return None;
        }
        head = head.or(journal.head.take());
    }
    None
}

/// The result of one pass over a journal.
struct Journal {
    meta: FileMeta,
    /// The link to the journal that this one continues, and the number of the last linked save.
    link: Option<(u64, Link)>,
    /// The number of the last save in this file.
    last: Option<u64>,
    /// The head of the last save that has one.
    head: Option<Vec<u8>>,
    /// The offset after the last save.
    end: u64,
    /// The number of bytes of all saves, unpacked.
    unpacked: u64,
}

impl Journal {
    /// Reads the first `limit` bytes of a journal.
    fn read(dir: &Dir, name: &str, limit: u64) -> Option<Self> {
        let file = dir.open_file(name, OpenMode::Read).ok()??;
        let len = file.stat().ok()?.len;
        if len > MAX_FILE {
            return None;
        }
        let mut window = Window::new(&*file, 0, limit.min(len));
        let salt = decode_header(window.bytes(HEADER)?).ok()?;
        window.skip(HEADER);
        let first = window.frame(salt)?.ok()?;
        if first.kind != META {
            return None;
        }
        let mut journal = Self {
            meta: codec::decode(&window.unpack(&first)?).ok()?,
            link: None,
            last: None,
            head: None,
            end: 0,
            unpacked: 0,
        };
        let mut expected = first.seq;
        let mut newest = None;
        window.skip(first.end());
        while let Some(frame) = window.frame(salt) {
            let frame = match frame {
                Ok(frame) => frame,
                // Reserved room that no save has used yet.
                Err(_) if window.is_zero_to_the_end() => break,
                Err(_) => return None,
            };
            let is_first = expected == first.seq;
            expected = expected.wrapping_add(1);
            if frame.seq != expected {
                return None;
            }
            match frame.kind {
                LINK if is_first => {
                    let link = codec::decode(&window.unpack(&frame)?).ok()?;
                    journal.link = Some((frame.seq, link));
                }
                TRUNCATE | META | END | LINK => return None,
                kind => {
                    if matches!(kind, DELTA | EVENTS) {
                        journal.unpacked += u64::from(frame.raw_len);
                    }
                    if kind == DELTA && frame.head_len > 0 {
                        newest = Some((window.position(), frame.end() as u64));
                    }
                    journal.last = Some(frame.seq);
                }
            }
            window.skip(frame.end());
            journal.end = window.position();
        }
        if let Some((start, len)) = newest {
            let mut window = Window::new(&*file, start, start + len);
            let frame = window.frame(salt)?.ok()?;
            let mut raw = window.unpack(&frame)?;
            raw.truncate(frame.head_len as usize);
            journal.head = Some(raw);
        }
        Some(journal)
    }
}

/// A part of a file in memory, which moves forward. The offset of a frame is relative to the next byte.
struct Window<'a> {
    file: &'a dyn FileHandle,
    buffer: Vec<u8>,
    /// The place of the buffer in the file.
    start: u64,
    /// The place of the next byte in the buffer.
    next: usize,
    /// The number of bytes in the buffer that were read from the file.
    filled: usize,
    /// The end of the part of the file that is read.
    limit: u64,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn FileHandle, start: u64, limit: u64) -> Self {
        Self {
            file,
            buffer: Vec::new(),
            start,
            next: 0,
            filled: 0,
            limit,
        }
    }

    fn position(&self) -> u64 {
        self.start + self.next as u64
    }

    fn skip(&mut self, bytes: usize) {
        self.next += bytes;
    }

    /// Returns the next bytes: at least `count`, or all up to the end. `None` if the file can't be read.
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let left = self.limit.saturating_sub(self.position());
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let count = count.min(left);
        if self.filled < self.next + count {
            self.buffer.copy_within(self.next..self.filled, 0);
            self.filled -= self.next;
            self.start += self.next as u64;
            self.next = 0;
            let size = count.max(WINDOW.min(left));
            if self.buffer.len() < size {
                // The system zeroes new memory when it is used, so an unused part costs nothing.
                let mut larger = vec![0; size];
                larger[..self.filled].copy_from_slice(&self.buffer[..self.filled]);
                self.buffer = larger;
            }
        }
        while self.filled < self.next + count {
            let at = self.start + self.filled as u64;
            let room = (self.limit - at).min((self.buffer.len() - self.filled) as u64) as usize;
            let free = &mut self.buffer[self.filled..self.filled + room];
            match self.file.read_at(free, at) {
                // Somebody truncated the file.
                Ok(0) => return None,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(&self.buffer[self.next..self.filled])
    }

    /// Returns the next frame, or the fault there; `None` at the end.
    fn frame(&mut self, salt: u64) -> Option<Result<Frame, FrameFault>> {
        if self.position() >= self.limit {
            return None;
        }
        let unreadable = || Err(damaged(0, "the file can't be read"));
        let Some(header) = self.bytes(HEADER) else {
            return Some(unreadable());
        };
        let len = frame::len(header);
        Some(match self.bytes(len) {
            Some(bytes) => decode(bytes, 0, salt),
            None => unreadable(),
        })
    }

    /// Returns the payload of the frame that was returned last.
    fn unpack(&mut self, frame: &Frame) -> Option<Vec<u8>> {
        let bytes = self.bytes(frame.end())?;
        Unpacker::default().unpack_frame(bytes, frame).ok()
    }

    fn is_zero_to_the_end(&mut self) -> bool {
        while self.position() < self.limit {
            match self.bytes(1) {
                Some(bytes) if frame::is_zero(bytes) => {
                    let len = bytes.len();
                    self.skip(len);
                }
                _ => return false,
            }
        }
        true
    }
}
