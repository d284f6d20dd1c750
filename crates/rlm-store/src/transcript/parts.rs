//! Transcripts as parts of bytes, so that another machine can have a copy of them while they grow.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::list::{self, FOLDER, transcripts};
use super::records::sorted_by_age;
use super::window::Source;
use crate::state_dir;

/// The iteration and the attempt of a transcript.
type Numbers = (u32, u32);

/// Bytes of one transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptPart {
    /// The iteration of the attempt.
    pub iteration: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The position of the first byte in the uncompressed transcript.
    pub position: u64,
    /// The bytes. A part can begin and end within a line.
    pub bytes: Vec<u8>,
}

impl TranscriptPart {
    fn numbers(&self) -> Numbers {
        (self.iteration, self.attempt)
    }

    fn end(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}

/// The transcripts of a live run that are not copied yet.
#[derive(Debug)]
pub struct UncopiedTranscripts {
    run_dir: PathBuf,
    /// How many bytes of each transcript are copied.
    copied: BTreeMap<Numbers, u64>,
    /// The transcripts that may have more, the oldest first. A run writes only its newest transcript.
    open: VecDeque<Numbers>,
}

impl UncopiedTranscripts {
    /// Creates it for the transcripts in a run's directory; nothing is copied yet.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Self {
        Self {
            run_dir,
            copied: BTreeMap::new(),
            open: VecDeque::new(),
        }
    }

    /// Looks for new transcripts. Blocks.
    ///
    /// # Errors
    ///
    /// An error if the directory can't be read.
    pub fn refresh(&mut self) -> io::Result<()> {
        let mut all = transcripts(&self.run_dir)?;
        all.retain(|(iteration, attempt, _)| !self.copied.contains_key(&(*iteration, *attempt)));
        for (iteration, attempt, _) in sorted_by_age(all) {
            self.copied.insert((iteration, attempt), 0);
            self.open.push_back((iteration, attempt));
        }
        Ok(())
    }

    /// Looks for new transcripts, and for more text in all. Call it when no process writes any more. Blocks.
    ///
    /// # Errors
    ///
    /// An error if the directory can't be read.
    pub fn refresh_all(&mut self) -> io::Result<()> {
        self.refresh()?;
        self.open = self.copied.keys().copied().collect();
        Ok(())
    }

    /// Reads the next part, of at most `most` bytes; `None` if everything is copied that the transcripts had at the last refresh. Begins at the same
    /// position until the part is [`copied`](Self::copied). Blocks.
    ///
    /// # Errors
    ///
    /// An error if a transcript can't be read.
    pub fn next_part(&mut self, most: usize) -> io::Result<Option<TranscriptPart>> {
        while let Some(numbers) = self.open.front().copied() {
            let (iteration, attempt) = numbers;
            let position = self.copied.get(&numbers).copied().unwrap_or_default();
            let path = list::path(&self.run_dir, iteration, attempt);
            let bytes = match Source::open(&path) {
                Ok(transcript) => transcript.from(position, most as u64)?,
                // Somebody removed it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(e) => return Err(e),
            };
            if !bytes.is_empty() {
                return Ok(Some(TranscriptPart {
                    iteration,
                    attempt,
                    position,
                    bytes,
                }));
            }
            if self.open.len() == 1 {
                break;
            }
            self.open.pop_front();
        }
        Ok(None)
    }

    /// Records that a part is copied.
    pub fn copied(&mut self, part: &TranscriptPart) {
        self.copied.insert(part.numbers(), part.end());
    }
}

/// The bytes that have arrived of transcripts that another machine sends in parts. Parts can be repeated, and overlap.
#[derive(Debug, Default)]
pub struct ArrivedParts {
    /// The epoch of the claim that wrote each transcript, and the position after its last byte.
    ends: BTreeMap<Numbers, (u64, u64)>,
    omitted: u64,
}

/// The new bytes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBytes<'a> {
    /// The bytes, not empty.
    pub bytes: &'a [u8],
    /// Whether they are the first of their transcript. If some have arrived before, the transcript begins again.
    pub begins: bool,
}

impl ArrivedParts {
    /// Returns what is new in a part; `None` if nothing is. `epoch` is that of the claim whose worker sent the part: an attempt that two claims began
    /// belongs to the newer one. If the beginning of a transcript is missing, the first whole line begins it. Ignores a later gap, and what follows it.
    pub fn add<'a>(&mut self, epoch: u64, part: &'a TranscriptPart) -> Option<NewBytes<'a>> {
        let known = self.ends.get(&part.numbers()).copied();
        let (bytes, begins) = match known {
            Some((newest, _)) if newest > epoch => return None,
            Some((newest, end)) if newest == epoch => {
                let known = usize::try_from(end.saturating_sub(part.position)).ok()?;
                let is_after_gap = part.position > end;
                (part.bytes.get(known..).filter(|_| !is_after_gap)?, false)
            }
            _ if part.position == 0 => (part.bytes.as_slice(), true),
            _ => {
                let begun = memchr::memchr(b'\n', &part.bytes)? + 1;
                self.omitted += part.position + begun as u64;
                (&part.bytes[begun..], true)
            }
        };
        if bytes.is_empty() {
            return None;
        }
        self.ends.insert(part.numbers(), (epoch, part.end()));
        Some(NewBytes { bytes, begins })
    }

    /// Returns the number of bytes that are missing at the beginnings of transcripts.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.omitted
    }
}

