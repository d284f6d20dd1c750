//! `rlm status`

use std::path::Path;
use std::process::ExitCode;

use loop_runner::{Project, RunState};

use crate::args::ManyArgs;
use crate::command::live::standing;
use crate::command::{alive, chosen};
use crate::exit::{Code, Failure};
use crate::render::{Status, print};

pub(crate) fn execute(directory: &Path, args: &ManyArgs) -> Result<ExitCode, Failure> {
    let mut damaged = false;
    let (project, runs) = chosen(Project::find(directory)?, args)?;
    if let ([run], true) = (runs.as_slice(), args.alive) {
        return alive::execute(&project, run);
    }
    for run in &runs {
        damaged |= run.head.is_err();
        let works = run.state == RunState::Running;
        let standing = works.then(|| standing(&project, &run.id)).flatten();
        let held_for = standing.and_then(|standing| standing.held_for);
        let status = Status::of(run, held_for, jiff::Timestamp::now());
        if !print(args.json, &status) {
            break;
        }
    }
    Ok(Code::of_state(damaged && args.run.is_some()).into())
}
