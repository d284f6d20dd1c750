//! Builds and runs the live checks, which are a program of `rlm-tests`.

use std::process::Command;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Which checks.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Only those whose names hold one of these, or whose agent's program is one of them [default: all].
    names: Vec<String>,
    /// Only one check an agent.
    #[arg(long)]
    quick: bool,
}

/// One check of each agent, with the programs that the stage `build` left.
pub(crate) fn quick(workspace: &Workspace) -> Tally {
    judged(Command::new(workspace.target.join("debug/live")).arg("--quick"))
}

/// Builds what the checks start, and runs them.
pub(crate) fn run(arguments: &Arguments) -> Tally {
    let built = command::run(
        "cargo",
        &["build", "--quiet", "-p", "rlm-tests", "--bins"],
        Show::OnFailure,
    );
    if !built.success {
        return Tally::failed("live: it does not build");
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
        tally += Tally::failed("live: it ended before its checks did");
    }
    tally
}
