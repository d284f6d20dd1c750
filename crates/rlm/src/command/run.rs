//! `rlm run`

use std::path::Path;
use std::process::ExitCode;

use loop_runner::{Project, RunId, Runner, WorkTree};

use crate::args::RunArgs;
use crate::exit::Failure;
use crate::render::{Beginning, Screen};
use crate::resolve::Resolved;
use crate::session::{Session, refuse_nested};
use crate::{config, resolve};

pub(crate) fn execute(directory: &Path, args: RunArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin()?;
    refuse_nested(args.nested)?;
    let screen = Screen::new(args.show.json);
    let directory = directory.to_owned();
    let (project, resolved, others) = session.prepare(move || {
        let project = Project::find(&directory)?;
        let config = config::read(project.root())?;
        let resolved = resolve::new_run(args, config, project.root(), project.directory())?;
        resolved.settings.validate()?;
        let runs = project.runs()?.into_iter();
        let others: Vec<RunId> = runs
            .filter(|run| run.is_resumable())
            .map(|run| run.id)
            .collect();
        Ok((project, resolved, others))
    })?;
    let run = new_id();
    let Resolved { settings, text } = resolved;
    let (runner, news) = session.block_on(async {
        let work_tree = WorkTree::take(&project, &run, &session.gate()).await?;
        let options = session.options();
        Runner::create(work_tree, settings, text, options).await
    })?;
    screen.begin(&Beginning::New { others }, &project, runner.head());
    session.carry_out(runner, news, screen)
}

/// Makes a name that sorts by time and that two runs of one second don't share.
fn new_id() -> RunId {
    let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{time}-{}", &random[..4])
        .parse()
        .expect("digits, letters and dashes make a name")
}
