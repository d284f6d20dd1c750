//! The disk usage of runs.

use serde::Serialize;

use crate::git::worktree;
use crate::{Project, RunId, state_dir, transcript};

/// The name of the file with the output of a detached run, and the prefix of its older parts.
const OUTPUT: &str = "output.log";
/// The largest number of files that are counted, in all worktrees together.
const MOST_FILES: usize = 200_000;

/// The bytes of disk that a run uses, as far as its files can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunDiskUsage {
    /// The bytes of its transcripts.
    pub transcripts: u64,
    /// The bytes of its output while it was detached.
    pub output: u64,
    /// The bytes of all other files, which a resume needs.
    pub state: u64,
}

/// The bytes of disk that the worktrees of runs use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorktreeDiskUsage {
    /// The number of worktrees.
    pub worktrees: usize,
    /// The bytes of the worktrees.
    pub bytes: u64,
    /// Whether there are more files than were counted.
    pub is_partial: bool,
}

impl RunDiskUsage {
    /// Returns the bytes of all files of the run.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.transcripts + self.output + self.state
    }
}

impl Project {
    /// Returns the bytes of disk that a run uses: blocks, not lengths. Follows no links.
    #[must_use]
    pub fn disk_usage(&self, run: &RunId) -> RunDiskUsage {
        let mut space = RunDiskUsage::default();
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

    /// Returns the disk usage of the runs' worktrees.
    #[must_use]
    pub fn worktree_disk_usage(&self) -> WorktreeDiskUsage {
        let trees = worktree::all(&self.state_dir());
        let mut left = MOST_FILES;
        WorktreeDiskUsage {
            worktrees: trees.len(),
            bytes: { trees.iter() }
                .map(|path| state_dir::disk_usage(path, &mut left))
                .sum(),
            is_partial: left == 0,
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
        let space = project.disk_usage(&run);
        assert!((50_000..70_000).contains(&space.transcripts), "{space:?}");
        assert!((40_000..60_000).contains(&space.output), "{space:?}");
        assert!((9000..40_000).contains(&space.state), "{space:?}");
        let sum = space.state + space.output + space.transcripts;
        assert_eq!(space.total(), sum);
        let tree = dir.path().join(".rlm/worktrees/w");
        fs_err::create_dir_all(&tree).unwrap();
        fs_err::write(tree.join("big"), vec![7; 100_000]).unwrap();
        let trees = project.worktree_disk_usage();
        assert!(trees.worktrees == 1 && trees.bytes >= 100_000 && !trees.is_partial);
    }
}
