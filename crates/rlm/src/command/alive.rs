//! `rlm status RUN --alive`: the liveness probe.

use std::process::ExitCode;
use std::time::Duration;

use rlm_store::Project;
use rlm_store::RunEntry;

use crate::alive::{Life, is_live};
use crate::exit::{Code, Failure};
use crate::output;

/// How long a run may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Asks the process that has the run whether its loop turns.
pub(crate) fn execute(project: &Project, run: &RunEntry) -> Result<ExitCode, Failure> {
    let id = &run.id;
    let dead = |why: &str| Failure::failed(format!("run `{id}` {why}"));
    if !is_live(run) {
        return Err(dead("is not alive: no process has it"));
    }
    if let Some(trouble) = Life::of(project, id, PATIENCE).trouble() {
        return Err(dead(&trouble));
    }
    output::line(&format!("run {id} is alive"));
    Ok(Code::Done.into())
}
