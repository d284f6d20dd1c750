//! Builds and runs the live checks, a program of `rlm-tests`.

use std::process::Command;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The live checks to run.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Run only checks whose names contain one of these, or whose agent's program is one of them [default: all]
    names: Vec<String>,
    /// Run only one check per agent
    #[arg(long)]
    quick: bool,
}

/// Runs one check per agent, with the programs that the stage `build` built.
pub(crate) fn quick(workspace: &Workspace) -> Tally {
    judged(Command::new(workspace.target.join("debug/live")).arg("--quick"))
}

/// Builds the programs that the checks start, and runs the checks.
pub(crate) fn run(arguments: &Arguments) -> Tally {
    let built = command::run(
        "cargo",
        &["build", "--quiet", "-p", "rlm-tests", "--bins"],
        Show::OnFailure,
    );
    if !built.success {
        return Tally::failed("live: the build failed");
    }
    let mut words = vec!["run", "--quiet", "-p", "rlm-tests", "--bin", "live", "--"];
    words.extend(arguments.quick.then_some("--quick"));
    words.extend(arguments.names.iter().map(String::as_str));
    judged(Command::new("cargo").args(words))
}

fn judged(checks: &mut Command) -> Tally {
    let ended = command::finish(checks, Show::WithoutSkips);
    let mut tally = Tally::of_live(&ended.output);
    if !ended.success && !tally.is_red() {
        tally += Tally::failed("live: exited before the checks ended");
    }
    tally
}
