//! Reduces the size of a transcript: compresses it, or removes records.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use loop_state::first_bytes;
use uuid::Uuid;
use zstd::stream::write::Encoder;

use super::list::{PART, is_packed, packed, unpacked};
use super::records::{MAX_BYTES_READ, Record, Records};
use crate::state_dir;

const LEVEL: i32 = 3;
/// The number of bytes between two checks of `stop`.
const CHUNK: usize = 256 << 10;
/// The bytes of text that stay at each end of a shortened transcript, and the bytes that stay of one record.
const END: usize = 16 << 10;
const MOST_TEXT: usize = 4 << 10;

/// A reduction of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    /// Removes the raw lines.
    Raw,
    /// Removes the raw lines, and everything between the beginning and the end.
    Middle,
}

/// A compressed file that replaces a transcript when it is complete. Dropping it earlier removes it.
struct PackedDraft<'a> {
    part: PathBuf,
    to: Encoder<'static, File>,
    stop: &'a AtomicBool,
    unchecked: usize,
}

impl<'a> PackedDraft<'a> {
    fn new(packed: &Path, stop: &'a AtomicBool) -> io::Result<Self> {
        // The name is unique, because another process may have taken over the run.
        let part = packed.with_extension(format!("zst.{}.{PART}", Uuid::new_v4().simple()));
        let file = state_dir::create_new(&part)?;
        let mut to = Encoder::new(file, LEVEL)?;
        to.include_checksum(true)?;
        let unchecked = 0;
        Ok(Self {
            part,
            to,
            stop,
            unchecked,
        })
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        line.chunks(CHUNK).try_for_each(|chunk| self.add(chunk))
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unchecked += bytes.len();
        if self.unchecked >= CHUNK {
            self.check_stop()?;
        }
        self.to.write_all(bytes)
    }

    /// Returns an error if the work must stop.
    fn check_stop(&mut self) -> io::Result<()> {
        self.unchecked = 0;
        match self.stop.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Replaces `old` by the complete, durable file, with the modification time of `old`.
    fn replace(mut self, old: &Path, packed: &Path) -> io::Result<()> {
        self.check_stop()?;
        self.to.do_finish()?;
        let file = self.to.get_ref();
        file.set_modified(state_dir::metadata(old)?.modified())?;
        file.sync_all()?;
        state_dir::rename(&self.part, packed)?;
        if let Some(folder) = packed.parent() {
            state_dir::sync(folder)?;
        }
        match old == packed {
            true => Ok(()),
            false => state_dir::remove_file(old),
        }
    }
}

impl Drop for PackedDraft<'_> {
    fn drop(&mut self) {
        // After the rename no file has this name.
        let _placed = state_dir::remove_file(&self.part);
    }
}

/// Compresses a transcript that is complete. Fails with `TimedOut` if `stop` is set meanwhile; the transcript is then unchanged.
pub(super) fn pack(plain: &Path, stop: &AtomicBool) -> io::Result<()> {
    let to = packed(plain);
    let mut from = state_dir::open_bounded(plain, MAX_BYTES_READ)?;
    let mut draft = PackedDraft::new(&to, stop)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return draft.replace(plain, &to);
        }
        draft.add(&chunk[..count])?;
    }
}

/// Reduces a transcript, compresses it, and adds a record of kind `reduced` with the amount of removed text. Stops like [`pack`].
pub(super) fn reduce(path: &Path, less: Reduction, stop: &AtomicBool) -> io::Result<()> {
    let to = match is_packed(path) {
        true => packed(&unpacked(path)),
        false => packed(path),
    };
    let mut draft = PackedDraft::new(&to, stop)?;
    let mut left_out = Omitted::default();
    let mut room = END;
    let mut tail = VecDeque::new();
    let mut in_tail = 0;
    for record in Records::open(path)? {
        let mut record = record?;
        if record.kind == "raw" {
            draft.unchecked += record.text.len();
            left_out.add(&record);
            continue;
        }
        if less == Reduction::Raw {
            draft.record(&record)?;
            continue;
        }
        shorten(&mut record);
        if record.text.len() <= room {
            room -= record.text.len();
            draft.record(&record)?;
            continue;
        }
        room = 0;
        draft.unchecked += record.text.len();
        if draft.unchecked >= CHUNK {
            draft.check_stop()?;
        }
        in_tail += record.text.len();
        tail.push_back(record);
        while in_tail > END || tail.len() > END / 64 {
            let Some(dropped) = tail.pop_front() else {
                break;
            };
            in_tail -= dropped.text.len();
            left_out.add(&dropped);
        }
    }
    if let Some(record) = left_out.record() {
        draft.record(&record)?;
    }
    for record in &tail {
        draft.record(record)?;
    }
    draft.replace(path, &to)
}

/// Shortens a long text.
fn shorten(record: &mut Record) {
    let kept = first_bytes(&record.text, MOST_TEXT).len();
    record.omitted += (record.text.len() - kept) as u64;
    record.text.truncate(kept);
}

