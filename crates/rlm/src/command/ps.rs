//! `rlm ps`: the runs that are at work, of this project or of the user.

use std::path::Path;
use std::process::ExitCode;

use rlm_store::{Project, RunEntry};

use crate::alive::LOOK;
use crate::alive::Life;
use crate::alive::is_live;
use crate::args::PsArgs;
use crate::exit::{Code, Failure};
use crate::hint::rlm;
use crate::index;
use crate::output;
use crate::render::{Live, json_line};

pub(crate) fn execute(directory: &Path, args: &PsArgs) -> Result<ExitCode, Failure> {
    let own = own(directory);
    let live = match args.all {
        // They are found from anywhere, also where no project can be.
        true => index::live(),
        false => own?,
    };
    if live.is_empty() && !args.json {
        let elsewhere = index::live().len();
        let hint = match elsewhere {
            0 => format!(
                "`{} status` shows all, `rlm run --help` how to start one",
                rlm()
            ),
            some => format!("{some} elsewhere: {} ps --all", rlm()),
        };
        anstream::eprintln!("no run of this project is live; {hint}");
        return Ok(Code::Done.into());
    }
    let now = jiff::Timestamp::now();
    let mut shown = live.iter().map(|(project, run)| {
        let holder = project.holder(&run.id);
        let life = Life::of(project, &run.id, LOOK);
        Live::of(project.root(), run, holder.as_ref(), &life, now)
    });
    if args.json {
        // Who has read enough is told no more.
        let _gone = shown.all(|live| output::line(&json_line(&live)));
        return Ok(Code::Done.into());
    }
    let shown: Vec<_> = shown.collect();
    let list = Live::list(&shown, args.all, rlm_terminal::columns());
    output::line(&list);
    Ok(Code::Done.into())
}

/// Returns the live runs of the project at `directory`.
fn own(directory: &Path) -> Result<Vec<(Project, RunEntry)>, Failure> {
    let here = Project::find(directory)?;
    let mut own = here.runs()?;
    own.retain(is_live);
    index::heal(&here, &own);
    Ok(own.into_iter().map(|run| (here.clone(), run)).collect())
}
