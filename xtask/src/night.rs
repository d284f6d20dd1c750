//! Plays simulated nights of a run, which is a test of `loop-runner`, more of them than its suite does.

use std::process::Command;

use crate::command::{self, Show};
use crate::tally::Tally;

/// Which nights.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many, from seed 0 on.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// This one only, as a failure names it.
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Also runs ten thousand iterations of a trivial agent, which takes minutes.
    #[arg(long)]
    long: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    let seeds = match arguments.seed {
        Some(seed) => ("RLM_NIGHT_SEED", seed.to_string()),
        None => ("RLM_NIGHT_SEEDS", arguments.seeds.to_string()),
    };
    let mut tally = test("loop-runner", "it", "night::", seeds);
    if arguments.long {
        let count = ("RLM_ITERATIONS", "10000".to_owned());
        tally += test("rlm-tests", "e2e", "nights::x116", count);
    }
    tally
}

/// Runs tests that are told by a variable how much they do, and shows what they print.
fn test(package: &str, binary: &str, names: &str, (name, value): (&str, String)) -> Tally {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["test", "--quiet", "-p", package])
        .args(["--test", binary, names, "--", "--nocapture"])
        .env(name, value);
    let ended = command::finish(&mut cargo, Show::AsItComes);
    let tally = Tally::of_libtest(&ended.output).unwrap_or_default();
    match ended.success {
        true if tally.passed == 0 => Tally::failed(format!(
            "night: {package} has no test of that name: {names}"
        )),
        true => tally,
        false => Tally::failed(format!("night: {package} broke a promise")),
    }
}
