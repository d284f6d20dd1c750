//! `rlm checkpoints import`: where the archive comes from, be it a file or a pipe.

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use loop_runner::Project;
use loop_runner::moving::{ImportOptions, Meter};

use super::pipes::{Piped, Shown, named};
use crate::args::ImportArgs;
use crate::command::run::new_id;
use crate::exit::{Code, Failure};
use crate::render::{Import, print};
use crate::session::Session;

pub(super) fn execute(directory: &Path, args: &ImportArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let project = Project::find(directory)?.in_root();
    let gate = session.gate();
    let is_piped = args.file == Path::new("-");
    if is_piped && std::io::stdin().is_terminal() {
        return Err(Failure::usage("nothing comes from a terminal: name a file"));
    }
    let (from, name): (Box<dyn Read + Send>, _) = match is_piped {
        true => (Box::new(Piped::input(&gate)?), "standard input".into()),
        false => {
            let file = named(directory, &args.file);
            // Opening a pipe waits for who writes to it.
            let opened = (file.clone(), gate.clone());
            let piped = session.prepare(move || Piped::file(&opened.0, &opened.1))?;
            (Box::new(piped), file)
        }
    };
    let how = ImportOptions {
        run: args.run_id.clone(),
        fresh: new_id(),
    };
    let imported = session.carry_through(async {
        let meter = Meter::default();
        let _shown = Shown::new("importing", meter.clone());
        project.import(from, &name, how, &gate, meter).await
    })?;
    print(args.json, &Import::of(&imported));
    Ok(Code::Done.into())
}
