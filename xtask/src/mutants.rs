//! Changes of the pure cores that no test notices: each is a rule that nobody holds, or code that nobody needs. It takes hours, so no stage has it.
//!
//! What can't be told from the code as it is, and why, stands in `.cargo/mutants.toml`.

use crate::command::{self, Show};
use crate::sources;
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// A pure core, and what judges it.
struct Core {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// What is built.
    targets: &'static [&'static str],
    /// Which tests of it are run, as nextest filters them: those that play real processes are left out where others judge.
    tests: &'static str,
}

const CORES: [Core; 5] = [
    Core {
        name: "ladder",
        package: "interrupt-stack",
        files: &["crates/interrupt-stack/src/ladder.rs"],
        targets: &["--lib", "--test=it"],
        tests: "kind(lib) | test(/^(ladder|explore|detached|model)/)",
    },
    Core {
        name: "word",
        package: "interrupt-stack",
        files: &["crates/interrupt-stack/src/word.rs"],
        targets: &["--lib", "--test=loom"],
        tests: "all()",
    },
    Core {
        name: "machine",
        package: "loop-state",
        files: &[
            "crates/loop-state/src/machine*",
            "crates/loop-state/src/machine/*",
            "crates/loop-state/src/rules.rs",
        ],
        targets: &["--test=it"],
        tests: "all()",
    },
    Core {
        name: "frame",
        package: "checkpoint-store",
        files: &["crates/checkpoint-store/src/frame.rs"],
        targets: &["--lib"],
        tests: "all()",
    },
    Core {
        name: "protocols",
        package: "agent-subprocess",
        files: &[
            "crates/agent-subprocess/src/*/protocol.rs",
            "crates/agent-subprocess/src/*/protocol/*.rs",
        ],
        targets: &["--lib"],
        tests: "all()",
    },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only the cores of these crates.
    crates: Vec<String>,
    /// A part of them, such as 0/8, to be spread over nights.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let known = |name: &&String| !CORES.iter().any(|core| core.package == name.as_str());
    if let Some(name) = arguments.crates.iter().find(known) {
        return Tally::failed(format!("mutants: {name} has no core in the table"));
    }
    let wanted =
        |name: &str| arguments.crates.is_empty() || arguments.crates.iter().any(|it| it == name);
    // In a copy that stays where it is, so that what is built for one mutant serves the next, and one shard the next.
    let folder = workspace.target.join("mutants");
    let copy = folder.join("sources");
    if let Err(error) = sources::copy_afresh(&workspace.root, &copy) {
        return Tally::failed(format!("mutants: {}: {error}", copy.display()));
    }
    let mut tally = Tally::default();
    for core in CORES.iter().filter(|core| wanted(core.package)) {
        // Where its lists are, and the log of each mutant.
        let out = folder.join(core.name);
        if let Err(error) = fs_err::create_dir_all(&out) {
            return Tally::failed(format!("mutants: {error}"));
        }
        let mut mutants = match Tool::Mutants.command(workspace) {
            Ok(mutants) => mutants,
            Err(why) => return Tally::skipped(format!("mutants: {why}")),
        };
        mutants
            .current_dir(&copy)
            // No debug information, and incremental: a mutant costs its compilation.
            .env("CARGO_TARGET_DIR", folder.join("build"))
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // The first red test is enough, and nobody reads how it fails.
            .env("NEXTEST_PROFILE", "mutants")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            // In place is one at a time: a machine that is busy makes time-outs, which count as caught.
            .args(["--in-place", "--test-tool", "nextest"])
            .args(["--minimum-test-timeout", "60", "--package", core.package])
            .arg("--output")
            .arg(&out)
            .args(core.files.iter().flat_map(|file| ["--file", file]));
        if let Some(shard) = &arguments.shard {
            mutants.args(["--shard", shard]);
        }
        // Before the `--`, so that what is built is what is run.
        let targets = core.targets.iter();
        mutants
            .arg("--all-features")
            .args(targets.map(|target| format!("--cargo-arg={target}")))
            .args(["--", "-E", core.tests]);
        let ended = command::finish(&mut mutants, Show::AsItComes);
        tally += judge(core.name, ended.success, &ended.output);
    }
    tally
}

/// Reads `140 mutants tested in 9m: 2 missed, 120 caught, 17 unviable, 1 timeouts`; a missed one has a line of its own.
fn judge(name: &str, success: bool, output: &str) -> Tally {
    let mut tally = Tally::default();
    let missed = output
        .lines()
        .filter_map(|line| line.strip_prefix("MISSED"));
    tally.failures = missed
        .map(|mutant| format!("mutants: {}", mutant.trim()))
        .collect();
    let counts = output
        .lines()
        .find_map(|line| Some(line.split_once("mutants tested")?.1.split_once(": ")?.1));
    let count = |what: &str| {
        let counts = counts.unwrap_or_default().split(", ");
        let found = counts.filter_map(|part| part.strip_suffix(what)?.trim().parse::<usize>().ok());
        found.sum::<usize>()
    };
    tally.passed = count("caught") + count("timeouts");
    if success && counts.is_none() {
        tally += Tally::failed(format!("mutants: {name}: its files have nothing to change"));
    }
    if !success && tally.failures.is_empty() {
        tally += Tally::failed(format!("mutants: {name}: it did not come to its end"));
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_missed_mutant_is_a_failure_by_name() {
        let output = "Found 3 mutants to test\nMISSED   crates/a/src/b.rs:3:5: replace f -> bool with true in 1s build + 2s test\n\
                      7 mutants tested in 12s: 1 missed, 4 caught, 1 unviable, 1 timeouts\n";
        let tally = judge("a", false, output);
        assert_eq!(tally.to_string(), "5 passed, 1 failed, 0 skipped");
        assert!(tally.failures[0].contains("b.rs:3:5: replace f"));
        assert!(judge("a", false, "error: no baseline").is_red());
        assert!(!judge("a", true, "4 mutants tested in 1s: 4 caught").is_red());
        assert!(judge("a", true, "Found 0 mutants to test").is_red());
    }

    #[test]
    fn each_pattern_of_the_table_has_files() {
        let sources = crate::sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let paths: Vec<String> = { sources.iter() }
            .map(|source| source.path.display().to_string())
            .collect();
        for pattern in CORES.iter().flat_map(|core| core.files) {
            assert!(paths.iter().any(|path| fits(pattern, path)), "{pattern}");
        }
    }

    /// Whether a path has the parts around the stars, in their order.
    fn fits(pattern: &str, path: &str) -> bool {
        let (first, rest) = pattern.split_once('*').unwrap_or((pattern, ""));
        let mut parts = rest.split('*');
        let after = path.strip_prefix(first);
        after.is_some_and(|after| {
            let left = parts.try_fold(after, |left, part| Some(left.split_once(part)?.1));
            left.is_some_and(|left| left.is_empty() || pattern.ends_with('*'))
        })
    }
}
