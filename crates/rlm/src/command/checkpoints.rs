//! `rlm checkpoints`

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use checkpoint_store::Seq;
use loop_runner::{Place, Project, RunEntry};

use crate::args::{CheckpointsCommand, ManyArgs, ShowArgs};
use crate::exit::{Code, Failure};
use crate::render::{self, List, Shown, Verified};

pub(crate) fn execute(directory: &Path, what: &CheckpointsCommand) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    match what {
        CheckpointsCommand::List(args) => list(&project, args),
        CheckpointsCommand::Show(args) => show(&project, args),
        CheckpointsCommand::Verify(args) => verify(&project, args),
    }
}

fn chosen(project: &Project, args: &ManyArgs) -> Result<Vec<RunEntry>, Failure> {
    let runs = match &args.run {
        Some(name) => vec![project.run(&name.parse()?)?],
        None => project.runs()?,
    };
    if runs.is_empty() {
        return Err(Failure::not_found(
            "no run here yet; `rlm run --help` shows how to start one",
        ));
    }
    Ok(runs)
}

fn list(project: &Project, args: &ManyArgs) -> Result<ExitCode, Failure> {
    let (mut damaged, commit) = (false, project.head_commit());
    let runs = chosen(project, args)?;
    for run in &runs {
        let list = List::of(project, run, commit.as_deref(), jiff::Timestamp::now());
        damaged |= list.is_damaged();
        if !print(args.json, &list) {
            break;
        }
    }
    Ok(verdict(damaged && args.run.is_some()))
}

fn show(project: &Project, args: &ShowArgs) -> Result<ExitCode, Failure> {
    let place = match (args.at, args.save) {
        (Some(iteration), _) => Place::Iteration(iteration),
        (None, Some(save)) => Place::Save(Seq::new(save)),
        (None, None) => Place::Newest,
    };
    let state = project.state_at(&args.run.parse()?, place)?;
    let shown = Shown::of(&state, jiff::Timestamp::now());
    print(args.json, &shown);
    Ok(Code::Done.into())
}

fn verify(project: &Project, args: &ManyArgs) -> Result<ExitCode, Failure> {
    let mut damaged = false;
    for run in &chosen(project, args)? {
        let verified = Verified::of(project, run);
        damaged |= !verified.is_sound();
        if !print(args.json, &verified) {
            break;
        }
    }
    Ok(verdict(damaged))
}

fn verdict(damaged: bool) -> ExitCode {
    match damaged {
        true => Code::Failed.into(),
        false => Code::Done.into(),
    }
}

/// Prints one thing, and returns whether anybody still reads.
fn print<T: serde::Serialize + std::fmt::Display>(json: bool, what: &T) -> bool {
    let text = match json {
        true => render::json_line(what),
        false => what.to_string(),
    };
    writeln!(anstream::stdout().lock(), "{text}").is_ok()
}
