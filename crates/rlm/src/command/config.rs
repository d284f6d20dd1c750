//! `rlm config`: shows the settings with their sources, and the schema for editors.

use std::path::Path;
use std::process::ExitCode;

use rlm_store::Project;

use crate::args::{ConfigCommand, ShowConfigArgs};
use crate::config::{self, Layers};
use crate::exit::{Code, Failure};
use crate::output;
use crate::programs;
use crate::render::{self, Configuration};

pub(crate) fn execute(directory: &Path, what: &ConfigCommand) -> Result<ExitCode, Failure> {
    match what {
        ConfigCommand::Show(args) => show(directory, args),
        ConfigCommand::Schema => {
            output::line(
                &serde_json::to_string_pretty(&config::schema())
                    .expect("a schema converts to JSON"),
            );
            Ok(Code::Done.into())
        }
    }
}

fn show(directory: &Path, args: &ShowConfigArgs) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let layers = Layers::read(project.root())?.with_environment(config::variable)?;
    let layers = layers.with_flags(&args.run)?;
    let words = &args.run.agent_command;
    let starts = programs::of_layers(&layers, words, &project);
    let shown = Configuration::of(&layers, words, &project, args.explain).with_programs(starts);
    let _gone = match args.run.show.json {
        true => output::line(&render::json_line(&shown.json())),
        false => output::line(shown.to_string().trim_end()),
    };
    Ok(Code::Done.into())
}
