//! The limit for the disk usage of a run's transcripts: compresses the older ones, and reduces them above the limit.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::list::{self, FOLDER, PART, is_packed, packed, transcripts};
use super::pack::{self, Reduction};
use super::records::{Records, sorted_by_age};
use crate::state_dir;

/// The number of a run's newest transcripts that stay unchanged.
const NEWEST: usize = 8;
/// The size in bytes below which a transcript is not compressed.
const SMALL: u64 = 32 << 10;
/// The least growth of the older transcripts before the next reduction.
const STEP: u64 = 8 << 20;
/// The number of first records that are searched for a raw line. If they have none, the driver writes no raw lines.
const SAMPLE: usize = 64;

/// The limit of a run's transcripts. The newest ones stay unchanged. For the older ones it stores only their total size on disk, however many there
/// are.
#[derive(Debug)]
pub struct TranscriptQuota {
    run_dir: PathBuf,
    /// The largest number of bytes on disk for the older transcripts.
    max_bytes: u64,
    /// The size that triggers the next reduction.
    next: u64,
    older: u64,
    newest: VecDeque<(u32, u32)>,
    /// The transcripts to compress.
    to_compress: VecDeque<(u32, u32)>,
    /// Whether transcripts of earlier processes are not counted yet.
    unknown: bool,
}

/// The result of pruning.
#[derive(Debug, Default)]
pub struct PruneResult {
    /// Whether any transcript lost text.
    pub reduced: bool,
    /// The first error; the transcript concerned is unchanged.
    pub error: Option<io::Error>,
}

impl TranscriptQuota {
    /// Creates the limit for a run's transcripts; `unknown` means that there are some from earlier processes.
    pub fn new(run_dir: PathBuf, most: u64, unknown: bool) -> Self {
        Self {
            run_dir,
            max_bytes: most,
            next: most,
            older: 0,
            newest: VecDeque::new(),
            to_compress: VecDeque::new(),
            unknown,
        }
    }

    /// Registers a new transcript, and returns whether there is something to do.
    pub fn register(&mut self, iteration: u32, attempt: u32) -> bool {
        self.newest.push_back((iteration, attempt));
        // Transcripts of earlier processes are older.
        while self.newest.len() > NEWEST && !self.unknown {
            if let Some(numbers) = self.newest.pop_front() {
                self.age(numbers);
            }
        }
        self.unknown || !self.to_compress.is_empty() || self.older > self.next
    }

    fn age(&mut self, numbers: (u32, u32)) {
        let path = list::path(&self.run_dir, numbers.0, numbers.1);
        match size(&path) {
            (len, _) if len >= SMALL => self.to_compress.push_back(numbers),
            (_, 0) => self.older += size(&packed(&path)).1,
            (_, bytes) => self.older += bytes,
        }
    }

    /// Compresses and reduces transcripts until `stop` is set. Blocks.
    pub fn prune(&mut self, stop: &AtomicBool) -> PruneResult {
        let mut result = PruneResult::default();
        let pruned = self.try_prune(stop, &mut result);
        result.error = result.error.or(pruned.err());
        // A stop is not an error.
        result.error = result.error.filter(|e| e.kind() != io::ErrorKind::TimedOut);
        result
    }

