//! `rlm status`

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use loop_runner::Project;

use crate::args::StatusArgs;
use crate::exit::{Code, Failure};
use crate::render::{self, Status};

pub(crate) fn execute(directory: &Path, args: &StatusArgs) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let runs = match &args.run {
        Some(name) => vec![project.run(&name.parse()?)?],
        None => project.runs()?,
    };
    if runs.is_empty() {
        return Err(Failure::not_found(
            "no run here yet; `rlm run --help` shows how to start one",
        ));
    }
    let mut out = anstream::stdout().lock();
    let mut damaged = false;
    for run in &runs {
        damaged |= run.head.is_err();
        let status = Status::of(run, jiff::Timestamp::now());
        let text = if args.json {
            render::json_line(&status)
        } else {
            status.to_string()
        };
        if writeln!(out, "{text}").is_err() {
            break;
        }
    }
    Ok(if damaged && args.run.is_some() {
        Code::Failed
    } else {
        Code::Done
    }
    .into())
}
