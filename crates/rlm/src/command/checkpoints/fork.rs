//! `rlm checkpoints fork`: from which run and iteration the new one begins.

use std::path::Path;
use std::process::ExitCode;

use rlm_store::Project;
use rlm_store::moving::ForkPoint;

use crate::args::ForkArgs;
use crate::command::meant;
use crate::command::run::new_id;
use crate::exit::{Code, Failure};
use crate::render::{Fork, print};
use crate::session::Session;

pub(super) fn execute(directory: &Path, args: &ForkArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let (project, parent) = meant::of_any_project(Project::find(directory)?, &args.run)?;
    let project = project.in_root();
    let point = ForkPoint {
        iteration: args.at,
        phase: args.phase.clone(),
        run: args.run_id.clone().unwrap_or_else(new_id),
    };
    let gate = session.gate();
    let forked = session.carry_through(project.fork(&parent.id, point, &gate))?;
    print(args.json, &Fork::of(&forked));
    Ok(Code::Done.into())
}