/// A copy of transcripts in a run's directory, made from parts.
#[derive(Debug)]
pub struct TranscriptCopy {
    run_dir: PathBuf,
    arrived: ArrivedParts,
}

impl TranscriptCopy {
    /// Creates a copy in a run's directory, in which no process works on the run.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Self {
        let arrived = ArrivedParts::default();
        Self { run_dir, arrived }
    }

    /// Writes what is [new](ArrivedParts::add) in a part. Blocks.
    ///
    /// # Errors
    ///
    /// An error if a file can't be written.
    pub fn add(&mut self, epoch: u64, part: &TranscriptPart) -> io::Result<()> {
        let Some(new) = self.arrived.add(epoch, part) else {
            return Ok(());
        };
        let path = list::path(&self.run_dir, part.iteration, part.attempt);
        state_dir::make_private_directory(&self.run_dir.join(FOLDER))?;
        if new.begins && state_dir::metadata(&path).is_ok() {
            state_dir::remove_file(&path)?;
        }
        state_dir::append(&path)?.write_all(new.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// Appends to a transcript, as the process of a run does.
    fn write(dir: &Path, numbers: Numbers, text: &[u8]) {
        fs_err::create_dir_all(dir.join(FOLDER)).unwrap();
        let path = list::path(dir, numbers.0, numbers.1);
        state_dir::append(&path).unwrap().write_all(text).unwrap();
    }

    fn text(dir: &Path, numbers: Numbers) -> String {
        let path = list::path(dir, numbers.0, numbers.1);
        fs_err::read_to_string(path).unwrap_or_default()
    }

    fn line(at: u64) -> String {
        format!("{{\"at\":{at},\"kind\":\"note\",\"text\":\"\"}}\n")
    }

    fn part(position: u64, bytes: &str) -> TranscriptPart {
        TranscriptPart {
            iteration: 1,
            attempt: 1,
            position,
            bytes: bytes.into(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Each step writes to the newest transcript or begins another one, and then copies some parts. The server keeps parts, and repeats some.
        #[test]
        fn copy_of_growing_transcripts_is_complete(
            steps in proptest::collection::vec((any::<bool>(), 0u64..5, 0usize..4), 1..30),
            most in 1usize..100,
            repeat in 1usize..5,
        ) {
            let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let mut uncopied = UncopiedTranscripts::new(from.path().into());
            let mut sent = Vec::new();
            let mut numbers = (1, 1);
            for (at, (begins, lines, parts)) in steps.into_iter().enumerate() {
                if begins {
                    // The next phase counts from 1.
                    numbers = (numbers.0 % 4 + 1, numbers.1 + 1);
                }
                for _ in 0..lines {
                    write(from.path(), numbers, line(at as u64).as_bytes());
                }
                uncopied.refresh().unwrap();
                for _ in 0..parts {
                    let Some(part) = uncopied.next_part(most).unwrap() else { break };
                    prop_assert!(part.bytes.len() <= most);
                    uncopied.copied(&part);
                    sent.push(part);
                }
            }
            uncopied.refresh_all().unwrap();
            while let Some(part) = uncopied.next_part(most).unwrap() {
                uncopied.copied(&part);
                sent.push(part);
            }
            let mut copy = TranscriptCopy::new(to.path().into());
            for (index, part) in sent.iter().enumerate() {
                copy.add(1, part).unwrap();
                copy.add(1, &sent[index / repeat * repeat]).unwrap();
            }
            prop_assert_eq!(copy.arrived.omitted(), 0);
            let all = transcripts(from.path()).unwrap();
            prop_assert_eq!(all.len(), transcripts(to.path()).unwrap().len());
            for (iteration, attempt, _) in all {
                let numbers = (iteration, attempt);
                prop_assert_eq!(text(from.path(), numbers), text(to.path(), numbers));
            }
        }
    }

    #[test]
    fn transcript_without_its_beginning_begins_with_a_line() {
        let to = tempfile::tempdir().unwrap();
        let mut copy = TranscriptCopy::new(to.path().into());
        copy.add(1, &part(10, "half a line")).unwrap();
        copy.add(1, &part(21, " ends\nnext")).unwrap();
        copy.add(1, &part(31, " line\n")).unwrap();
        assert_eq!(text(to.path(), (1, 1)), "next line\n");
        assert_eq!(copy.arrived.omitted(), 27);
        // Text after a gap can't be shown.
        copy.add(1, &part(50, "lost\n")).unwrap();
        copy.add(1, &part(31, " line\nlast\n")).unwrap();
        assert_eq!(text(to.path(), (1, 1)), "next line\nlast\n");
    }

    #[test]
    fn attempt_that_two_claims_began_belongs_to_the_newer_one() {
        let to = tempfile::tempdir().unwrap();
        let mut copy = TranscriptCopy::new(to.path().into());
        copy.add(3, &part(0, "of the lost claim\n")).unwrap();
        copy.add(4, &part(0, "of the next\n")).unwrap();
        copy.add(3, &part(18, "more\n")).unwrap();
        copy.add(4, &part(12, "claim\n")).unwrap();
        assert_eq!(text(to.path(), (1, 1)), "of the next\nclaim\n");
    }
}
