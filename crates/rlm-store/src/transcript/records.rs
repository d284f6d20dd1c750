//! The record of a transcript, and the reader for all transcripts: compressed, truncated, or still growing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use loop_state::Timestamp;
use serde::{Deserialize, Serialize};
use zstd::stream::read::Decoder;

use super::list::{is_packed, packed, unpacked};
use crate::state_dir::{self, Identity};

/// The size at which a transcript stops growing, so that an agent with much output doesn't fill the disk.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// The largest size of a file that is read, in bytes. It is larger than `MAX_BYTES`, because the last record may begin just below that limit.
pub(super) const MAX_BYTES_READ: u64 = 2 * MAX_BYTES;
/// The largest line that is read, in bytes: more than the record of the longest possible line of output, even if all of it is escaped.
pub(super) const MAX_LINE: u64 = 100 << 20;
/// The largest text of a record that is read, in bytes: more than the longest text that `rlm` writes.
const MAX_TEXT: usize = 20 << 20;
/// The largest memory of the decompressor, as a power of two; larger than any transcript needs.
const WINDOW: u32 = 24;

/// One line of a transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The time, in milliseconds since the Unix epoch.
    pub at: Timestamp,
    /// The kind of the record. Every transcript can have `prompt`, `steer`, `end`, `truncated`, and `reduced` (text was removed later). The
    /// transcript of a plain agent also has `stdout` and `stderr`. The transcript of an agent with a driver also has `text` (as it was streamed),
    /// `message`, `tool`, `result`, `ask`, `note`, and `raw` (the original line).
    pub kind: String,
    /// The text, several lines if they arrived together; invalid UTF-8 appears as U+FFFD.
    pub text: String,
    /// The number of bytes that are left out of the middle of the line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
pub(super) fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// An iterator over the records of a transcript, compressed or not.
///
/// If the transcript still grows, the iterator can continue after its end: it yields the new records, even if the file was removed and written again.
/// It skips invalid lines, such as the half line of an interrupted write; after an error it yields nothing more. It never holds more than one record.
pub struct Records {
    path: PathBuf,
    from: Box<dyn BufRead + Send>,
    /// The identity of the file, if it may grow.
    grows: Option<Identity>,
    /// The position at which the reader began.
    start: u64,
    /// The number of records read from the file.
    taken: u64,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    /// Opens a transcript, even if it was compressed since it was listed.
    ///
    /// # Errors
    ///
    /// An error if there is no transcript, or it can't be opened. After `NotFound`, the transcript will not appear later.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_at(path, 0)
    }

    /// Opens a transcript as [`open`](Self::open) does, and begins at the position of a record, see [`TranscriptWindow`](super::TranscriptWindow). If the
    /// file was replaced by a smaller one since the position was read, the reader begins at another record.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_at(path: &Path, position: u64) -> io::Result<Self> {
        let opened = Self::open_as_named(path, position);
        match opened {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let other = match is_packed(path) {
                    true => unpacked(path),
                    false => packed(path),
                };
                Self::open_as_named(&other, position).map_err(|_| e)
            }
            opened => opened,
        }
    }

    /// Reads a transcript that arrives in another way than in a file. At its end, `from` may get more later.
    #[must_use]
    pub fn arriving(from: impl BufRead + Send + 'static) -> Self {
        Self {
            path: PathBuf::new(),
            from: Box::new(from),
            grows: None,
            start: 0,
            taken: 0,
            begun: Vec::new(),
        }
    }

    fn open_as_named(path: &Path, position: u64) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("`{}`: {e}", path.display()));
        let file = state_dir::open_bounded(path, MAX_BYTES_READ).map_err(named)?;
        let grows = match is_packed(path) {
            true => None,
            false => Some(state_dir::file_identity(&file)?),
        };
        // This limit ends an endlessly growing file.
        let from: Box<dyn BufRead + Send> = match grows {
            None => {
                let mut unpacked = unpacker(file)?;
                // The reader reports damage as it would from the beginning.
                let _damaged = io::copy(&mut (&mut unpacked).take(position), &mut io::sink());
                Box::new(BufReader::new(unpacked))
            }
            Some(_) => {
                (&file).seek(SeekFrom::Start(position))?;
                Box::new(BufReader::new(file.take(MAX_BYTES_READ)))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            from,
            grows,
            start: position,
            taken: 0,
            begun: Vec::new(),
        })
    }

    /// Continues in the new file if the old one was removed and written again, and returns whether that happened. The new file has all records.
    fn follow_replacement(&mut self) -> bool {
        let there = self
            .grows
            .and_then(|_| state_dir::metadata(&self.path).ok());
        if there.is_none_or(|meta| Some(meta.identity()) == self.grows) {
            return false;
        }
        let Ok(mut anew) = Self::open_as_named(&self.path, self.start) else {
            return false;
        };
        for _ in 0..self.taken {
            if anew.read().is_none() {
                return false;
            }
        }
        *self = anew;
        true
    }

    /// Reads to the end of a line; `None` if there is none yet.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let left = MAX_LINE.saturating_sub(self.begun.len() as u64);
        let mut bounded = (&mut self.from).take(left);
        bounded.read_until(b'\n', &mut self.begun)?;
        let is_whole = self.begun.ends_with(b"\n") || self.begun.len() as u64 >= MAX_LINE;
        Ok(is_whole.then(|| std::mem::take(&mut self.begun)))
    }
}

