//! Runs the fuzz targets of the store's readers for a limited time each.

use std::process::Command;

use clap::builder::PossibleValuesParser;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// The fuzz targets of `lab/crash/fuzz`.
const TARGETS: [&str; 5] = ["header", "frames", "load", "migrations", "records"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these targets
    #[arg(value_parser = PossibleValuesParser::new(TARGETS))]
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time: u32,
}

/// Runs each target for an hour.
pub(crate) fn hour(workspace: &Workspace) -> Tally {
    let arguments = Arguments {
        targets: Vec::new(),
        time: 3600,
    };
    run(workspace, &arguments)
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let mut tally = Tally::default();
    let fuzz = match command::nightly().and_then(|()| Tool::Fuzz.command(workspace)) {
        Ok(command) => command,
        Err(why) => return Tally::skipped(format!("fuzz: {why}")),
    };
    let wanted = |target: &&str| {
        arguments.targets.is_empty() || arguments.targets.iter().any(|name| name == target)
    };
    let time = format!("-max_total_time={}", arguments.time);
    for target in TARGETS.into_iter().filter(wanted) {
        let corpus = format!("lab/crash/fuzz/corpus/{target}");
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
        // Loading 16 KiB twice must need neither a gigabyte nor a second.
        let words = [
            "run",
            "--fuzz-dir",
            "lab/crash/fuzz",
            target,
            "--",
            &time,
            "-max_len=16384",
            "-rss_limit_mb=2048",
            "-timeout=10",
        ];
        let mut cargo = Command::new(fuzz.get_program());
        // cargo exports the compiler of this command to its children, but the fuzz targets need another one.
        cargo
            .env("RUSTUP_TOOLCHAIN", "nightly")
            .env_remove("CARGO")
            .env_remove("RUSTC");
        cargo.args(fuzz.get_args()).args(words);
        match command::finish(&mut cargo, Show::AsItComes).success {
            true => tally.passed += 1,
            false => tally.failures.push(format!("fuzz: {target}")),
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use toml_edit::DocumentMut;

    use super::*;

    /// Three places name the targets: this list, their manifest, and their caller. None can import the list of another.
    #[test]
    fn fuzz_targets_are_those_of_the_package_and_the_crash_tests() {
        let crash = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/crash");
        let read = |file: &str| fs_err::read_to_string(crash.join(file)).unwrap();
        let manifest: DocumentMut = read("fuzz/Cargo.toml").parse().unwrap();
        let programs = manifest["bin"].as_array_of_tables().unwrap().iter();
        let programs: Vec<&str> = programs.map(|bin| bin["name"].as_str().unwrap()).collect();
        assert_eq!(programs, TARGETS);
        let called = read("src/fuzzing.rs");
        let rows = TARGETS.map(|target| format!("    (\"{target}\", {target}),\n"));
        let table = format!(
            "[(&str, Target); {}] = [\n{}];",
            TARGETS.len(),
            rows.concat()
        );
        assert!(called.contains(&table), "{table}");
    }
}
