//! Plays simulated nights of a run: a test of `loop-runner`, with more seeds than its test suite.

use crate::chosen_tests::Tests;
use crate::nightly;
use crate::tally::Tally;

const DEFAULT_SEEDS: u64 = 1000;

/// The nights to play.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of nights, from seed 0 on
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEEDS, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Only this seed, as a failure names it
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Also run ten thousand iterations of a trivial agent, which takes minutes
    #[arg(long)]
    long: bool,
}

/// Plays the default number of nights.
pub(crate) fn nights() -> Tally {
    NIGHTS.run(("RLM_NIGHT_SEEDS", &DEFAULT_SEEDS.to_string()))
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    let mut tally = match arguments.seed {
        Some(seed) => NIGHTS.run(("RLM_NIGHT_SEED", &seed.to_string())),
        None => NIGHTS.run(("RLM_NIGHT_SEEDS", &arguments.seeds.to_string())),
    };
    if arguments.long {
        tally += nightly::numbers("x116");
    }
    tally
}

const NIGHTS: Tests = Tests::new("loop-runner", "it", "night::");
