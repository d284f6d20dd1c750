//! What earlier processes of a run left alive: found by the run's random marker, never by a name.

use std::time::Duration;

use agent_duplex::ProcessName;
use agent_subprocess::sweep;

use crate::{Project, RunId};

/// The environment variable that carries the marker: the run's random scope, the iteration and the attempt.
pub(crate) const MARKER: &str = "RLM_MARKER";

const SWEEP_BUDGET: Duration = Duration::from_secs(3);

/// What a sweep found and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) ended: Vec<ProcessName>,
    pub(crate) survivors: Vec<ProcessName>,
}

/// Ends every process that carries a marker of this scope.
pub(crate) async fn sweep(scope: String) -> Swept {
    tokio::task::spawn_blocking(move || {
        let found = sweep::find(MARKER, &scope);
        if found.is_empty() {
            return Swept::default();
        }
        let report = sweep::end(found, SWEEP_BUDGET);
        Swept {
            ended: names(report.ended),
            survivors: names(report.survivors),
        }
    })
    .await
    .expect("a sweep does not panic")
}

/// Returns the scope of a run without taking it.
pub(crate) fn scope_of(project: &Project, run: &RunId) -> Option<String> {
    project.run(run).ok()?.head.ok().map(|head| head.scope)
}

pub(crate) fn names(processes: Vec<agent_subprocess::ProcessName>) -> Vec<ProcessName> {
    processes
        .into_iter()
        .map(|p| ProcessName {
            pid: p.pid,
            name: p.name,
        })
        .collect()
}
