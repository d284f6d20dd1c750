//! The index of this user's live runs in all projects: a small file for each run in `$XDG_STATE_HOME/rlm/runs`.
//!
//! A file is only a hint: the lock in the run's own directory decides whether the run is live. A reader removes the file that a killed process left.
//! The run writes a missing file again within a minute, and so does each listing of its project. If nothing can be written, a run is found only from
//! its project.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Project, RunEntry, RunId, state_dir};

/// The interval at which a run checks its file.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The largest size of an index file in bytes; `rlm` did not write a longer one.
const MOST: u64 = 64 << 10;
const VERSION: u32 = 1;

/// The content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    v: u32,
    /// The top of the project, which has the state.
    project: PathBuf,
    run: RunId,
}

/// The entry of a live run in the index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    file: PathBuf,
    text: Vec<u8>,
}

impl IndexEntry {
    /// Adds an entry for a run of this process, or for another live run without an entry.
    #[must_use]
    pub fn of(project: &Project, run: &RunId) -> Option<Self> {
        let entry = Entry {
            v: VERSION,
            project: project.root().to_owned(),
            run: run.clone(),
        };
        let place = Self {
            file: directory()?.join(name(project.root(), run)),
            text: serde_json::to_vec(&entry).ok()?,
        };
        place.ensure();
        Some(place)
    }

    /// Writes the file again if somebody removed it.
    pub fn ensure(&self) {
        if !state_dir::is_file(&self.file) {
            // A failure is harmless: the run is found from its project, and the next call tries again.
            let _unwritten = write(&self.file, &self.text);
        }
    }

    /// Removes the entry.
    pub fn leave(self) {
        let _gone = state_dir::remove_file(&self.file);
    }
}

/// Writes the whole file or nothing, readable only for its user.
fn write(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let directory = file.parent().unwrap_or(file);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    state_dir::replace(file, text)
}

/// Adds missing entries for the live runs of a project, for example after somebody emptied the index.
pub fn repair(project: &Project, live: &[RunEntry]) {
    for run in live {
        let _place = IndexEntry::of(project, &run.id);
    }
}

/// Returns the live runs of all projects, by project and name. Removes the files of runs that are not live.
#[must_use]
pub fn live() -> Vec<(Project, RunEntry)> {
    let Some(directory) = directory() else {
        return Vec::new();
    };
    let files = state_dir::entries(&directory)
        .unwrap_or_default()
        .into_iter();
    let files = files.filter(|file| file.extension().is_some_and(|it| it == "json"));
    let mut live: Vec<_> = files.filter_map(|file| read(&file)).collect();
    live.sort_by(|a, b| (a.0.root(), &a.1.id).cmp(&(b.0.root(), &b.1.id)));
    live
}

/// Returns the live runs with this name in other projects.
#[must_use]
pub fn find(run: &RunId) -> Vec<(Project, RunEntry)> {
    let mut live = live();
    live.retain(|(_, entry)| entry.id == *run);
    live
}

/// Returns the live run of a file; removes the file if there is none.
fn read(file: &Path) -> Option<(Project, RunEntry)> {
    let text = state_dir::read(file, MOST).ok()?;
    let entry: Option<Entry> = serde_json::from_slice(&text).ok();
    // A newer version removes its own files.
    let entry = entry.filter(|entry| entry.v == VERSION)?;
    let found = Project::find(&entry.project)
        .ok()
        .map(Project::in_project_tree);
    let found = found.and_then(|project| Some((project.run(&entry.run).ok()?, project)));
    match found.filter(|(run, _)| run.is_live()) {
        Some((run, project)) => Some((project, run)),
        None => {
            let _gone = state_dir::remove_file(file);
            None
        }
    }
}

/// Returns the directory of the index; `None` for a user without a home directory.
fn directory() -> Option<PathBuf> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join(crate::program_name()).join("runs"))
}

/// Returns the name of the file. It has a hash of the project's path, because two projects may have runs of the same name.
fn name(project: &Path, run: &RunId) -> String {
    // FNV-1a: any hash works that is the same in every version of this program.
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = project.as_os_str().as_encoded_bytes().iter();
    let place = bytes.fold(0xcbf2_9ce4_8422_2325, hash);
    format!("{run}-{place:016x}.json")
}