impl Iterator for Records {
    type Item = io::Result<Record>;

    /// Reads the next record; `None` if there is none yet.
    fn next(&mut self) -> Option<io::Result<Record>> {
        let read = self.read();
        match read.is_none() && self.follow_replacement() {
            true => self.read(),
            false => read,
        }
    }
}

/// Returns the uncompressed bytes of a file. Its limits end a file that expands to terabytes.
pub(super) fn unpacker(file: File) -> io::Result<impl Read + Send> {
    let mut unpacker = Decoder::new(file)?;
    unpacker.window_log_max(WINDOW)?;
    Ok(unpacker.take(MAX_BYTES_READ))
}

/// Returns whether `rlm` can have written a line, by the smallest possible size of its unescaped text: a planted line may be longer.
pub(super) fn may_be_ours(line: &[u8]) -> bool {
    if line.len() <= MAX_TEXT {
        return true;
    }
    // An escape takes at most six bytes for one byte of text.
    let escapes = memchr::memchr_iter(b'\\', line).count();
    line.len() - escapes.saturating_mul(5).min(line.len()) <= MAX_TEXT
}

impl Records {
    fn read(&mut self) -> Option<io::Result<Record>> {
        let read = self.try_read();
        self.taken += u64::from(read.is_some());
        read
    }

    fn try_read(&mut self) -> Option<io::Result<Record>> {
        loop {
            match self.line() {
                Ok(Some(line)) if !may_be_ours(&line) => continue,
                Ok(Some(line)) => match serde_json::from_slice(&line) {
                    Ok(record) => return Some(Ok(record)),
                    Err(_) => continue,
                },
                Ok(None) => {
                    // The record is complete without its line end: the write was interrupted there.
                    let record = serde_json::from_slice(&self.begun).ok()?;
                    self.begun.clear();
                    return Some(Ok(record));
                }
                Err(e) => {
                    // Everything after damage may be damaged too.
                    self.from = Box::new(io::empty());
                    return Some(Err(e));
                }
            }
        }
    }
}

/// Sorts transcripts by the beginning of their attempts. The numbers alone are not enough, because each phase counts from 1. Opens at most two
/// transcripts for each number of an attempt.
#[must_use]
pub fn sorted_by_age(mut all: Vec<(u32, u32, PathBuf)>) -> Vec<(u32, u32, PathBuf)> {
    let began = |(_, _, path): &(u32, u32, PathBuf)| {
        let first = Records::open(path).ok().and_then(|mut it| it.next()?.ok());
        // The file of a transcript without a record has not changed since it began.
        first.map(|it| it.at).or_else(|| changed(path))
    };
    let numberings = numberings(&all, began);
    all.sort_by_key(|(iteration, attempt, _)| {
        let numbering = numberings.partition_point(|first| first <= attempt);
        (numbering, *iteration, *attempt)
    });
    all
}

