//! Runs the fuzz targets of the store's readers for a while each.

use crate::command::{self, Show};
use crate::tally::Tally;

/// The targets of `crash/fuzz`.
const TARGETS: [&str; 4] = ["header", "frames", "load", "migrations"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these targets
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time: u32,
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    let mut tally = Tally::default();
    for (what, command) in [
        ("cargo-fuzz", ["fuzz", "--version"]),
        ("a nightly compiler", ["+nightly", "--version"]),
    ] {
        if !command::run("cargo", &command, Show::Never).success {
            tally.skipped.push(format!("fuzz: {what} is not installed"));
            return tally;
        }
    }
    let wanted = |target: &&str| {
        arguments.targets.is_empty() || arguments.targets.iter().any(|name| name == target)
    };
    let time = format!("-max_total_time={}", arguments.time);
    for target in TARGETS.into_iter().filter(wanted) {
        let corpus = format!("crash/fuzz/corpus/{target}");
        let seeds = [
            "run",
            "--quiet",
            "--release",
            "-p",
            "rlm-crash",
            "--",
            "seeds",
            target,
            &corpus,
        ];
        if !command::run("cargo", &seeds, Show::OnFailure).success {
            tally.failures.push(format!("fuzz: no seeds for {target}"));
            continue;
        }
        // What is loaded twice from 16 KiB takes no gigabyte, and no second.
        let cargo = [
            "+nightly",
            "fuzz",
            "run",
            "--fuzz-dir",
            "crash/fuzz",
            target,
            "--",
            &time,
            "-max_len=16384",
            "-rss_limit_mb=2048",
            "-timeout=10",
        ];
        match command::run("cargo", &cargo, Show::AsItComes).success {
            true => tally.passed += 1,
            false => tally.failures.push(format!("fuzz: {target}")),
        }
    }
    tally
}
