//! Finds and ends processes that earlier processes of a run left alive, by the run's random marker, never by a name.

use std::io;
use std::path::{Path, PathBuf};

use agent_duplex::ProcessName;
use agent_subprocess::sweep::{self, SweepReport};
use loop_state::times;

use crate::processes::names;
use crate::state_dir::{self, Identity};
use crate::{Project, RunId};

/// The file in the run's directory in which a guard reports the survivors after the death of the run's process.
pub const REPORT: &str = "survivors";

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepResult {
    /// The ended processes.
    pub ended: Vec<ProcessName>,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
}

/// Ends every process with a marker of this scope.
pub async fn sweep(scope: String) -> SweepResult {
    tokio::task::spawn_blocking(move || {
        let found = sweep::find(crate::marker_variable(), &scope);
        if found.is_empty() {
            return SweepResult::default();
        }
        let report = sweep::end(found, times::SWEEP);
        SweepResult {
            ended: names(report.ended),
            survivors: names(report.survivors),
        }
    })
    .await
    .expect("a sweep does not panic")
}

/// Takes the report that a guard wrote after the death of the run's process. The sweep then searches for the processes that the guard could not end.
pub fn take_guard_report(project: &Project, run: &RunId) -> io::Result<SweepResult> {
    let path = project.run_dir(run).join(REPORT);
    match state_dir::open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(SweepResult::default()),
        opened => drop(opened?),
    }
    let report = SweepReport::read(&path)?;
    // If the report stays, it is reported again, which is harmless.
    let _reported_again = state_dir::remove_file(&path);
    Ok(SweepResult {
        ended: names(report.ended),
        survivors: Vec::new(),
    })
}

/// Removes the private files of agents whose process died, such as prompts and secrets.
pub fn remove_scratch(project: &Project, run: &RunId) {
    // Most runs have none; if the removal fails, the files stay private.
    let _none_or_stays = state_dir::remove_tree(&scratch(project, run));
}

/// Returns the directory of the private files of a run's agents.
pub fn scratch(project: &Project, run: &RunId) -> PathBuf {
    project.run_dir(run).join("scratch")
}

/// Returns the scope of a run's processes in this working tree. A copy of the working tree contains the same run, which may be live.
pub fn scope_in(tree: &Path, scope: &str) -> String {
    // A moved directory keeps its identity.
    match Identity::at(tree) {
        Ok(root) => format!("{scope}-{:x}-{:x}", root.device, root.inode),
        Err(_) => scope.to_owned(),
    }
}

/// Returns the scope of a run's processes, without locking the run.
pub fn scope_of(project: &Project, run: &RunId) -> Option<String> {
    let head = project.run(run).ok()?.head.ok()?;
    Some(scope_in(head.tree(project.root()), &head.scope))
}