    fn try_prune(&mut self, stop: &AtomicBool, result: &mut PruneResult) -> io::Result<()> {
        if self.unknown {
            self.count_earlier()?;
        }
        while let Some(numbers) = self.to_compress.front().copied() {
            let plain = list::path(&self.run_dir, numbers.0, numbers.1);
            match pack::pack(&plain, stop) {
                Ok(()) => self.older += size(&packed(&plain)).1,
                Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(e),
                // Somebody removed it, or it was already compressed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.older += size(&packed(&plain)).1;
                }
                Err(e) => {
                    self.older += size(&plain).1;
                    result.error.get_or_insert(e);
                }
            }
            self.to_compress.pop_front();
        }
        if self.older > self.next {
            self.reduce(stop, result)?;
        }
        Ok(())
    }

    /// Counts the transcripts of earlier processes, and removes their unfinished files.
    fn count_earlier(&mut self) -> io::Result<()> {
        for path in state_dir::entries(&self.run_dir.join(FOLDER))? {
            if path.extension().is_some_and(|it| it == PART) {
                state_dir::remove_file(&path)?;
            }
        }
        let all = sorted_by_age(transcripts(&self.run_dir)?);
        let all = all
            .into_iter()
            .map(|(iteration, attempt, _)| (iteration, attempt));
        let mut before: Vec<_> = all.filter(|it| !self.newest.contains(it)).collect();
        before.extend(self.newest.drain(..));
        let older = before.len().saturating_sub(NEWEST);
        self.newest = before.drain(older..).collect();
        before.into_iter().for_each(|numbers| self.age(numbers));
        self.unknown = false;
        Ok(())
    }

    /// Reduces the older transcripts, the oldest first, until they fit: first removes raw lines, then everything except the beginning and the end.
    fn reduce(&mut self, stop: &AtomicBool, result: &mut PruneResult) -> io::Result<()> {
        let enough = self.max_bytes - self.max_bytes / 8;
        let mut all = sorted_by_age(transcripts(&self.run_dir)?);
        all.retain(|(iteration, attempt, _)| !self.newest.contains(&(*iteration, *attempt)));
        self.older = all.iter().map(|(.., path)| size(path).1).sum();
        for less in [Reduction::Raw, Reduction::Middle] {
            for (.., path) in &mut all {
                let before = size(path).1;
                if self.older <= enough {
                    break;
                }
                if before <= SMALL || (less == Reduction::Raw && !stores_raw_lines(path)) {
                    continue;
                }
                match pack::reduce(path, less, stop) {
                    Ok(()) => result.reduced = true,
                    Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(e),
                    Err(e) => {
                        result.error.get_or_insert(e);
                        continue;
                    }
                }
                if !is_packed(path) {
                    *path = packed(path);
                }
                self.older = (self.older + size(path).1).saturating_sub(before);
            }
        }
        // If the rest is still too large, the next attempts must not try again at once.
        self.next = self
            .max_bytes
            .max(self.older + (self.max_bytes / 8).max(STEP));
        if self.older <= enough {
            self.next = self.max_bytes;
        }
        Ok(())
    }
}

/// Returns the length of a file and its bytes on disk; zeros if there is no file.
fn size(path: &Path) -> (u64, u64) {
    let meta = state_dir::metadata(path);
    meta.map_or((0, 0), |meta| (meta.len(), meta.disk()))
}

fn stores_raw_lines(path: &Path) -> bool {
    let records = Records::open(path).into_iter().flatten();
    { records.take(SAMPLE) }.any(|record| record.is_ok_and(|record| record.kind == "raw"))
}

#[cfg(test)]
mod tests {
    use loop_state::Timestamp;

    use super::*;
    use crate::Record;

    static GO: AtomicBool = AtomicBool::new(false);

    /// Writes a transcript with this many records, each with a raw line.
    fn write(dir: &Path, iteration: u32, records: u32) {
        let path = list::path(dir, iteration, 1);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        let record = |n: u32, kind: &str, text| Record {
            at: Timestamp::from_millis(u64::from(iteration) * 1_000_000 + u64::from(n)),
            kind: kind.into(),
            text,
            omitted: 0,
        };
        let noise = |n: u32| {
            format!(
                "{:x}",
                u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
            )
        };
        let lines = (0..records).flat_map(|n| {
            let message = record(n, "message", format!("{} of {iteration}", noise(n)));
            [message, record(n, "raw", noise(n).repeat(3))]
        });
        let lines = lines.map(|it| serde_json::to_string(&it).unwrap() + "\n");
        fs_err::write(path, lines.collect::<String>()).unwrap();
    }

    /// Returns the names of the transcripts and the kinds of their records, by age.
    fn there(dir: &Path) -> Vec<String> {
        let all = sorted_by_age(transcripts(dir).unwrap());
        let line = |(.., path): &(u32, u32, PathBuf)| {
            let kinds = Records::open(path)
                .unwrap()
                .map(|record| record.unwrap().kind);
            let mut kinds: Vec<_> = kinds.collect();
            kinds.sort();
            kinds.dedup();
            let name = path.file_name().unwrap().to_string_lossy();
            format!("{name}: {}", kinds.join(", "))
        };
        all.iter().map(line).collect()
    }

