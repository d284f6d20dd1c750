//! `rlm checkpoints`: the three that only look are here, those that make or move a run have a file each.

mod export;
mod fork;
mod import;
mod pipes;

use std::path::Path;
use std::process::ExitCode;

use checkpoint_store::Seq;
use rlm_store::{Place, Project};

use crate::args::{CheckpointsCommand, ManyArgs, ShowArgs};
use crate::command::meant;
use crate::exit::{Code, Failure};
use crate::render::{List, Shown, Verified, print};
use crate::session::refuse_inside;

pub(crate) fn execute(directory: &Path, what: &CheckpointsCommand) -> Result<ExitCode, Failure> {
    let project = || Project::find(directory);
    match what {
        CheckpointsCommand::List(args) => list(project()?, args),
        CheckpointsCommand::Show(args) => show(&project()?, args),
        CheckpointsCommand::Verify(args) => verify(project()?, args),
        CheckpointsCommand::Fork(args) => {
            refuse_inside("checkpoints fork", args.nested)?;
            fork::execute(directory, args)
        }
        CheckpointsCommand::Export(args) => {
            refuse_inside("checkpoints export", args.nested)?;
            export::execute(directory, args)
        }
        CheckpointsCommand::Import(args) => {
            refuse_inside("checkpoints import", args.nested)?;
            import::execute(directory, args)
        }
    }
}

fn list(here: Project, args: &ManyArgs) -> Result<ExitCode, Failure> {
    let (project, runs) = meant::named_or_all(here, args)?;
    let (mut damaged, commit) = (false, project.head_commit());
    for run in &runs {
        let list = List::of(&project, run, commit.as_deref(), jiff::Timestamp::now());
        damaged |= list.is_damaged();
        if !print(args.json, &list) {
            break;
        }
    }
    Ok(Code::of_state(damaged && args.run.is_some()).into())
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

fn verify(here: Project, args: &ManyArgs) -> Result<ExitCode, Failure> {
    let mut damaged = false;
    let (project, runs) = meant::named_or_all(here, args)?;
    for run in &runs {
        let verified = Verified::of(&project, run);
        damaged |= !verified.is_sound();
        if !print(args.json, &verified) {
            break;
        }
    }
    Ok(Code::of_state(damaged).into())
}
