//! The transcript of one attempt, as lines of JSON: its records, how pieces are joined, and the amount that a kill can lose.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_duplex::{Event, Line, Observation, Stream};
use loop_state::Timestamp;
use serde::Serialize;

use crate::state_dir;
use records::{MAX_BYTES, is_zero};

pub(crate) use list::files;
pub use list::{FOLDER, RemovedTranscripts, path, removed_transcripts, transcripts, unknown};
pub use parts::{ArrivedParts, NewBytes, TranscriptCopy, TranscriptPart, UncopiedTranscripts};
pub use quota::{PruneResult, TranscriptQuota};
pub use records::{Record, Records, sorted_by_age};
pub use window::TranscriptWindow;

mod list;
mod pack;
mod parts;
mod quota;
mod records;
mod window;

/// The greatest age of unflushed text: a hard kill can lose it (J51), and a reader of the file sees it this late.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// Lines that arrive within this time form one record, up to `MAX_JOINED` bytes: as single records, short lines would take twenty times their length.
const JOIN_WITHIN: Duration = Duration::from_millis(100);
const MAX_JOINED: usize = 8 << 10;

/// Returns the text of a line. Nearly all lines are valid, and the check is much faster than a lossy conversion.
fn lossy(line: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed)
}

/// A [`Record`] that borrows its text.
#[derive(Serialize)]
struct BorrowedRecord<'a> {
    at: Timestamp,
    kind: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    omitted: u64,
}

struct CountingWriter<'a> {
    to: &'a mut BufWriter<File>,
    bytes: &'a mut u64,
}

impl Write for CountingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A record that may still grow: streamed text, or lines in quick succession.
#[derive(Debug)]
struct PendingRecord {
    /// The time of its first piece.
    at: Timestamp,
    kind: &'static str,
    text: String,
}

/// The plain NDJSON file of one attempt: created once, appended to, never overwritten.
#[derive(Debug)]
pub struct Transcript {
    path: PathBuf,
    file: BufWriter<File>,
    written: u64,
    /// The pieces of the next record.
    pending: Option<PendingRecord>,
    unflushed_since: Option<Timestamp>,
}

