//! Nights with a deliberate defect, which the judge must detect.

use std::path::Path;

/// The defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Defect {
    #[default]
    Nothing,
    /// A crash loses the last saves.
    Store,
    /// The run's clock stops while the machine is suspended.
    Clock,
    /// The run gets "passed" from every required check.
    RequiredChecks,
    /// A resume uses the original rules of the run instead of the saved ones.
    Rules,
}

/// A copy of a store's files.
#[derive(Debug, Default)]
pub(crate) struct StoreCopy(Vec<(std::ffi::OsString, Vec<u8>)>);

impl StoreCopy {
    pub(crate) fn of(dir: &Path) -> Self {
        let there = files(dir).map(|path| {
            let bytes = fs_err::read(&path).unwrap();
            (path.file_name().unwrap().to_owned(), bytes)
        });
        Self(there.collect())
    }

    /// Restores the files, and removes all others.
    pub(crate) fn restore(&self, dir: &Path) {
        for path in files(dir) {
            fs_err::remove_file(path).unwrap();
        }
        for (name, bytes) in &self.0 {
            fs_err::write(dir.join(name), bytes).unwrap();
        }
    }
}

fn files(dir: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    // The lock file has no state.
    paths.filter(|path| path.is_file() && !path.ends_with("LOCK"))
}
