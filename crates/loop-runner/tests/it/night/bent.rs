//! Nights in which something does not work that has to: who plays them must notice.

use std::path::Path;

/// What is bent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bent {
    #[default]
    Nothing,
    /// A crash takes back what was saved.
    Store,
    /// The run's clock stands still while the machine is suspended.
    Clock,
    /// The run hears of every gate that it passed.
    Gates,
    /// A resume goes on by the rules that the run began with.
    Rules,
}

/// The files of a store as they were once.
#[derive(Debug, Default)]
pub(crate) struct Copy(Vec<(std::ffi::OsString, Vec<u8>)>);

impl Copy {
    pub(crate) fn of(dir: &Path) -> Self {
        let there = files(dir).map(|path| {
            let bytes = fs_err::read(&path).unwrap();
            (path.file_name().unwrap().to_owned(), bytes)
        });
        Self(there.collect())
    }

    /// Puts them back, and nothing else.
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
    // The lock is of nobody's memory.
    paths.filter(|path| path.is_file() && !path.ends_with("LOCK"))
}
