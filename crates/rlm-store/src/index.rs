//! The index of this user's live runs in all projects: a small file for each run in `$XDG_STATE_HOME/rlm/runs`. Beside it, `projects` has a small file
//! for each project that had a run, so that the ended runs of all projects can be found.
//!
//! A file is only a hint: the lock in the run's own directory decides whether the run is live. A reader removes the file that a killed process left.
//! The run writes a missing file again within a minute, and so does each listing of its project. If nothing can be written, a run is found only from
//! its project.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Project, RunEntry, RunId, in_parallel, state_dir};

/// The interval at which a run checks its file.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The largest size of an index file in bytes; `rlm` did not write a longer one.
const MOST: u64 = 64 << 10;
const VERSION: u32 = 1;
/// The largest number of projects in the index. Beyond it, the project with the oldest last run is removed.
const MAX_PROJECTS: usize = 200;

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
            file: directory("runs")?.join(format!("{}.json", key(project.root(), run))),
            text: serde_json::to_vec(&entry).ok()?,
        };
        place.ensure();
        // A failure is harmless: the project is then missing in a list of all projects.
        let _unwritten = remember(project.root());
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
fn write(file: &Path, text: &[u8]) -> io::Result<()> {
    make(file.parent().unwrap_or(file))?;
    state_dir::replace(file, text)
}

fn make(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)
}

/// Returns a directory for state of this user that belongs to no project, and creates it. Only the user can enter it.
///
/// # Errors
///
/// An error for a user without a home directory, or if the directory can't be created or belongs to another user.
pub fn private_directory(name: &str) -> io::Result<PathBuf> {
    let directory = directory(name).ok_or_else(|| io::Error::other("HOME is not set"))?;
    make(&directory)?;
    state_dir::make_private_directory(&directory)?;
    Ok(directory)
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
    let live = in_parallel(&files("runs"), |file| read(file)).into_iter();
    let mut live: Vec<_> = live.flatten().collect();
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
    // If the project can't be read now, its run may still be live.
    let project = match Project::at(&entry.project) {
        Ok(project) => project,
        Err(_) if entry.project.exists() => return None,
        Err(_) => return forget(file),
    };
    match project.run(&entry.run) {
        Ok(run) if run.is_live() => Some((project, run)),
        Err(e) if !e.is_not_found() => None,
        _ => forget(file),
    }
}

/// Removes the file of a run that is not live.
fn forget(file: &Path) -> Option<(Project, RunEntry)> {
    let _gone = state_dir::remove_file(file);
    None
}

/// Returns the JSON files of a part of the index.
fn files(part: &str) -> Vec<PathBuf> {
    let entries = directory(part).and_then(|it| state_dir::entries(&it).ok());
    let mut files = entries.unwrap_or_default();
    files.retain(|file| file.extension().is_some_and(|it| it == "json"));
    files
}

/// Returns the JSON files of a part of the index, the newest first.
fn by_age(part: &str) -> Vec<PathBuf> {
    let mut files = files(part);
    files.sort_by_cached_key(|file| {
        let modified = state_dir::metadata(file).map(|it| it.modified());
        (std::cmp::Reverse(modified.ok()), file.clone())
    });
    files
}

/// The content of the file of a project.
#[derive(Debug, Serialize, Deserialize)]
struct KnownProject {
    v: u32,
    /// The top of the project, which has the state.
    project: PathBuf,
}

/// Writes the file of a project, so that its time is the time of the last run, and removes the oldest files beyond the limit.
fn remember(project: &Path) -> io::Result<()> {
    let directory = directory("projects").ok_or(io::ErrorKind::NotFound)?;
    let file = directory.join(format!("{:016x}.json", hash(project)));
    let is_new = !state_dir::is_file(&file);
    let known = KnownProject {
        v: VERSION,
        project: project.to_owned(),
    };
    write(&file, &serde_json::to_vec(&known)?)?;
    if is_new {
        for oldest in by_age("projects").into_iter().skip(MAX_PROJECTS) {
            state_dir::remove_file(&oldest)?;
        }
    }
    Ok(())
}

/// Returns the tops of the projects that had a run of this user, the project with the newest run first. A project can be gone or moved meanwhile.
#[must_use]
pub fn projects() -> Vec<PathBuf> {
    let read = |file: &PathBuf| {
        let text = state_dir::read(file, MOST).ok()?;
        let known: KnownProject = serde_json::from_slice(&text).ok()?;
        (known.v == VERSION).then_some(known.project)
    };
    by_age("projects").iter().filter_map(read).collect()
}

/// Returns the directory of a part of the index; `None` for a user without a home directory.
fn directory(part: &str) -> Option<PathBuf> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join(crate::program_name()).join(part))
}

/// Returns a name that is unique among all projects: the run and a hash of the project's path, because two projects may have runs of the same name.
#[must_use]
pub fn key(project: &Path, run: &RunId) -> String {
    format!("{run}-{:016x}", hash(project))
}

fn hash(project: &Path) -> u64 {
    // FNV-1a: any hash works that is the same in every version of this program.
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = project.as_os_str().as_encoded_bytes().iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, hash)
}
