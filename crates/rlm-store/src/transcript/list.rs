//! Which transcripts a run has, and where they lie.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::state_dir;

/// The directory of a run that holds its transcripts.
pub const FOLDER: &str = "transcripts";
/// What the name of a transcript ends with that was compressed.
const PACKED: &str = "ndjson.zst";
const PLAIN: &str = "ndjson";
/// The suffix of a file that is being written.
pub(super) const PART: &str = "part";

/// Returns the path of an attempt's transcript as it is written.
pub fn path(run_dir: &Path, iteration: u32, attempt: u32) -> PathBuf {
    run_dir
        .join(FOLDER)
        .join(format!("{iteration}-{attempt}.{PLAIN}"))
}

/// Returns where the same transcript lies once it is compressed.
pub(crate) fn packed(plain: &Path) -> PathBuf {
    plain.with_extension(PACKED)
}

/// Returns where the same transcript lies as long as it is not compressed.
pub(crate) fn unpacked(packed: &Path) -> PathBuf {
    packed.with_extension("")
}

/// Returns whether a transcript is compressed, by its name.
pub(crate) fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "zst")
}

/// Lists the transcripts in a run's directory with the numbers of their iteration and attempt, in that order: one an attempt, compressed or not.
///
/// # Errors
///
/// When the directory can't be read. That there is none is an empty list.
pub fn transcripts(run_dir: &Path) -> io::Result<Vec<(u32, u32, PathBuf)>> {
    let entries = state_dir::entries_if_any(&run_dir.join(FOLDER))?;
    let mut found = BTreeMap::new();
    for path in entries {
        let Some(numbers) = numbers(&path) else {
            continue;
        };
        // Of both the plain one counts: compressing it was cut.
        if !is_packed(&path) || !found.contains_key(&numbers) {
            found.insert(numbers, path);
        }
    }
    let flat = |((iteration, attempt), path)| (iteration, attempt, path);
    Ok(found.into_iter().map(flat).collect())
}

/// Lists every file of transcripts in a run's directory: both forms of one whose compressing was cut, and what was begun.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_listed_once_and_what_is_none_is_not() {
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
}
