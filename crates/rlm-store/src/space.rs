//! What runs take of the disk.

use serde::Serialize;

use crate::git::tree;
use crate::{Project, RunId, state_dir, transcript};

/// What a detached run printed.
const OUTPUT: &str = "output.log";
/// How many files of working trees are looked at, all together.
const MOST_FILES: usize = 200_000;

/// How many bytes of disk a run takes, as far as its files can be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Space {
    /// Its transcripts.
    pub transcripts: u64,
    /// What it printed in the background.
    pub output: u64,
    /// All else: what it can be resumed from.
    pub state: u64,
}

/// How many bytes of disk the working trees of runs take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSpace {
    /// How many there are.
    pub trees: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Whether there are more files than were looked at.
    pub is_more: bool,
}

impl Space {
    /// Returns all of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.transcripts + self.output + self.state
    }
}

impl Project {
    /// Returns how many bytes of disk a run takes: blocks, not lengths. Follows no links.
    #[must_use]
    pub fn space(&self, run: &RunId) -> Space {
        let mut space = Space::default();
        let dir = self.run_dir(run);
        space.state += state_dir::metadata(&dir).map_or(0, |meta| meta.disk());
        for path in state_dir::entries(&dir).unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str());
            let of = match name {
                Some(transcript::FOLDER) => &mut space.transcripts,
                Some(name) if name.starts_with(OUTPUT) => &mut space.output,
                _ => &mut space.state,
            };
            *of += state_dir::disk_usage(&path, &mut MOST_FILES.clone());
        }
        space
    }

    /// Returns what the runs' own working trees take.
    #[must_use]
    pub fn tree_space(&self) -> TreeSpace {
        let trees = tree::all(&self.state_dir());
        let mut left = MOST_FILES;
        TreeSpace {
            trees: trees.len(),
            bytes: { trees.iter() }
                .map(|path| state_dir::disk_usage(path, &mut left))
                .sum(),
            is_more: left == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s20e_the_space_of_a_run_is_measured_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let run: RunId = "r1".parse().unwrap();
        let place = project.run_dir(&run);
        fs_err::create_dir_all(place.join(transcript::FOLDER)).unwrap();
        let write = |name: &str, bytes| fs_err::write(place.join(name), vec![7; bytes]).unwrap();
        write("transcripts/1-1.ndjson", 50_000);
        write("output.log", 20_000);
        write("output.log.1", 20_000);
        write("journal", 9000);
        std::os::unix::fs::symlink(dir.path(), place.join("link")).unwrap();
        let space = project.space(&run);
        assert!((50_000..70_000).contains(&space.transcripts), "{space:?}");
        assert!((40_000..60_000).contains(&space.output), "{space:?}");
        assert!((9000..40_000).contains(&space.state), "{space:?}");
        let sum = space.state + space.output + space.transcripts;
        assert_eq!(space.total(), sum);
        let tree = dir.path().join(".rlm/worktrees/w");
        fs_err::create_dir_all(&tree).unwrap();
        fs_err::write(tree.join("big"), vec![7; 100_000]).unwrap();
        let trees = project.tree_space();
        assert!(trees.trees == 1 && trees.bytes >= 100_000 && !trees.is_more);
    }
}
