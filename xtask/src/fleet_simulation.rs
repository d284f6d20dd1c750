//! Builds and runs the simulation of large fleets, a program of `rlm-crash`.

use crate::command::{self, Show};
use crate::tally::Tally;

/// The fleets to simulate, passed on unchanged.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The numbers of runs (default: 100 1000 10000), and `--seed N`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    let program = ["--bin", "fleet-simulation", "--"];
    let mut cargo = vec!["run", "--quiet", "--release", "-p", "rlm-crash"];
    cargo.extend(program);
    cargo.extend(arguments.arguments.iter().map(String::as_str));
    let ended = command::run("cargo", &cargo, Show::AsItComes);
    match ended.success {
        true => Tally::passed(1),
        false => {
            Tally::failed("fleet-simulation: a promise was broken, or the program did not run")
        }
    }
}
