//! Plays simulated nights of a run: a test of `loop-runner`, with more seeds than its test suite.

use std::process::Command;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::{nightly, skips};

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

/// Tests of a package whose effort an environment variable sets.
#[derive(Debug)]
pub(crate) struct Tests {
    package: &'static str,
    binary: &'static str,
    /// The prefix of their names.
    names: &'static str,
    /// Whether they run only here, and not in the test suite.
    are_ignored: bool,
}

impl Tests {
    pub(crate) const fn new(
        package: &'static str,
        binary: &'static str,
        names: &'static str,
    ) -> Self {
        Self {
            package,
            binary,
            names,
            are_ignored: false,
        }
    }

    /// Selects the ignored tests, which the test suite leaves out.
    pub(crate) const fn ignored(self) -> Self {
        Self {
            are_ignored: true,
            ..self
        }
    }

    /// Runs the tests with a variable, and prints their output.
    pub(crate) fn run(&self, (name, value): (&str, &str)) -> Tally {
        let Self {
            package,
            binary,
            names,
            are_ignored,
        } = self;
        let mut cargo = Command::new("cargo");
        cargo
            .args(["test", "--quiet", "--all-features", "-p", package])
            .args(["--test", binary, names, "--", "--nocapture"])
            .env(name, value);
        if *are_ignored {
            cargo.args(["--ignored", "--test-threads=1"]);
        }
        let ended = command::finish(&mut cargo, Show::AsItComes);
        let mut tally = Tally::of_libtest(&ended.output).unwrap_or_default();
        match ended.success {
            true if tally.passed == 0 => {
                return Tally::failed(format!("{package} has no tests named {names}"));
            }
            true => {}
            false => return Tally::failed(format!("{package}: a test failed: {names}")),
        }
        let skips = skips::of_libtest(&ended.output).into_iter();
        tally
            .skipped
            .extend(skips.map(|skip| format!("{package}: {skip}")));
        tally
    }
}
