//! Runs cargo-mutants on the pure cores. A mutant that no test catches means a rule without a test, or unnecessary code.
//!
//! cargo-mutants compiles one mutant after another. All of them take hours, so no stage of `ci` runs it. `.cargo/mutants.toml` excludes the mutants
//! that behave like the original, each with the reason.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt};

use crate::loom;
use crate::sources;
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::{self, Workspace};

/// The address space of each process, in KiB: a mutant may allocate without end.
pub(crate) const MEMORY: u32 = 8 << 20;

/// A pure core, and the tests that must catch its mutants.
struct Core {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// The targets that cargo builds and runs.
    targets: &'static [&'static str],
    /// The tests to run: all whose names contain one of these; all if empty. The ladder leaves out the tests that start processes.
    tests: &'static [&'static str],
}

const CORES: [Core; 5] = [
    Core {
        name: "ladder",
        package: "interrupt-stack",
        files: &["crates/interrupt-stack/src/ladder.rs"],
        targets: &["--lib", "--test=it"],
        tests: &["state::tests", "ladder::", "explore", "detached", "model::"],
    },
    Core {
        name: "word",
        package: "interrupt-stack",
        files: &["crates/interrupt-stack/src/press_word.rs"],
        targets: &["--lib", "--test=loom"],
        tests: &[],
    },
    Core {
        name: "machine",
        package: "loop-state",
        files: &[
            "crates/loop-state/src/agent.rs",
            "crates/loop-state/src/attempt.rs",
            "crates/loop-state/src/deadline.rs",
            "crates/loop-state/src/machine*",
            "crates/loop-state/src/machine/*",
            "crates/loop-state/src/rules.rs",
        ],
        targets: &["--lib", "--test=it"],
        tests: &[],
    },
    Core {
        name: "frame",
        package: "checkpoint-store",
        files: &["crates/checkpoint-store/src/frame.rs"],
        targets: &["--lib"],
        tests: &[],
    },
    Core {
        name: "protocols",
        package: "agent-drivers",
        files: &[
            "crates/agent-drivers/src/*/protocol.rs",
            "crates/agent-drivers/src/*/protocol/*.rs",
        ],
        targets: &["--lib"],
        tests: &[],
    },
];

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Only the cores of these crates
    crates: Vec<String>,
    /// Only a part of each core's mutants: 0/8 is the first of eight
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
}

/// Runs all mutants of all cores.
pub(crate) fn all(workspace: &Workspace) -> Tally {
    run(workspace, &Arguments::default())
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let unknown = |name: &&String| !CORES.iter().any(|core| core.package == name.as_str());
    if let Some(name) = arguments.crates.iter().find(unknown) {
        return Tally::failed(format!("mutants: no core in the table for {name}"));
    }
    let (program, search_path) = match tools(workspace) {
        Ok(tools) => tools,
        Err(why) => return Tally::skipped(format!("mutants: {why}")),
    };
    let folder = workspace.target.join("mutants");
    // cargo-mutants changes this copy in place. The copy stays at one path, so cargo builds the dependencies once for all cores and runs.
    let copy = folder.join("sources");
    if let Err(error) = sources::copy_afresh(&workspace.root, &copy) {
        return Tally::failed(format!("mutants: {}: {error}", copy.display()));
    }
    let wanted =
        |name: &str| arguments.crates.is_empty() || arguments.crates.iter().any(|it| it == name);
    let mut tally = Tally::default();
    for core in CORES.iter().filter(|core| wanted(core.package)) {
        let shard = arguments.shard.as_deref();
        let outcome = core.run(&program, &search_path, &folder, &copy, shard);
        tally += match outcome {
            Ok(outcome) => {
                println!("mutants: {}: {outcome}", core.name);
                outcome.tally()
            }
            Err(why) => Tally::failed(format!("mutants: {}: {why}", core.name)),
        };
    }
    tally
}

/// Returns cargo-mutants, and the `PATH` on which it finds nextest.
fn tools(workspace: &Workspace) -> Result<(PathBuf, OsString), String> {
    let program = Tool::Mutants.find_or_install(workspace)?;
    let nextest = Tool::Nextest.find_or_install(workspace)?;
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = { nextest.parent().map(Path::to_owned) }.into_iter();
    let search_path = env::join_paths(folders.chain(env::split_paths(&path)));
    Ok((program, search_path.map_err(|error| error.to_string())?))
}

