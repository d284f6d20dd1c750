//! `rlm checkpoints import`: where the archive comes from, be it a file or a pipe.

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use rlm_store::Project;
use rlm_store::moving::{ImportOptions, Imported, Meter};

use super::pipes::{Piped, Shown, named};
use crate::args::ImportArgs;
use crate::command::run::new_id;
use crate::config::{self, Layers};
use crate::exit::{Code, Failure};
use crate::programs;
use crate::render::{Import, print};
use crate::session::Session;
use crate::watchers::Watchers;

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
    let shown = session.prepare(move || Ok(show(project, &imported)))?;
    print(args.json, &shown);
    Ok(Code::Done.into())
}

/// Shows the run with all that a resume of it would start, and what else the `rlm.toml` names that came with it.
fn show(project: Project, imported: &Imported) -> Import {
    let settings = &imported.head.settings;
    let place = match &settings.worktree {
        Some(own) => project.in_worktree(own).unwrap_or(project),
        None => project,
    };
    let layers =
        Layers::read(place.root()).and_then(|layers| layers.with_environment(config::variable));
    let (layers, unread) = match layers {
        Ok(layers) => (layers, None),
        Err(why) => (Layers::default(), Some(why.message)),
    };
    let watchers = Watchers::of(&layers.run(), place.root(), place.directory());
    let starts = programs::all(settings, &watchers);
    let mut of_file = programs::of_project(&layers, &[], &place);
    of_file.retain(|program| !starts.contains(program));
    Import::of(imported, starts, of_file, unread)
}
