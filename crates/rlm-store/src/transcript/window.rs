//! A part of a transcript by its position, so that a page can show the end of a long transcript at once and read backwards from there.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::list::{is_packed, packed, unpacked};
use super::records::{MAX_BYTES_READ, MAX_LINE, Record, may_be_ours, unpacker};
use crate::state_dir;

/// The size of one read, in bytes.
const CHUNK: usize = 64 << 10;

/// Consecutive records of a transcript.
///
/// A position is an offset in bytes in the uncompressed file. The writer only appends, so a position stays the same until a run reduces its old transcripts: a page that shows one then has gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptWindow {
    /// The position of the first record.
    pub from: u64,
    /// The position after the last record.
    pub to: u64,
    /// The records, each with its position.
    pub records: Vec<(u64, Record)>,
}

impl TranscriptWindow {
    /// Reads the last records before the position `end`, or before the end of the file: about `room` bytes of it, and at least one record. Skips
    /// invalid lines.
    ///
    /// # Errors
    ///
    /// An error if there is no transcript, or it can't be read.
    pub fn before(path: &Path, end: Option<u64>, room: usize) -> io::Result<Self> {
        let mut room = room.max(1) as u64;
        loop {
            let (start, bytes) = Source::open(path)?.tail(end, room)?;
            let skipped = match start {
                0 => 0,
                // The byte before a line is a line feed, so a line may begin directly after it.
                _ => memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1),
            };
            let window = Self::parse(start + skipped as u64, &bytes[skipped..]);
            if start == 0 || !window.records.is_empty() || room > MAX_LINE {
                return Ok(window);
            }
            room *= 4;
        }
    }

    /// Reads the records from the position `start` on: about `room` bytes, and at least one record if there is one.
    ///
    /// # Errors
    ///
    /// As for [`before`](Self::before).
    pub fn after(path: &Path, start: u64, room: usize) -> io::Result<Self> {
        let mut room = room.max(1) as u64;
        loop {
            let bytes = Source::open(path)?.from(start, room)?;
            let is_all = (bytes.len() as u64) < room;
            let whole = match is_all {
                true => bytes.len(),
                false => memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1),
            };
            let window = Self::parse(start, &bytes[..whole]);
            if is_all || window.to > start || room > MAX_LINE {
                return Ok(window);
            }
            room *= 4;
        }
    }

    /// Parses lines. The last line may still be incomplete: then the window ends before it.
    fn parse(from: u64, bytes: &[u8]) -> Self {
        let mut records = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let end = memchr::memchr(b'\n', rest);
            let line = &rest[..end.unwrap_or(rest.len())];
            let record = match may_be_ours(line) {
                true => serde_json::from_slice::<Record>(line).ok(),
                false => None,
            };
            // A line without its line feed counts only if the record is complete: the process died just then.
            if end.is_none() && record.is_none() {
                break;
            }
            records.extend(record.map(|record| (from + at as u64, record)));
            at += line.len() + usize::from(end.is_some());
        }
        let to = from + at as u64;
        Self { from, to, records }
    }
}

/// A transcript that can be read at any position.
pub(super) enum Source {
    Plain(File),
    Packed(Box<dyn Read + Send>),
}

