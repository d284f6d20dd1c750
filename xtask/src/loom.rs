//! The tests that a model checker plays in every interleaving, with no bound on preemptions but one that is given.
//!
//! `cargo xtask test` runs them too, with a bound that takes seconds. They need no `--cfg loom`: what they check is compiled into the test by its path,
//! with loom's atomics in the place of the real ones, so that the crate's own dependencies, which know that name too, stay as they are.

use std::process::Command;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// More than a model has places: every interleaving, in seconds.
const ALL: u8 = 200;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Arguments {
    /// At how many places, at most, a thread is interrupted that could have gone on.
    #[arg(long, value_name = "N", default_value_t = ALL)]
    preemptions: u8,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { preemptions: ALL }
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: Arguments) -> Tally {
    let with_loom = workspace.packages.iter().filter(|package| {
        let mut dependencies = package.dependencies.iter();
        dependencies.any(|dependency| dependency.name == "loom")
    });
    let mut tally = Tally::default();
    for package in with_loom {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["test", "--quiet", "--all-features"])
            .args(["-p", &package.name, "--test", "loom"])
            .env("LOOM_MAX_PREEMPTIONS", arguments.preemptions.to_string());
        let ended = command::finish(&mut cargo, Show::AsItComes);
        tally += Tally::of_libtest(&ended.output).unwrap_or_default();
        if !ended.success && !tally.is_red() {
            tally += Tally::failed(format!("loom: {} did not run", package.name));
        }
    }
    match tally == Tally::default() {
        true => Tally::failed("loom: no test ran"),
        false => tally,
    }
}