    #[test]
    fn older_transcripts_are_compressed_if_it_saves_space() {
        let dir = tempfile::tempdir().unwrap();
        let mut room = TranscriptQuota::new(dir.path().into(), u64::MAX, false);
        for iteration in 1..=11 {
            write(dir.path(), iteration, if iteration == 2 { 1 } else { 400 });
            let due = room.register(iteration, 1);
            assert_eq!(due, [9, 11].contains(&iteration), "{iteration}");
            if due {
                let result = room.prune(&GO);
                assert!(result.error.is_none() && !result.reduced);
            }
        }
        let packed = |line: &String| line.contains(".zst");
        let there = there(dir.path());
        let compressed: Vec<_> = there.iter().filter(|line| packed(line)).collect();
        assert_eq!(compressed, [&there[0], &there[2]], "{there:?}");
        assert!(room.older > 0);
    }

    #[test]
    fn next_process_repairs_after_crash() {
        let dir = tempfile::tempdir().unwrap();
        for iteration in 1..=12 {
            write(dir.path(), iteration, 400);
        }
        let place = dir.path().join("transcripts");
        fs_err::write(place.join("1-1.ndjson.zst"), "half").unwrap();
        fs_err::write(place.join("2-1.ndjson.zst.0.part"), "half").unwrap();
        let mut room = TranscriptQuota::new(dir.path().into(), u64::MAX, true);
        write(dir.path(), 13, 1);
        assert!(room.register(13, 1));
        // If it is stopped at once, the next process does the work.
        room.prune(&AtomicBool::new(true));
        assert_eq!(room.to_compress.len(), 5);
        let result = room.prune(&GO);
        assert!(result.error.is_none(), "{:?}", result.error);
        assert!(!room.register(14, 1) || room.to_compress.len() == 1);
        let names = there(dir.path());
        assert_eq!(
            names
                .iter()
                .filter(|it| it.contains(".zst: message, raw"))
                .count(),
            5
        );
        assert_eq!(fs_err::read_dir(place).unwrap().count(), 13);
    }

    #[test]
    fn oldest_transcripts_lose_raw_lines_first_and_then_the_middle() {
        let dir = tempfile::tempdir().unwrap();
        for iteration in 1..=14 {
            write(dir.path(), iteration, 4000);
        }
        let tend = |most| {
            let mut room = TranscriptQuota::new(dir.path().into(), most, true);
            assert!(room.register(14, 1));
            let result = room.prune(&GO);
            assert!(result.error.is_none(), "{:?}", result.error);
            let is_again = room.register(15, 1) && room.to_compress.is_empty();
            assert!(!is_again, "no second reduction at once");
            (result.reduced, room.older)
        };
        let (reduced, all) = tend(u64::MAX);
        assert!(!reduced);
        let (reduced, less) = tend(all - 1);
        assert!(reduced && less < all && less > 0);
        let after_little = there(dir.path());
        assert!(tend(0).0);
        let after_all = there(dir.path());
        insta::assert_snapshot!(
            format!("{}\n\n{}", after_little[..7].join("\n"), after_all[..7].join("\n")),
            @r"
        1-1.ndjson.zst: message, reduced
        2-1.ndjson.zst: message, reduced
        3-1.ndjson.zst: message, reduced
        4-1.ndjson.zst: message, raw
        5-1.ndjson.zst: message, raw
        6-1.ndjson.zst: message, raw
        7-1.ndjson: message, raw

        1-1.ndjson.zst: message, reduced
        2-1.ndjson.zst: message, reduced
        3-1.ndjson.zst: message, reduced
        4-1.ndjson.zst: message, reduced
        5-1.ndjson.zst: message, reduced
        6-1.ndjson.zst: message, reduced
        7-1.ndjson: message, raw
        "
        );
        let middle = Records::open(&dir.path().join("transcripts/1-1.ndjson.zst")).unwrap();
        assert!(middle.count() < 2000);
    }
}
