//! `rlm ps`

use std::path::Path;
use std::process::ExitCode;

use loop_runner::Project;

use crate::args::PsArgs;
use crate::command::live::{is_live, standing};
use crate::exit::{Code, Failure};
use crate::render::{Live, print};

pub(crate) fn execute(directory: &Path, args: &PsArgs) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let mut live = project.runs()?;
    live.retain(is_live);
    if live.is_empty() && !args.json {
        anstream::eprintln!("no run of this project is live; `rlm status` shows all");
    }
    for run in &live {
        let holder = project.holder(&run.id);
        let standing = standing(&project, &run.id);
        let now = jiff::Timestamp::now();
        if !print(args.json, &Live::of(run, holder.as_ref(), standing, now)) {
            break;
        }
    }
    Ok(Code::Done.into())
}
