//! `rlm completions`: prints a script for a shell, made of the command line's own description.

use std::process::ExitCode;

use crate::args::{CompletionsArgs, visible};
use crate::command::written;
use crate::exit::Failure;

pub(crate) fn execute(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "rlm", &mut script);
    Ok(written(&script))
}
