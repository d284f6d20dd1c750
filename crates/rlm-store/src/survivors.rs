//! What earlier processes of a run left alive: found by the run's random marker, never by a name.

use std::io;
use std::path::{Path, PathBuf};

use agent_duplex::ProcessName;
use agent_subprocess::sweep::{self, SweepReport};
use loop_state::times;

use crate::processes::{MARKER, names};
use crate::state_dir::{self, Identity};
use crate::{Project, RunId};

/// The file in the run's directory to which a guard writes what it found after the death of the run's process.
pub const REPORT: &str = "survivors";

/// What a sweep found and what became of it.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// What was ended.
    pub ended: Vec<ProcessName>,
    /// What could not be ended.
    pub survivors: Vec<ProcessName>,
}

/// Ends every process that carries a marker of this scope.
pub async fn sweep(scope: String) -> Swept {
    tokio::task::spawn_blocking(move || {
        let found = sweep::find(MARKER, &scope);
        if found.is_empty() {
            return Swept::default();
        }
        let report = sweep::end(found, times::SWEEP);
        Swept {
            ended: names(report.ended),
            survivors: names(report.survivors),
        }
    })
    .await
    .expect("a sweep does not panic")
}

/// Takes what a guard wrote down after the death of the run's process. Those that could not be ended then are looked for by the sweep.
pub fn take_report(project: &Project, run: &RunId) -> io::Result<Swept> {
    let path = project.run_dir(run).join(REPORT);
    match state_dir::open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Swept::default()),
        opened => drop(opened?),
    }
    let report = SweepReport::read(&path)?;
    // A report that stays is told once more, no worse.
    let _told_again = state_dir::remove_file(&path);
    Ok(Swept {
        ended: names(report.ended),
        survivors: Vec::new(),
    })
}

/// Removes the private files of agents whose process died with them, such as prompts and secrets.
pub fn remove_scratch(project: &Project, run: &RunId) {
    // Most runs have none; what can't be removed is as private as before.
    let _none_or_stays = state_dir::remove_tree(&scratch(project, run));
}

/// Returns where the private files of a run's agents lie.
pub fn scratch(project: &Project, run: &RunId) -> PathBuf {
    project.run_dir(run).join("scratch")
}

/// Returns the scope of a run's processes in this working tree. A copy of the tree has the run too, and may be at work on it.
pub fn scope_in(tree: &Path, scope: &str) -> String {
    // Moved, it is the same directory.
    match Identity::at(tree) {
        Ok(root) => format!("{scope}-{:x}-{:x}", root.device, root.inode),
        Err(_) => scope.to_owned(),
    }
}

/// Returns the scope of a run's processes without taking it.
pub fn scope_of(project: &Project, run: &RunId) -> Option<String> {
    let head = project.run(run).ok()?.head.ok()?;
    Some(scope_in(head.tree(project.root()), &head.scope))
}