/// Returns when a file was changed last.
fn changed(path: &Path) -> Option<Timestamp> {
    Some(state_dir::metadata(path).ok()?.modified().into())
}

/// Returns the first attempt number of each numbering but the first, in ascending order. `began` returns when an attempt began.
///
/// A run numbers its iterations again in each phase, and when it goes back to an earlier iteration. Then the attempts get higher numbers than all before.
/// So a higher number than before either begins a numbering, or belongs to a further attempt of an iteration. In the first case, its first attempt began
/// after the last attempt of the numbering before; in the second case, the later iterations of its numbering began after it.
fn numberings<K: Ord>(
    all: &[(u32, u32, PathBuf)],
    began: impl Fn(&(u32, u32, PathBuf)) -> K,
) -> Vec<u32> {
    let mut of_number: BTreeMap<u32, (&_, &_)> = BTreeMap::new();
    for transcript in all {
        let entry = of_number.entry(transcript.1);
        let (first, last) = entry.or_insert((transcript, transcript));
        if transcript.0 < first.0 {
            *first = transcript;
        }
        if transcript.0 > last.0 {
            *last = transcript;
        }
    }
    let mut numberings = Vec::new();
    let mut newest: Option<&(u32, u32, PathBuf)> = None;
    for (number, (first, last)) in of_number {
        let before = newest.filter(|it| it.0 > first.0);
        if before.is_some_and(|it| began(it) < began(first)) {
            numberings.push(number);
            newest = None;
        }
        newest = newest.filter(|it| it.0 > last.0).or(Some(last));
    }
    numberings
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::transcript::list;

    fn texts(records: &mut Records) -> Vec<String> {
        records.map(|record| record.unwrap().text).collect()
    }

    #[test]
    fn transcript_line_keys_snapshot() {
        let record = |omitted| Record {
            at: Timestamp::from_millis(1),
            kind: "stdout".into(),
            text: "a".into(),
            omitted,
        };
        let lines = [record(0), record(3)].map(|record| serde_json::to_string(&record).unwrap());
        insta::assert_snapshot!(lines.join("\n"), @r#"
        {"at":1,"kind":"stdout","text":"a"}
        {"at":1,"kind":"stdout","text":"a","omitted":3}
        "#);
    }

    #[test]
    fn growing_transcript_is_followed_and_damage_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = list::path(dir.path(), 1, 1);
        fs_err::create_dir(path.parent().unwrap()).unwrap();
        let mut file = fs_err::File::create(&path).unwrap();
        let mut add = |text: &str| file.write_all(text.as_bytes()).unwrap();
        add("{\"at\":1,\"kind\":\"stdout\",\"text\":\"one\"}\ngarbage\n{\"at\":2,");
        let mut records = Records::open(&path).unwrap();
        assert_eq!(texts(&mut records), ["one"]);
        add("\"kind\":\"stdout\",\"text\":\"two\"}");
        assert_eq!(texts(&mut records), ["two"]);
        add("\n{\"at\":3,\"kind\":\"end\",\"text\":\"\"}\n{\"at\"");
        assert_eq!(texts(&mut records), [""]);
        let all = fs_err::read(&path).unwrap();
        fs_err::remove_file(&path).unwrap();
        assert!(texts(&mut records).is_empty());
        let more = b":4,\"kind\":\"stdout\",\"text\":\"four\"}\n";
        fs_err::write(&path, [&all[..], more].concat()).unwrap();
        assert_eq!(texts(&mut records), ["four"]);
    }

    #[test]
    fn compressed_transcript_reads_under_both_names_and_damage_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = list::path(dir.path(), 1, 1);
        fs_err::create_dir(path.parent().unwrap()).unwrap();
        let missing = Records::open(&path).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let lines: String = (0..9999)
            .map(|n| format!("{{\"at\":{n},\"kind\":\"stdout\",\"text\":\"line {n}\"}}\n"))
            .collect();
        let packed = zstd::encode_all(lines.as_bytes(), 3).unwrap();
        fs_err::write(list::packed(&path), &packed).unwrap();
        for name in [&path, &list::packed(&path)] {
            let records = Records::open(name).unwrap();
            assert_eq!(records.map(Result::unwrap).count(), 9999);
        }
        fs_err::write(list::packed(&path), &packed[..packed.len() / 2]).unwrap();
        let read: Vec<_> = Records::open(&path).unwrap().collect();
        assert!(read.last().unwrap().is_err());
    }

    #[test]
    fn empty_transcript_keeps_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let names = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)];
        let all: Vec<_> = { names.iter().zip(1u64..) }
            .map(|(&(iteration, attempt), second)| {
                let path = list::path(dir.path(), iteration, attempt);
                fs_err::create_dir_all(path.parent().unwrap()).unwrap();
                let line = format!(
                    "{{\"at\":{},\"kind\":\"stdout\",\"text\":\"\"}}\n",
                    second * 1000
                );
                // Its attempt ended before the first record.
                let text = if (iteration, attempt) == (3, 1) {
                    ""
                } else {
                    &line
                };
                fs_err::write(&path, text).unwrap();
                let file = File::options().append(true).open(&path).unwrap();
                let began = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
                file.set_modified(began).unwrap();
                (iteration, attempt, path)
            })
            .collect();
        let mut sorted = all.clone();
        sorted.sort();
        assert_eq!(sorted_by_age(sorted), all);
    }

    proptest! {
        /// A run of several numberings. Each one begins at an iteration that the run reached, or at the first one, and has iterations with several attempts.
        #[test]
        fn order_of_attempts_needs_few_transcripts(
            numberings in proptest::collection::vec(
                (proptest::option::of(0u32..9), proptest::collection::vec(1u32..4, 1..9)),
                1..6,
            ),
            removed in 0usize..30,
        ) {
            let (mut by_age, mut reached, mut highest) = (Vec::new(), 0, 0);
            for (back, attempts) in numberings {
                // A phase begins with its first iteration.
                let from = back.map_or(1, |back| u32::saturating_sub(reached, back).max(1));
                let first = highest + 1;
                for (at, count) in attempts.into_iter().enumerate() {
                    reached = from + at as u32;
                    for attempt in first..first + count {
                        by_age.push((reached, attempt, PathBuf::new()));
                        highest = highest.max(attempt);
                    }
                }
            }
            // The older transcripts may be gone.
            by_age.drain(..removed.min(by_age.len()));
            let age = |it: &(u32, u32, PathBuf)| by_age.iter().position(|other| other == it);
            let opened = Cell::new(0);
            let began = |it: &(u32, u32, PathBuf)| {
                opened.set(opened.get() + 1);
                age(it)
            };
            let mut all = by_age.clone();
            all.sort();
            let found = super::numberings(&all, began);
            prop_assert!(opened.get() <= 2 * highest, "{} of {}", opened.get(), all.len());
            all.sort_by_key(|it| (found.partition_point(|first| *first <= it.1), it.0, it.1));
            prop_assert_eq!(&all, &by_age);
        }
    }

    #[test]
    fn only_two_transcripts_of_a_long_run_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(dir.path().join("transcripts")).unwrap();
        let write = |iteration, attempt, at: Option<u64>| {
            let record = at.map(|at| format!("{{\"at\":{at},\"kind\":\"end\",\"text\":\"\"}}\n"));
            let path = list::path(dir.path(), iteration, attempt);
            fs_err::write(path, record.unwrap_or_default()).unwrap();
        };
        let sorted = || {
            let all = sorted_by_age(list::transcripts(dir.path()).unwrap());
            let numbers = all
                .into_iter()
                .map(|(iteration, attempt, _)| (iteration, attempt));
            numbers.collect::<Vec<_>>()
        };
        // Only these two have a record: the others look as if they had just begun.
        for iteration in 1..100 {
            write(iteration, 1, None);
        }
        write(50, 2, Some(5));
        write(99, 1, Some(9));
        let mut expected: Vec<_> = (1..100).map(|iteration| (iteration, 1)).collect();
        expected.insert(50, (50, 2));
        assert_eq!(sorted(), expected);
        // The second phase began after the end of the first one.
        write(50, 2, Some(10));
        expected.remove(50);
        expected.push((50, 2));
        assert_eq!(sorted(), expected);
    }
}
