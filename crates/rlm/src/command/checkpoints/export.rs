//! `rlm checkpoints export`: where the archive goes, be it a file or a pipe.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rlm_store::Project;
use rlm_store::moving::{ExportOptions, Meter, To};

use super::pipes::{Piped, Shown, named};
use crate::args::ExportArgs;
use crate::exit::{Code, Failure};
use crate::render::{Export, print};
use crate::session::Session;

pub(super) fn execute(directory: &Path, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let (project, run) = (Project::find(directory)?.in_root(), args.run.parse()?);
    let is_printed = args.output.as_deref() == Some(Path::new("-"));
    let default = || format!("rlm-{run}.tar.zst").into();
    let file = named(directory, &args.output.clone().unwrap_or_else(default));
    if is_printed && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "an archive is nothing for a terminal: give -o FILE, or a pipe",
        ));
    }
    let gate = session.gate();
    let to = match is_printed {
        true => To::Stream(Box::new(Piped::output(&gate)?)),
        false => To::File(file.clone()),
    };
    let how = ExportOptions {
        copy: args.copy,
        allow_dirty: args.allow_dirty,
        state_only: args.state_only,
        again: args.force,
    };
    let exported = session.carry_through(async {
        let meter = Meter::default();
        let _shown = Shown::new("exporting", meter.clone());
        project.export(&run, to, how, &gate, meter).await
    })?;
    let file: Option<PathBuf> = (!is_printed).then_some(file);
    let export = Export::of(&exported, file.as_deref());
    match is_printed {
        // What was asked for is there already.
        true => anstream::eprintln!("{export}"),
        false => {
            print(args.json, &export);
        }
    }
    Ok(Code::Done.into())
}
