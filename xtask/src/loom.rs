//! Runs the tests that a model checker executes in every interleaving, without a limit on preemptions unless an option sets one.
//!
//! `ci` omits them, because compiling the model checker takes longer than all tests of the crate. The tests have a cfg name of their own: a test
//! includes the checked source file by its path and replaces the atomics by loom's. With `--cfg loom`, some dependencies of the crate would change too.

use std::process::Command;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Selects the tests and their dependency on the model checker.
pub(crate) const FLAGS: (&str, &str) = ("RUSTFLAGS", "--cfg interrupt_stack_loom");

/// More preemptions than any model can have, so that loom tries all interleavings. This takes seconds.
const ALL: u8 = 200;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Arguments {
    /// Limit on the number of preemptions of a thread that could have continued
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
            .env(FLAGS.0, FLAGS.1)
            .env("LOOM_MAX_PREEMPTIONS", arguments.preemptions.to_string());
        let ended = command::finish(&mut cargo, Show::AsItComes);
        tally += Tally::of_libtest(&ended.output).unwrap_or_default();
        if !ended.success && !tally.is_red() {
            tally += Tally::failed(format!("loom: failed to run {}", package.name));
        }
    }
    match tally == Tally::default() {
        true => Tally::failed("loom: no test ran"),
        false => tally,
    }
}
