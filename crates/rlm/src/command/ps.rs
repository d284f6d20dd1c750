//! `rlm ps`

use std::path::Path;
use std::process::ExitCode;

use loop_runner::Project;

use crate::args::PsArgs;
use crate::command::live::{is_live, standing};
use crate::exit::{Code, Failure};
use crate::index;
use crate::render::{Live, print, rlm};

pub(crate) fn execute(directory: &Path, args: &PsArgs) -> Result<ExitCode, Failure> {
    let here = Project::find(directory)?;
    let mut own = here.runs()?;
    own.retain(is_live);
    index::heal(&here, &own);
    let live: Vec<_> = match args.all {
        true => index::live(),
        false => own.into_iter().map(|run| (here.clone(), run)).collect(),
    };
    if live.is_empty() && !args.json {
        let elsewhere = index::live().len();
        let hint = match elsewhere {
            0 => format!("`{} status` shows all", rlm()),
            some => format!("{some} elsewhere: {} ps --all", rlm()),
        };
        anstream::eprintln!("no run of this project is live; {hint}");
    }
    for (project, run) in &live {
        let holder = project.holder(&run.id);
        let standing = standing(project, &run.id);
        let now = jiff::Timestamp::now();
        let mut shown = Live::of(project.root(), run, holder.as_ref(), standing, now);
        if args.all {
            shown = shown.with_project();
        }
        if !print(args.json, &shown) {
            break;
        }
    }
    Ok(Code::Done.into())
}
