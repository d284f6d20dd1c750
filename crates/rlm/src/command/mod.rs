//! One file a command.

pub(crate) mod checkpoints;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod init;
mod live;
pub(crate) mod logs;
pub(crate) mod ps;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod stop;

use loop_runner::{Project, RunEntry};

use crate::args::ManyArgs;
use crate::exit::Failure;

/// Finds the runs that are meant: the named one, or all of the project, of which there must be one.
fn chosen(project: &Project, args: &ManyArgs) -> Result<Vec<RunEntry>, Failure> {
    let runs = match &args.run {
        Some(name) => vec![project.run(&name.parse()?)?],
        None => project.runs()?,
    };
    match runs.is_empty() {
        true => Err(no_run_yet()),
        false => Ok(runs),
    }
}

fn no_run_yet() -> Failure {
    Failure::not_found("no run here yet; `rlm run --help` shows how to start one")
}