impl Core {
    fn run(
        &self,
        program: &Path,
        search_path: &OsStr,
        folder: &Path,
        copy: &Path,
        shard: Option<&str>,
    ) -> Result<Outcome, String> {
        let out = folder.join(self.name);
        let fresh = workspace::remove(&out).and_then(|()| fs_err::create_dir_all(&out));
        fresh.map_err(|error| error.to_string())?;
        let mut mutants = Command::new("sh");
        mutants
            .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$@\""), "sh"])
            .arg(program)
            .args(self.arguments(shard))
            .arg("--output")
            .arg(&out)
            .current_dir(copy)
            .env("PATH", search_path)
            .env("CARGO_TARGET_DIR", folder.join("build"))
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // For the core "word". All cores have the same flags, so that they share the compiled dependencies.
            .env(loom::FLAGS.0, loom::FLAGS.1)
            // The first failed case is enough, and the next mutant must find the same files.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        // cargo-mutants inherits the terminal, where it shows its progress.
        let status = mutants.status().map_err(|error| error.to_string())?;
        // 0: all caught. 2: some missed. 3: some timed out. With any other code, cargo-mutants didn't test all of them.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            return Err(format!("cargo-mutants ended with {status}"));
        }
        let outcome = Outcome::read(out.join("mutants.out"));
        if outcome == Outcome::default() && shard.is_none() {
            return Err("cargo-mutants found nothing to change in the files".into());
        }
        Ok(outcome)
    }

    /// Returns the arguments of cargo-mutants, without its directories.
    fn arguments(&self, shard: Option<&str>) -> Vec<String> {
        // One failed test is enough: nextest then ends the tests that still run.
        let mut arguments: Vec<String> = [
            "mutants",
            "--in-place",
            "--all-features",
            "--test-tool=nextest",
            "--cargo-test-arg=--max-fail=1:immediate",
            // So that the explorations don't delay the other tests, which catch nearly all mutants.
            "--cargo-test-arg=--test-threads=16",
        ]
        .map(Into::into)
        .into();
        arguments.push(format!("--package={}", self.package));
        arguments.extend(self.files.iter().map(|file| format!("--file={file}")));
        if let Some(shard) = shard {
            // Neighbours go to different shards, so that each shard takes about as long.
            arguments.push(format!("--shard={shard}"));
            arguments.push("--sharding=round-robin".into());
        }
        let targets = self.targets.iter();
        arguments.extend(targets.map(|target| format!("--cargo-arg={target}")));
        let tests = self.tests.iter();
        arguments.extend(tests.map(|test| format!("--cargo-test-arg={test}")));
        arguments
    }
}

/// The results of the mutants.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// The names of the missed mutants.
    missed: Vec<String>,
    caught: usize,
    /// The number of mutants whose tests took five times as long as without a mutant, and at least 20 s. They count as caught.
    timed_out: usize,
    /// The number of mutants that don't compile.
    unviable: usize,
}

impl Outcome {
    /// Reads the lists that cargo-mutants writes, one name per line.
    fn read(folder: PathBuf) -> Self {
        let list = |name: &str| {
            let text = fs_err::read_to_string(folder.join(name)).unwrap_or_default();
            text.lines().map(Into::into).collect::<Vec<String>>()
        };
        Self {
            missed: list("missed.txt"),
            caught: list("caught.txt").len(),
            timed_out: list("timeout.txt").len(),
            unviable: list("unviable.txt").len(),
        }
    }

    fn tally(self) -> Tally {
        let failures = self.missed.iter().map(|name| format!("mutants: {name}"));
        Tally {
            failures: failures.collect(),
            ..Tally::passed(self.caught + self.timed_out)
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            missed,
            caught,
            timed_out,
            unviable,
        } = self;
        let missed = missed.len();
        write!(
            f,
            "{missed} missed, {caught} caught, {timed_out} timed out, {unviable} unviable"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_mutant_is_named_and_unviable_one_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs_err::write(folder.path().join(name), text).unwrap();
        write(
            "missed.txt",
            "crates/a/src/b.rs:3:5: replace f -> bool with true\n",
        );
        write("caught.txt", "a\nb\n");
        write("timeout.txt", "c\n");
        write("unviable.txt", "d\n");
        let outcome = Outcome::read(folder.path().into());
        assert_eq!(
            outcome.to_string(),
            "1 missed, 2 caught, 1 timed out, 1 unviable"
        );
        let tally = outcome.tally();
        assert_eq!(tally.to_string(), "3 passed, 1 failed, 0 skipped");
        assert!(tally.failures[0].contains("b.rs:3:5: replace f"));
    }

    #[test]
    fn each_pattern_of_the_table_matches_a_file() {
        let sources = sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let paths: Vec<String> = { sources.iter() }
            .map(|source| source.path.display().to_string())
            .collect();
        for pattern in CORES.iter().flat_map(|core| core.files) {
            assert!(paths.iter().any(|path| fits(pattern, path)), "{pattern}");
        }
    }

    /// Whether a path contains the parts between the stars, in order.
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
