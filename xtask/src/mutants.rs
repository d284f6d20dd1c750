//! Changes of the pure cores that no test notices: each is a rule that nobody holds, or code that nobody needs. It takes hours, so no stage has it.
//!
//! What can't be told from the code as it is, and why, stands in `.cargo/mutants.toml`.

use crate::command::Show;
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// The cores: their package, their files, and which tests judge them: those that play real processes are left out where others do.
const CORES: [(&str, &[&str], &[&str]); 4] = [
    (
        "interrupt-stack",
        &[
            "crates/interrupt-stack/src/ladder.rs",
            "crates/interrupt-stack/src/word.rs",
        ],
        &["-E", "kind(lib) | test(/^(ladder|explore|detached|model)/)"],
    ),
    (
        "loop-state",
        &[
            "crates/loop-state/src/machine*",
            "crates/loop-state/src/machine/*",
            "crates/loop-state/src/rules.rs",
        ],
        &[],
    ),
    (
        "checkpoint-store",
        &["crates/checkpoint-store/src/frame.rs"],
        &["-E", "kind(lib)"],
    ),
    (
        "agent-subprocess",
        &[
            "crates/agent-subprocess/src/*/protocol.rs",
            "crates/agent-subprocess/src/*/protocol/*.rs",
        ],
        &["-E", "kind(lib)"],
    ),
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
    let known = |name: &&String| !CORES.iter().any(|core| core.0 == name.as_str());
    if let Some(name) = arguments.crates.iter().find(known) {
        return Tally::failed(format!("mutants: {name} has no core in the table"));
    }
    let wanted =
        |name: &str| arguments.crates.is_empty() || arguments.crates.iter().any(|it| it == name);
    let mut tally = Tally::default();
    for (name, files, tests) in CORES.into_iter().filter(|core| wanted(core.0)) {
        let out = workspace.target.join("mutants").join(name);
        let Some(out) = out
            .to_str()
            .filter(|out| fs_err::create_dir_all(out).is_ok())
        else {
            return Tally::failed(format!("mutants: {} can't be written to", out.display()));
        };
        // One at a time: a machine that is busy makes time-outs, which count as caught.
        let mut words = vec!["--package", name, "--test-tool", "nextest", "--jobs", "1"];
        words.extend(["--minimum-test-timeout", "60", "--output", out]);
        words.extend(files.iter().flat_map(|file| ["--file", file]));
        words.extend(
            arguments
                .shard
                .iter()
                .flat_map(|shard| ["--shard", shard.as_str()]),
        );
        // Before the `--`, so that what is built is what is run.
        words.extend([
            "--all-features",
            "--cargo-arg=--lib",
            "--cargo-arg=--test=it",
        ]);
        words.push("--");
        words.extend(tests);
        match Tool::Mutants.run(workspace, &words, Show::AsItComes) {
            Ok(ended) => tally += judge(name, ended.success, &ended.output),
            Err(why) => return Tally::skipped(format!("mutants: {why}")),
        }
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
        for pattern in CORES.iter().flat_map(|(_, files, _)| *files) {
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
