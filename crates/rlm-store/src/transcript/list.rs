//! The transcripts of a run, their paths, and the record of transcripts that were removed on purpose.
//!
//! Without this record, the last iteration of a run with damaged state would be unknown, and its log would be empty without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use loop_state::{Head, Timestamp};
use serde::{Deserialize, Serialize};

use crate::state_dir;

/// The directory of a run's transcripts.
pub const FOLDER: &str = "transcripts";
/// The suffix of a compressed transcript.
const PACKED: &str = "ndjson.zst";
const PLAIN: &str = "ndjson";
/// The suffix of a file that is being written.
pub(super) const PART: &str = "part";

/// Returns the path of an attempt's uncompressed transcript.
pub fn path(run_dir: &Path, iteration: u32, attempt: u32) -> PathBuf {
    run_dir
        .join(FOLDER)
        .join(format!("{iteration}-{attempt}.{PLAIN}"))
}

/// Returns the path of the same transcript after compression.
pub(crate) fn packed(plain: &Path) -> PathBuf {
    plain.with_extension(PACKED)
}

/// Returns the path of the same transcript before compression.
pub(crate) fn unpacked(packed: &Path) -> PathBuf {
    packed.with_extension("")
}

/// Returns whether a transcript is compressed, by its name.
pub(crate) fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "zst")
}

/// Lists the transcripts in a run's directory with the numbers of their iteration and attempt, in that order: one per attempt, compressed or not.
///
/// # Errors
///
/// An error if the directory can't be read. If it doesn't exist, the list is empty.
pub fn transcripts(run_dir: &Path) -> io::Result<Vec<(u32, u32, PathBuf)>> {
    let entries = state_dir::entries_if_any(&run_dir.join(FOLDER))?;
    let mut found = BTreeMap::new();
    for path in entries {
        let Some(numbers) = numbers(&path) else {
            continue;
        };
        // If both forms exist, the plain one counts: its compression was interrupted.
        if !is_packed(&path) || !found.contains_key(&numbers) {
            found.insert(numbers, path);
        }
    }
    let flat = |((iteration, attempt), path)| (iteration, attempt, path);
    Ok(found.into_iter().map(flat).collect())
}

/// Lists every transcript file in a run's directory: both forms after an interrupted compression, and unfinished files.
pub(crate) fn files(run_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = state_dir::entries_if_any(&run_dir.join(FOLDER))?;
    let is_ours =
        |path: &PathBuf| numbers(path).is_some() || path.extension().is_some_and(|it| it == PART);
    Ok(entries.into_iter().filter(is_ours).collect())
}

fn numbers(path: &Path) -> Option<(u32, u32)> {
    let (stem, extension) = path.file_name()?.to_str()?.split_once('.')?;
    let (iteration, attempt) = stem.split_once('-')?;
    let is_ours = extension == PLAIN || extension == PACKED;
    is_ours.then_some((iteration.parse().ok()?, attempt.parse().ok()?))
}

/// The file with the record of removed transcripts.
const REMOVED: &str = "removed.json";
/// The largest size of that file in bytes: it has room for 100,000 attempts. `rlm` did not write a longer one.
const MOST_REMOVED: u64 = 4 << 20;

/// Transcripts that were removed on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedTranscripts {
    /// The time of the last removal.
    pub at: Timestamp,
    /// The program that removed them.
    pub by: String,
    /// The iterations and attempts of the removed transcripts.
    pub attempts: BTreeSet<(u32, u32)>,
}

impl RemovedTranscripts {
    /// Records a removal before it happens.
    pub(crate) fn note(run_dir: &Path, at: Timestamp, by: &str) -> std::io::Result<()> {
        let there = transcripts(run_dir)?.into_iter();
        let there = there.map(|(iteration, attempt, _)| (iteration, attempt));
        let before = read_removed(run_dir).map(|before| before.attempts);
        let this = Self {
            at,
            by: by.to_owned(),
            attempts: before.into_iter().flatten().chain(there).collect(),
        };
        let text = serde_json::to_vec(&this).map_err(std::io::Error::other)?;
        state_dir::replace(&removed_path(run_dir), &text)
    }
}

