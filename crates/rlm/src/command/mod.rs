//! One file a command, and the few functions with which several of them begin or end.

pub(crate) mod alive;
pub(crate) mod attach;
pub(crate) mod checkpoints;
pub(crate) mod clean;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod over;
pub(crate) mod ps;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod status;
pub(crate) mod stop;

use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;

use loop_runner::{Project, RunEntry};

use crate::args::ManyArgs;
use crate::exit::{Code, Failure};

/// Finds the runs that are meant: the named one, which may be a live one of another project, or all of this one, of which there must be one.
fn chosen(here: Project, args: &ManyArgs) -> Result<(Project, Vec<RunEntry>), Failure> {
    let Some(name) = &args.run else {
        let runs = here.runs()?;
        return match runs.is_empty() {
            true => Err(no_run_yet()),
            false => Ok((here, runs)),
        };
    };
    let (project, run) = live::of_any_project(here, name)?;
    Ok((project, vec![run]))
}

/// Finds the run that is meant: the named one, which may be a live one of another project, or the newest of this one.
fn named_or_newest(directory: &Path, name: Option<&str>) -> Result<(Project, RunEntry), Failure> {
    let here = Project::find(directory)?;
    match name {
        Some(name) => live::of_any_project(here, name),
        None => {
            let newest = here.runs()?.pop().ok_or_else(no_run_yet)?;
            Ok((here, newest))
        }
    }
}

fn no_run_yet() -> Failure {
    Failure::not_found(
        "no run here yet; start one: rlm run -p 'what to do', or see it work first: rlm demo",
    )
}

/// Prints what was made for another program, which may have read enough of it.
fn written(text: &[u8]) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "standard output takes nothing: {e}"
        ))),
        _ => Ok(Code::Done.into()),
    }
}
