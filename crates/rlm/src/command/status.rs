//! `rlm status`

use std::path::Path;
use std::process::ExitCode;

use loop_runner::Project;

use crate::args::ManyArgs;
use crate::command::chosen;
use crate::exit::{Code, Failure};
use crate::render::{Status, print};

pub(crate) fn execute(directory: &Path, args: &ManyArgs) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let mut damaged = false;
    for run in &chosen(&project, args)? {
        damaged |= run.head.is_err();
        if !print(args.json, &Status::of(run, jiff::Timestamp::now())) {
            break;
        }
    }
    Ok(Code::of_state(damaged && args.run.is_some()).into())
}
