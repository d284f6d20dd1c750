//! What is known of transcripts that were removed on purpose: that they were there.
//!
//! Without it a run whose state is damaged would not know any more how far it had come, and its log would be empty without a word.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use loop_state::{Head, Timestamp};
use serde::{Deserialize, Serialize};

use super::list::{FOLDER, transcripts};
use crate::state_dir;

/// The file that says so, beside those that are left.
const NAME: &str = "removed.json";
/// A file of more bytes is none of ours; it has room for 100,000 attempts.
const MOST: u64 = 4 << 20;

/// Transcripts that were removed on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// When, the last time.
    pub at: Timestamp,
    /// What removed them.
    pub by: String,
    /// The iterations and attempts that they were of.
    pub attempts: BTreeSet<(u32, u32)>,
}

impl Removed {
    /// Writes down what is about to be removed, before it is.
    pub(crate) fn note(run_dir: &Path, at: Timestamp, by: &str) -> std::io::Result<()> {
        let there = transcripts(run_dir)?.into_iter();
        let there = there.map(|(iteration, attempt, _)| (iteration, attempt));
        let before = read(run_dir).map(|before| before.attempts);
        let this = Self {
            at,
            by: by.to_owned(),
            attempts: before.into_iter().flatten().chain(there).collect(),
        };
        let text = serde_json::to_vec(&this).map_err(std::io::Error::other)?;
        state_dir::replace(&path(run_dir), &text)
    }
}

/// Returns which transcripts of a run were removed on purpose and are not there, if any were.
#[must_use]
pub fn removed_transcripts(run_dir: &Path) -> Option<Removed> {
    let mut this = read(run_dir)?;
    for (iteration, attempt, _) in transcripts(run_dir).unwrap_or_default() {
        this.attempts.remove(&(iteration, attempt));
    }
    (!this.attempts.is_empty()).then_some(this)
}

/// Returns the iterations and attempts that have transcripts and that a run's saved state does not know of, as after a damage.
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

fn path(run_dir: &Path) -> PathBuf {
    run_dir.join(FOLDER).join(NAME)
}

/// Reads it; what can't be read says nothing.
fn read(run_dir: &Path) -> Option<Removed> {
    let text = state_dir::read(&path(run_dir), MOST).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_is_known_as_long_as_it_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("transcripts");
        fs_err::create_dir(&place).unwrap();
        assert_eq!(removed_transcripts(dir.path()), None);
        for (at, name) in [(1, "1-1.ndjson"), (2, "2-1.ndjson.zst")] {
            fs_err::write(place.join(name), "").unwrap();
            Removed::note(dir.path(), Timestamp(at), "me").unwrap();
            fs_err::remove_file(place.join(name)).unwrap();
        }
        fs_err::write(place.join("2-1.ndjson"), "").unwrap();
        let removed = removed_transcripts(dir.path()).unwrap();
        assert_eq!((removed.at, removed.by.as_str()), (Timestamp(2), "me"));
        assert_eq!(removed.attempts, BTreeSet::from([(1, 1)]));
        let written = fs_err::read_to_string(place.join(NAME)).unwrap();
        assert_eq!(written, r#"{"at":2,"by":"me","attempts":[[1,1],[2,1]]}"#);
        fs_err::write(place.join(NAME), "{").unwrap();
        assert_eq!(removed_transcripts(dir.path()), None);
    }
}
