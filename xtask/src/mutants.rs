//! Changes of the pure cores that no test notices: each is a rule that nobody holds, or code that nobody needs. It takes many minutes, so no stage has it.
//!
//! cargo-mutants lists them (`list`). Compiled one after the other they take hours, so all of a core are built at once, each behind a condition (`rewrite`,
//! `build`), and the tests are run with one after the other chosen (`judge`). Only what can't stand behind a condition is compiled for itself (`alone`).
//!
//! What can't be told from the code as it is, and why, stands in `.cargo/mutants.toml`.

mod alone;
mod build;
mod judge;
mod list;
mod rewrite;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::mutants::judge::Verdict;
use crate::mutants::list::{Mutant, Shard};
use crate::sources;
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// A pure core, and what judges it.
struct Core {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// The crates that compile these files, by the root of each.
    roots: &'static [&'static str],
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
        roots: &["crates/interrupt-stack/src/lib.rs"],
        targets: &["--lib", "--test=it"],
        tests: "kind(lib) | test(/^(ladder|explore|detached|model)/)",
    },
    Core {
        name: "word",
        package: "interrupt-stack",
        files: &["crates/interrupt-stack/src/word.rs"],
        roots: &[
            "crates/interrupt-stack/src/lib.rs",
            "crates/interrupt-stack/tests/loom.rs",
        ],
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
        roots: &["crates/loop-state/src/lib.rs"],
        targets: &["--test=it"],
        tests: "all()",
    },
    Core {
        name: "frame",
        package: "checkpoint-store",
        files: &["crates/checkpoint-store/src/frame.rs"],
        roots: &["crates/checkpoint-store/src/lib.rs"],
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
        roots: &["crates/agent-subprocess/src/lib.rs"],
        targets: &["--lib"],
        tests: "all()",
    },
];

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Only the cores of these crates.
    crates: Vec<String>,
    /// A part of them, such as 0/8, to be spread over nights.
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
}

/// Where it works: a copy that stays where it is, so that what is built for one core serves the next, and one run the next.
struct Place<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    copy: PathBuf,
}

impl Place<'_> {
    /// Runs a command in the copy, with no debug information and incremental: what changes is a few files.
    fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", self.folder.join("build"))
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
    }
}

/// Tries all mutants of all cores.
pub(crate) fn all(workspace: &Workspace) -> Tally {
    run(workspace, &Arguments::default())
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let known = |name: &&String| !CORES.iter().any(|core| core.package == name.as_str());
    if let Some(name) = arguments.crates.iter().find(known) {
        return Tally::failed(format!("mutants: {name} has no core in the table"));
    }
    for tool in [Tool::Mutants, Tool::Nextest] {
        if let Err(why) = tool.find_or_install(workspace) {
            return Tally::skipped(format!("mutants: {why}"));
        }
    }
    let folder = workspace.target.join("mutants");
    let place = Place {
        copy: folder.join("sources"),
        workspace,
        folder,
    };
    if let Err(error) = sources::copy_afresh(&workspace.root, &place.copy) {
        return Tally::failed(format!("mutants: {}: {error}", place.copy.display()));
    }
    let wanted =
        |name: &str| arguments.crates.is_empty() || arguments.crates.iter().any(|it| it == name);
    let mut tally = Tally::default();
    for core in CORES.iter().filter(|core| wanted(core.package)) {
        let judged = judged(&place, core, arguments.shard);
        tally +=
            judged.unwrap_or_else(|why| Tally::failed(format!("mutants: {}: {why}", core.name)));
    }
    tally
}

fn judged(place: &Place<'_>, core: &Core, shard: Option<Shard>) -> Result<Tally, String> {
    let begun = Instant::now();
    let all = list::mutants(place, core)?;
    if all.is_empty() {
        return Err("its files have nothing to change".into());
    }
    let mutants = match shard {
        Some(shard) => shard.of(all),
        None => all,
    };
    let outcome = outcome(place, core, &mutants)?;
    println!(
        "mutants: {}: {} in {:.0} s: {outcome}",
        core.name,
        mutants.len(),
        begun.elapsed().as_secs_f64(),
    );
    Ok(outcome.tally())
}

fn outcome(place: &Place<'_>, core: &Core, mutants: &[Mutant]) -> Result<Outcome, String> {
    let originals = build::originals(place, core, mutants)?;
    let built = build::build(place, core, &originals, mutants)?;
    println!(
        "mutants: {}: {} in one build, {} alone, {} unviable",
        core.name,
        built.together.len(),
        built.alone.len(),
        built.unviable,
    );
    let verdicts = judge::judge(place, core, &built.together)?;
    build::write(place, &originals)?;
    let mut outcome = alone::judge(place, core, &built.alone)?;
    outcome.unviable += built.unviable;
    for (mutant, verdict) in verdicts {
        match verdict {
            Verdict::Missed => outcome.missed.push(mutant.name.clone()),
            Verdict::Caught => outcome.caught += 1,
            Verdict::TimedOut => outcome.timed_out += 1,
        }
    }
    Ok(outcome)
}

/// What became of mutants.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// By name.
    missed: Vec<String>,
    caught: usize,
    timed_out: usize,
    /// Those that are no program.
    unviable: usize,
}

impl Outcome {
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
    use std::path::Path;

    use super::*;

    #[test]
    fn a_missed_mutant_is_a_failure_by_name_and_one_that_is_no_program_is_nothing() {
        let outcome = Outcome {
            missed: vec!["crates/a/src/b.rs:3:5: replace f -> bool with true".into()],
            caught: 4,
            timed_out: 1,
            unviable: 2,
        };
        assert_eq!(
            outcome.to_string(),
            "1 missed, 4 caught, 1 timed out, 2 unviable"
        );
        let tally = outcome.tally();
        assert_eq!(tally.to_string(), "5 passed, 1 failed, 0 skipped");
        assert!(tally.failures[0].contains("b.rs:3:5: replace f"));
    }

    #[test]
    fn each_root_of_the_table_is_there() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for root in CORES.iter().flat_map(|core| core.roots) {
            assert!(workspace.join(root).is_file(), "{root}");
        }
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
