//! One file a command.

pub(crate) mod checkpoints;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod init;
mod live;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod ps;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod status;
pub(crate) mod stop;

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use loop_runner::{Project, RunEntry};

use crate::args::ManyArgs;
use crate::exit::{Code, Failure};

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

/// Prints what was made for another program, which may have read enough of it.
fn written(text: &[u8]) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure {
            code: Code::Failed,
            message: format!("standard output takes nothing: {e}"),
        }),
        _ => Ok(Code::Done.into()),
    }
}
