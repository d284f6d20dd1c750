//! What a turn leaves in the working tree, however little it is.
//!
//! A list of what differs from the commit does not tell whether more was written to what differs already, and what stands in it may be much: sizes and
//! times of those files tell it as well.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rlm_store::git::Git;
use rlm_store::git::commit::entry_path;

use crate::runner::Runner;

/// How many files are looked at; of more, it is told that they are there.
const MOST: usize = 4096;
const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "-z",
    "--branch",
    "--untracked-files=normal",
];

impl Runner {
    /// Looks at the commit and at all that differs from it; nothing is known where git does not say, or a press comes first.
    pub(super) async fn footprint(&mut self) -> Option<u64> {
        let git = self.work_tree.project().git().clone();
        // A file system that hangs is left to its thread.
        let look = tokio::task::spawn_blocking(move || footprint(&git));
        tokio::select! {
            biased;
            seen = look => seen.ok()?,
            () = self.requests.end_wanted() => None,
        }
    }
}

/// Blocks.
fn footprint(git: &Git) -> Option<u64> {
    let (top, status) = (git.top()?, git.ask(STATUS)?);
    let mut hash = DefaultHasher::new();
    status.hash(&mut hash);
    let mut due: Vec<PathBuf> = status
        .split('\0')
        .filter_map(entry_path)
        .map(|it| top.join(it))
        .collect();
    for _ in 0..MOST {
        let Some(path) = due.pop() else {
            break;
        };
        // One that is gone differs by that.
        let Ok(meta) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        let (size, at) = (meta.size(), (meta.mtime(), meta.mtime_nsec()));
        (&path, size, at, meta.ino()).hash(&mut hash);
        if meta.is_dir() {
            let inside = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let mut inside: Vec<PathBuf> = inside.map(|entry| entry.path()).collect();
            inside.sort();
            due.append(&mut inside);
        }
    }
    Some(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_stands_behind_what_git_says_of_it() {
        for (entry, is) in [
            ("# branch.oid 01ab", None),
            ("1 .M N... 100644 100644 100644 a b a file", Some("a file")),
            ("2 R. N... 100644 100644 100644 a b R100 new", Some("new")),
            ("? a b", Some("a b")),
            ("", None),
        ] {
            assert_eq!(entry_path(entry), is);
        }
    }
}
