//! `rlm completions`: prints a script for a shell, made of the command line's own description.

use std::process::ExitCode;

use clap::{Command, CommandFactory};

use crate::args::{Args, CompletionsArgs};
use crate::command::written;
use crate::exit::Failure;

pub(crate) fn execute(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "rlm", &mut script);
    Ok(written(&script))
}

/// Returns the command line without what is hidden, which a generator would show.
pub(crate) fn visible() -> Command {
    let whole = Args::command();
    let shown = whole.get_subcommands().filter(|it| !it.is_hide_set());
    let mut command = Command::new("rlm")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(shown.cloned())
        .disable_help_subcommand(true);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        command = command.after_help(after.clone());
    }
    command.subcommand_required(true)
}