/// The amount of removed text.
#[derive(Default)]
struct Omitted {
    at: loop_state::Timestamp,
    records: u64,
    bytes: u64,
}

impl Omitted {
    fn add(&mut self, record: &Record) {
        self.at = record.at;
        self.records += 1;
        self.bytes += record.text.len() as u64 + record.omitted;
    }

    fn record(self) -> Option<Record> {
        (self.records > 0).then(|| Record {
            at: self.at,
            kind: "reduced".into(),
            text: format!(
                "{} records left out because of max-transcripts",
                self.records
            ),
            omitted: self.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use loop_state::Timestamp;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::transcript::list;

    static GO: AtomicBool = AtomicBool::new(false);

    fn record(kind: &str, text: &str) -> Record {
        Record {
            at: Timestamp::from_millis(7),
            kind: kind.into(),
            text: text.into(),
            omitted: 0,
        }
    }

    fn write(dir: &Path, records: &[Record]) -> PathBuf {
        let path = list::path(dir, 1, 1);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        let lines = records
            .iter()
            .map(|it| serde_json::to_string(it).unwrap() + "\n");
        fs_err::write(&path, lines.collect::<String>()).unwrap();
        path
    }

    fn read(path: &Path) -> Vec<Record> {
        Records::open(path).unwrap().map(Result::unwrap).collect()
    }

    fn files(dir: &Path) -> Vec<String> {
        let entries = fs_err::read_dir(dir.join("transcripts")).unwrap();
        let name = |entry: io::Result<fs_err::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|it| name(it).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn x118a_compressed_transcript_keeps_content_mode_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let records: Vec<_> = (0..5000)
            .map(|n| record("raw", &format!("line {n}")))
            .collect();
        let path = write(dir.path(), &records);
        let before = fs_err::metadata(&path).unwrap();
        pack(&path, &GO).unwrap();
        assert_eq!(files(dir.path()), ["1-1.ndjson.zst"]);
        assert!(read(&path) == records);
        let meta = fs_err::metadata(packed(&path)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert_eq!(meta.modified().unwrap(), before.modified().unwrap());
        assert!(meta.len() < before.len() / 4);
    }

    #[test]
    fn stopped_compression_keeps_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), &[record("stdout", "all of it")]);
        let stop = AtomicBool::new(true);
        for done in [pack(&path, &stop), reduce(&path, Reduction::Middle, &stop)] {
            assert_eq!(done.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(files(dir.path()), ["1-1.ndjson"]);
        }
        assert_eq!(read(&path).len(), 1);
    }

    #[test]
    fn readable_records_stay_longest_and_gaps_are_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let mut records = vec![record("prompt", "do it")];
        for n in 0..3000 {
            records.push(record("message", &format!("said {n}")));
            records.push(record("raw", &"x".repeat(100)));
        }
        records.push(record("end", "completed"));
        let path = write(dir.path(), &records);
        reduce(&path, Reduction::Raw, &GO).unwrap();
        let path = packed(&path);
        let read_on = read(&path);
        assert!(read_on.iter().all(|it| it.kind != "raw"));
        assert_eq!(read_on.len(), 3003);
        insta::assert_snapshot!(
            serde_json::to_string(read_on.last().unwrap()).unwrap(),
            @r#"{"at":7,"kind":"reduced","text":"3000 records left out because of max-transcripts","omitted":300000}"#
        );
        reduce(&path, Reduction::Middle, &GO).unwrap();
        let kept = read(&path);
        assert_eq!(kept[0].text, "do it");
        assert_eq!(kept[kept.len() - 2].text, "completed");
        let gap = kept.iter().find(|it| it.kind == "reduced").unwrap();
        let left_out = 3003 - (kept.len() - 1);
        assert_eq!(
            gap.text,
            format!("{left_out} records left out because of max-transcripts")
        );
        assert_eq!(files(dir.path()), ["1-1.ndjson.zst"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// For any content, the rest is small, and each byte of text is either there or counted.
        #[test]
        fn every_omission_is_reported(texts in prop::collection::vec((0usize..3, 0usize..9000), 0..60)) {
            let dir = tempfile::tempdir().unwrap();
            let kinds = ["message", "raw", "tool"];
            let records: Vec<_> = { texts.iter() }.map(|(kind, len)| record(kinds[*kind], &"ä".repeat(*len))).collect();
            let path = write(dir.path(), &records);
            reduce(&path, Reduction::Middle, &GO).unwrap();
            let kept = read(&path);
            let there = { kept.iter() }.filter(|it| it.kind != "reduced");
            let bytes: u64 = there.map(|it| it.text.len() as u64).sum();
            let omitted: u64 = kept.iter().map(|it| it.omitted).sum();
            prop_assert_eq!(bytes + omitted, texts.iter().map(|(_, len)| 2 * *len as u64).sum::<u64>());
            prop_assert!(bytes <= 2 * END as u64);
        }
    }
}