/// Returns the removed transcripts of a run that are still missing, if there are any.
#[must_use]
pub fn removed_transcripts(run_dir: &Path) -> Option<RemovedTranscripts> {
    let mut this = read_removed(run_dir)?;
    for (iteration, attempt, _) in transcripts(run_dir).unwrap_or_default() {
        this.attempts.remove(&(iteration, attempt));
    }
    (!this.attempts.is_empty()).then_some(this)
}

/// Returns the iterations and attempts that have transcripts but are not in the run's saved state, as after damage.
pub fn unknown(run_dir: &Path, saved: &Head) -> Vec<(u32, u32)> {
    let all = transcripts(run_dir).unwrap_or_default();
    let present = (saved.iteration, saved.attempt);
    let is_newer = |(iteration, attempt): &(u32, u32)| {
        let is_later = *attempt >= saved.first_attempt && (*iteration, *attempt) > present;
        is_later || *attempt > saved.highest_attempt
    };
    let numbers = all
        .into_iter()
        .map(|(iteration, attempt, _)| (iteration, attempt));
    let removed = removed_transcripts(run_dir).map(|it| it.attempts);
    let numbers = numbers.chain(removed.into_iter().flatten());
    numbers.filter(is_newer).collect()
}

fn removed_path(run_dir: &Path) -> PathBuf {
    run_dir.join(FOLDER).join(REMOVED)
}

/// Reads the record; an unreadable one counts as none.
fn read_removed(run_dir: &Path) -> Option<RemovedTranscripts> {
    let text = state_dir::read(&removed_path(run_dir), MOST_REMOVED).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_is_listed_once_and_other_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("transcripts");
        fs_err::create_dir(&place).unwrap();
        for name in [
            "10-12.ndjson",
            "2-3.ndjson.zst",
            "2-3.ndjson",
            "1-2.ndjson.zst",
            "1-1.ndjson.zst.7f.part",
            "notes.ndjson",
            "1-1.txt",
        ] {
            fs_err::write(place.join(name), "").unwrap();
        }
        let all = transcripts(dir.path()).unwrap();
        let names = all
            .iter()
            .map(|(.., path)| path.file_name().unwrap().to_str().unwrap());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["1-2.ndjson.zst", "2-3.ndjson", "10-12.ndjson"]
        );
        for (iteration, attempt, path) in all {
            let plain = super::path(dir.path(), iteration, attempt);
            let other = match is_packed(&path) {
                true => (unpacked(&path), packed(&plain)),
                false => (path.clone(), path.clone()),
            };
            assert_eq!(other, (plain, path));
        }
    }

    #[test]
    fn removed_transcripts_are_known_until_recreated() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("transcripts");
        fs_err::create_dir(&place).unwrap();
        assert_eq!(removed_transcripts(dir.path()), None);
        for (at, name) in [(1, "1-1.ndjson"), (2, "2-1.ndjson.zst")] {
            fs_err::write(place.join(name), "").unwrap();
            RemovedTranscripts::note(dir.path(), Timestamp::from_millis(at), "me").unwrap();
            fs_err::remove_file(place.join(name)).unwrap();
        }
        fs_err::write(place.join("2-1.ndjson"), "").unwrap();
        let removed = removed_transcripts(dir.path()).unwrap();
        assert_eq!(
            (removed.at, removed.by.as_str()),
            (Timestamp::from_millis(2), "me")
        );
        assert_eq!(removed.attempts, BTreeSet::from([(1, 1)]));
        let written = fs_err::read_to_string(place.join(REMOVED)).unwrap();
        assert_eq!(written, r#"{"at":2,"by":"me","attempts":[[1,1],[2,1]]}"#);
        fs_err::write(place.join(REMOVED), "{").unwrap();
        assert_eq!(removed_transcripts(dir.path()), None);
    }
}