impl Transcript {
    /// Creates the transcript of an attempt, which must be new.
    ///
    /// # Errors
    ///
    /// An error if the file exists, or can't be created.
    pub fn create(run_dir: &Path, iteration: u32, attempt: u32) -> io::Result<Self> {
        let path = path(run_dir, iteration, attempt);
        let file = Self::file(&path)?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
            written: 0,
            pending: None,
            unflushed_since: None,
        })
    }

    /// Creates the file and its directory.
    fn file(path: &Path) -> io::Result<File> {
        if let Some(folder) = path.parent() {
            state_dir::make_private_directory(folder)?;
        }
        state_dir::create_new(path)
    }

    /// Writes everything to a new file if somebody removed the old one; returns whether that happened.
    pub fn restore(&mut self) -> io::Result<bool> {
        if state_dir::has_name(self.file.get_ref())? {
            return Ok(false);
        }
        self.flush()?;
        let old = self.file.get_mut();
        let mut new = Self::file(&self.path)?;
        old.rewind()?;
        io::copy(old, &mut new)?;
        self.file = BufWriter::new(new);
        Ok(true)
    }

    /// Writes a line of the agent's output.
    ///
    /// # Errors
    ///
    /// An error if the line can't be written.
    pub fn output(&mut self, at: Timestamp, stream: Stream, line: &Line) -> io::Result<()> {
        let kind = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        if self.written >= MAX_BYTES {
            return Ok(());
        }
        let text = lossy(&line.bytes);
        if line.omitted > 0 || text.len() > MAX_JOINED {
            return self.bounded(at, kind, &text, line.omitted);
        }
        self.unflushed_since.get_or_insert(at);
        let continues_it = |it: &&mut PendingRecord| {
            it.kind == kind
                && at.since(it.at) < JOIN_WITHIN
                && it.text.len() + text.len() < MAX_JOINED
        };
        if let Some(pending) = self.pending.as_mut().filter(continues_it) {
            pending.text.push('\n');
            pending.text.push_str(&text);
            return Ok(());
        }
        self.flush_pending()?;
        let text = text.into_owned();
        self.pending = Some(PendingRecord { at, kind, text });
        Ok(())
    }

    /// Writes a driver's observation: its events as text, and the raw line behind them. For streamed text, the raw line is not stored: the agent
    /// sends the whole text again as a message when it is complete.
    pub fn observed(&mut self, at: Timestamp, seen: &Observation) -> io::Result<()> {
        let mut streamed = false;
        for event in &seen.events {
            match event {
                Event::TextDelta(text) => {
                    self.unflushed_since.get_or_insert(at);
                    match self.pending.as_mut().filter(|it| it.kind == "text") {
                        Some(pending) => pending.text.push_str(text),
                        None => {
                            self.flush_pending()?;
                            let (kind, text) = ("text", text.clone());
                            self.pending = Some(PendingRecord { at, kind, text });
                        }
                    }
                    streamed = true;
                }
                Event::ThinkingDelta(_) => streamed = true,
                event => {
                    if let Some((kind, text)) = record_of(event) {
                        self.bounded(at, kind, &text, 0)?;
                    }
                }
            }
        }
        match &seen.raw {
            Some((Stream::Stdout, line)) if !streamed => {
                let text = lossy(&line.bytes);
                self.bounded(at, "raw", &text, line.omitted)
            }
            Some((Stream::Stderr, line)) => self.output(at, Stream::Stderr, line),
            _ => Ok(()),
        }
    }

    /// Writes the pending record.
    fn flush_pending(&mut self) -> io::Result<()> {
        match self.pending.take() {
            Some(PendingRecord { at, kind, text }) => self.bounded(at, kind, &text, 0),
            None => Ok(()),
        }
    }

    fn bounded(&mut self, at: Timestamp, kind: &str, text: &str, omitted: u64) -> io::Result<()> {
        if self.written >= MAX_BYTES {
            return Ok(());
        }
        self.write(at, kind, text, omitted)?;
        if self.written >= MAX_BYTES {
            self.write(at, "truncated", "", 0)?;
        }
        Ok(())
    }

    /// Writes a record of the loop itself.
    ///
    /// # Errors
    ///
    /// An error if the line can't be written.
    pub fn note(&mut self, at: Timestamp, kind: &str, text: &str) -> io::Result<()> {
        self.write(at, kind, text, 0)
    }

    /// Writes a record piece by piece, because a line can be large, and its escaped form six times as large.
    fn write(&mut self, at: Timestamp, kind: &str, text: &str, omitted: u64) -> io::Result<()> {
        self.flush_pending()?;
        self.unflushed_since.get_or_insert(at);
        let mut counted = CountingWriter {
            to: &mut self.file,
            bytes: &mut self.written,
        };
        let record = BorrowedRecord {
            at,
            kind,
            text,
            omitted,
        };
        serde_json::to_writer(&mut counted, &record)?;
        counted.write_all(b"\n")
    }

    /// Returns the time of the next flush.
    pub fn flush_at(&self) -> Option<Timestamp> {
        self.unflushed_since.map(|since| since + FLUSH_EVERY)
    }

    /// Writes the buffered records.
    ///
    /// # Errors
    ///
    /// An error if they can't be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_pending()?;
        self.unflushed_since = None;
        self.file.flush()
    }
}