impl Source {
    /// Opens a transcript, even if it was compressed since it was listed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let other = match is_packed(path) {
            true => unpacked(path),
            false => packed(path),
        };
        match Self::open_as_named(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Self::open_as_named(&other).map_err(|_| e)
            }
            opened => opened,
        }
    }

    fn open_as_named(path: &Path) -> io::Result<Self> {
        let file = state_dir::open_bounded(path, MAX_BYTES_READ)?;
        Ok(match is_packed(path) {
            true => Self::Packed(Box::new(unpacker(file)?)),
            false => Self::Plain(file),
        })
    }

    /// Returns the last `room` bytes before `end`, and their position.
    fn tail(self, end: Option<u64>, room: u64) -> io::Result<(u64, Vec<u8>)> {
        match self {
            Self::Plain(mut file) => {
                let length = file.metadata()?.len();
                let end = end.map_or(length, |end| end.min(length));
                let start = end.saturating_sub(room);
                file.seek(SeekFrom::Start(start))?;
                let mut bytes = Vec::new();
                file.take(end - start).read_to_end(&mut bytes)?;
                Ok((start, bytes))
            }
            // A compressed file has no positions, so this reads it from its beginning. It never holds more than twice the room.
            Self::Packed(mut from) => {
                let mut bytes: Vec<u8> = Vec::new();
                let mut start = 0;
                let mut left = end.unwrap_or(u64::MAX);
                let mut chunk = vec![0; CHUNK];
                while left > 0 {
                    let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                    let count = from.read(&mut chunk[..most])?;
                    if count == 0 {
                        break;
                    }
                    left -= count as u64;
                    bytes.extend_from_slice(&chunk[..count]);
                    if bytes.len() as u64 > 2 * room + CHUNK as u64 {
                        let gone = bytes.len() - room as usize;
                        bytes.drain(..gone);
                        start += gone as u64;
                    }
                }
                let gone = (bytes.len() as u64).saturating_sub(room);
                bytes.drain(..gone as usize);
                Ok((start + gone, bytes))
            }
        }
    }

    /// Returns at most `room` bytes from `start` on.
    pub(super) fn from(self, start: u64, room: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Self::Plain(mut file) => {
                file.seek(SeekFrom::Start(start))?;
                file.take(room).read_to_end(&mut bytes)?;
            }
            Self::Packed(mut from) => {
                io::copy(&mut (&mut from).take(start), &mut io::sink())?;
                from.take(room).read_to_end(&mut bytes)?;
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::list;
    use loop_state::Timestamp;
    use proptest::prelude::*;

    fn line(n: usize, text: &str) -> String {
        let record = Record {
            at: Timestamp::from_millis(n as u64),
            kind: "stdout".into(),
            text: text.into(),
            omitted: 0,
        };
        serde_json::to_string(&record).unwrap() + "\n"
    }

    fn plain_and_packed(dir: &Path, text: &str) -> [std::path::PathBuf; 2] {
        let plain = list::path(dir, 1, 1);
        fs_err::create_dir_all(plain.parent().unwrap()).unwrap();
        fs_err::write(&plain, text).unwrap();
        let other = packed(&list::path(dir, 1, 2));
        fs_err::write(&other, zstd::encode_all(text.as_bytes(), 3).unwrap()).unwrap();
        [plain, other]
    }

    fn texts(window: &TranscriptWindow) -> Vec<String> {
        let text = |(_, record): &(u64, Record)| record.text.clone();
        window.records.iter().map(text).collect()
    }

    #[test]
    fn torn_end_is_read_once_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (line(1, "one"), line(2, "two"));
        let torn = format!("{one}garbage\n{}", &two[..two.len() - 5]);
        let [path, _] = plain_and_packed(dir.path(), &torn);
        let window = TranscriptWindow::before(&path, None, 1 << 20).unwrap();
        assert_eq!(texts(&window), ["one"]);
        assert_eq!(window.to as usize, one.len() + "garbage\n".len());
        for end in [two.len() - 1, two.len()] {
            fs_err::write(&path, format!("{one}garbage\n{}", &two[..end])).unwrap();
            let more = TranscriptWindow::after(&path, window.to, 1 << 20).unwrap();
            assert_eq!(texts(&more), ["two"]);
        }
    }

    #[test]
    fn record_that_is_larger_than_the_room_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let large = "x".repeat(300_000);
        let text = line(1, "one") + &line(2, &large) + &line(3, "three");
        for path in plain_and_packed(dir.path(), &text) {
            let last = TranscriptWindow::before(&path, None, 100).unwrap();
            assert_eq!(texts(&last), ["three"]);
            let middle = TranscriptWindow::before(&path, Some(last.from), 100).unwrap();
            assert_eq!(texts(&middle).last().unwrap(), &large);
            let first = TranscriptWindow::after(&path, 0, 60).unwrap();
            assert_eq!(texts(&first), ["one"]);
            let next = TranscriptWindow::after(&path, first.to, 60).unwrap();
            assert_eq!(texts(&next)[0], large);
        }
    }

    proptest! {
        /// Windows of any size, read in any direction, contain each record once and in order.
        #[test]
        fn windows_cover_every_record_once(
            lengths in proptest::collection::vec(0usize..300, 1..40),
            room in 1usize..2000,
            garbage in proptest::option::of(0usize..40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut text = String::new();
            for (n, length) in lengths.iter().enumerate() {
                if garbage == Some(n) {
                    text += "{not a record}\n";
                }
                text += &line(n, &"é".repeat(*length));
            }
            for path in plain_and_packed(dir.path(), &text) {
                let mut forward = Vec::new();
                let mut at = 0;
                loop {
                    let window = TranscriptWindow::after(&path, at, room).unwrap();
                    prop_assert_eq!(window.from, at);
                    if window.to == at {
                        break;
                    }
                    at = window.to;
                    forward.extend(window.records);
                }
                prop_assert_eq!(at as usize, text.len());
                let mut backward = Vec::new();
                let mut end = None;
                while end != Some(0) {
                    let window = TranscriptWindow::before(&path, end, room).unwrap();
                    prop_assert!(window.from < window.to || window.from == 0);
                    prop_assert!(end.is_none_or(|end| window.to == end));
                    end = Some(window.from);
                    backward.splice(0..0, window.records);
                }
                prop_assert_eq!(&forward, &backward);
                let at: Vec<u64> = forward.iter().map(|(_, it)| it.at.as_millis()).collect();
                prop_assert_eq!(at, (0..lengths.len() as u64).collect::<Vec<_>>());
            }
        }
    }
}
