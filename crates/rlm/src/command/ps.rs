//! `rlm ps`

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use loop_runner::control::{Answer, Request, Standing, ask};
use loop_runner::{Project, RunId};

use crate::args::PsArgs;
use crate::command::live::is_live;
use crate::exit::{Code, Failure};
use crate::render::{Live, print};

/// How long a run may take to say how it stands.
const PATIENCE: Duration = Duration::from_secs(1);

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

/// What the process of the run says of it; `None` when it does not answer.
fn standing(project: &Project, run: &RunId) -> Option<Standing> {
    let mut answers = ask(&project.run_dir(run), &Request::Status).ok()?;
    match answers.next(PATIENCE) {
        Ok(Some(Answer::Status(standing))) => Some(*standing),
        _ => None,
    }
}