/// Returns an event as a record, if it is for people.
fn record_of(event: &Event) -> Option<(&'static str, String)> {
    Some(match event {
        Event::Message { text, .. } => ("message", text.clone()),
        Event::ToolStarted { name, summary, .. } => ("tool", format!("{name}: {summary}")),
        Event::ToolFinished { outcome, text, .. } => {
            ("result", format!("{}: {text}", outcome.name()))
        }
        Event::PermissionRequested(ask) => ("ask", format!("{}: {}", ask.tool, ask.summary)),
        Event::PermissionDenied { tool, message } => ("note", format!("{tool} denied: {message}")),
        Event::Warning(text) => ("note", text.clone()),
        Event::Retrying { error, attempt, .. } => ("note", format!("retry {attempt}: {error}")),
        Event::ContextReset { reason: why } => ("note", format!("context reset: {why}")),
        Event::InterruptAcknowledged { .. } => ("note", "interrupted".into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn line(bytes: &'static [u8]) -> Line {
        Line {
            bytes: bytes.into(),
            omitted: 0,
        }
    }

    #[test]
    fn a_transcript_is_private_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::create(dir.path(), 1, 1).unwrap();
        transcript
            .output(
                Timestamp::from_millis(5),
                Stream::Stdout,
                &line(b"bad \xff"),
            )
            .unwrap();
        assert_eq!(transcript.flush_at(), Some(Timestamp::from_millis(55)));
        transcript.flush().unwrap();
        assert_eq!(transcript.flush_at(), None);
        let text = fs_err::read_to_string(path(dir.path(), 1, 1)).unwrap();
        assert_eq!(
            text,
            "{\"at\":5,\"kind\":\"stdout\",\"text\":\"bad \u{fffd}\"}\n"
        );
        let mode = fs_err::metadata(path(dir.path(), 1, 1))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = Transcript::create(dir.path(), 1, 1).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn x128b_removed_transcript_is_rewritten_completely() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::create(dir.path(), 1, 1).unwrap();
        transcript
            .note(Timestamp::from_millis(1), "one", "")
            .unwrap();
        assert!(!transcript.restore().unwrap());
        fs_err::remove_dir_all(dir.path().join("transcripts")).unwrap();
        transcript
            .note(Timestamp::from_millis(2), "two", "")
            .unwrap();
        assert!(transcript.restore().unwrap());
        transcript
            .note(Timestamp::from_millis(3), "three", "")
            .unwrap();
        transcript.flush().unwrap();
        let text = fs_err::read_to_string(path(dir.path(), 1, 1)).unwrap();
        let kinds = text.lines().map(|line| {
            let record: Record = serde_json::from_str(line).unwrap();
            record.kind
        });
        assert_eq!(kinds.collect::<Vec<_>>(), ["one", "two", "three"]);
    }

    #[test]
    fn simultaneous_lines_are_one_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::create(dir.path(), 1, 1).unwrap();
        let mut say = |at, stream, text: &'static [u8]| {
            transcript
                .output(Timestamp::from_millis(at), stream, &line(text))
                .unwrap();
        };
        say(1, Stream::Stdout, b"one");
        say(2, Stream::Stdout, b"");
        say(99, Stream::Stdout, b"two");
        say(99, Stream::Stderr, b"oh");
        say(100, Stream::Stdout, b"three");
        say(200, Stream::Stdout, b"four");
        transcript
            .note(Timestamp::from_millis(201), "end", "")
            .unwrap();
        transcript.flush().unwrap();
        let records = Records::open(&path(dir.path(), 1, 1)).unwrap();
        let told = records.map(Result::unwrap);
        let told: Vec<_> = told
            .map(|it| (it.at.as_millis(), it.kind, it.text))
            .collect();
        let told = told.iter().map(|it| format!("{it:?}"));
        insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r#"
        (1, "stdout", "one\n\ntwo")
        (99, "stderr", "oh")
        (100, "stdout", "three")
        (200, "stdout", "four")
        (201, "end", "")
        "#);
    }

    #[test]
    fn flood_ends_with_a_record_of_the_omission() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::create(dir.path(), 1, 1).unwrap();
        transcript.written = MAX_BYTES - 1;
        for _ in 0..3 {
            transcript
                .output(Timestamp::from_millis(1), Stream::Stdout, &line(b"x"))
                .unwrap();
        }
        transcript.flush().unwrap();
        let text = fs_err::read_to_string(path(dir.path(), 1, 1)).unwrap();
        let kinds: Vec<String> = text
            .lines()
            .map(|l| serde_json::from_str::<Record>(l).unwrap().kind)
            .collect();
        assert_eq!(kinds, ["stdout", "truncated"]);
    }
}
