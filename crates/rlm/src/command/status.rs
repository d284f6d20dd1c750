//! `rlm status`: where runs stand, whether they live or not.

use std::path::Path;
use std::process::ExitCode;

use rlm_store::Project;

use crate::alive::Life;
use crate::alive::is_live;
use crate::args::ManyArgs;
use crate::command::alive::{self};
use crate::command::meant;
use crate::exit::{Code, Failure};
use crate::hint::rlm;
use crate::output;
use crate::render::{Status, print};

pub(crate) fn execute(directory: &Path, args: &ManyArgs) -> Result<ExitCode, Failure> {
    let mut damaged = false;
    let (project, runs) = meant::named_or_all(Project::find(directory)?, args)?;
    if let ([run], true) = (runs.as_slice(), args.alive) {
        return alive::execute(&project, run);
    }
    let now = jiff::Timestamp::now();
    let shown = runs.iter().map(|run| {
        damaged |= run.head.is_err() || run.loss.is_some();
        let life = is_live(run).then(|| Life::of(&project, &run.id, crate::alive::LOOK));
        Status::of(run, life.as_ref(), now)
    });
    if runs.len() > 1 && !args.json {
        let shown: Vec<_> = shown.collect();
        let list = Status::list(&shown, rlm_terminal::columns());
        output::line(&list);
        anstream::eprintln!("`{} status RUN` tells all of one", rlm());
    } else {
        let _gone = { shown }.find(|status| !print(args.json, status));
    }
    Ok(Code::of_state(damaged && args.run.is_some()).into())
}
