//! Tests of a package that a command selects by their names, and runs with a variable.

use std::process::Command;

use crate::command::{self, Show};
use crate::skips;
use crate::tally::Tally;

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
