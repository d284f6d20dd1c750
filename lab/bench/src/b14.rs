//! B14: what a new user waits for and downloads: the time from a clone to the first line of the demo, and the size of the binary. Also figures without
//! a target that may grow unnoticed: dependencies, the time of the tests and of a clean build.

mod recorded;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::{Bench, Contender, Outcome, Plan, Progress, Result, Role, Series};
use crate::programs::rlm_or_skip;
pub(crate) use recorded::keep;

pub(crate) const BENCH: Bench = Bench {
    id: "b14",
    title: "size and dependencies",
    run: small,
    measured: None,
};
/// Runs only by name, because it takes minutes on a small machine.
pub(crate) const SUITE: Bench = Bench {
    id: "b14-suite",
    title: "wall clock of the whole test suite",
    run: suite,
    ..BENCH
};
/// Runs only by name, for the same reason.
pub(crate) const BUILD: Bench = Bench {
    id: "b14-build",
    title: "a clean build",
    run: build,
    ..BENCH
};

/// Runs only by name, for the same reason.
pub(crate) const FIRST: Bench = Bench {
    id: "b14-first",
    title: "from a clone to the first line of the demo",
    run: first_line,
    ..BENCH
};

/// The largest size of the binary that `cargo install` builds, in MB.
const MAX_BINARY: f64 = 13.0;
/// The longest time to the first line of the demo, in seconds.
const MAX_FIRST_LINE: f64 = 75.0;
const BINARY: &str = "binary";
const FIRST_LINE: &str = "first line of the demo";

const NOW: &str = "now";
const KEPT: &str = "kept";

fn small(_: &Plan, outcome: &mut Outcome) -> Result<()> {
    if let Some(rlm) = rlm_or_skip("size of the binary", outcome) {
        let megabytes = fs_err::metadata(rlm)?.len() as f64 / 1e6;
        watch(outcome, BINARY, "MB", megabytes);
        let target = outcome.at_most(BINARY, Some(megabytes), MAX_BINARY, "MB");
        target.about(BINARY, NOW);
    }
    let tree = [
        "tree",
        "--offline",
        "--locked",
        "-p",
        "rlm-loop",
        "-e",
        "normal",
    ];
    let tree = said(
        Command::new("cargo")
            .args(tree)
            .args(["--prefix", "none", "--no-dedupe"]),
    );
    match tree {
        Ok(tree) => watch(
            outcome,
            "dependencies of rlm",
            "crates",
            count(&tree) as f64,
        ),
        Err(why) => outcome.skip("dependencies of rlm", &why),
    }
    Ok(())
}

/// Counts the crates of a tree that are not in this workspace, each version once.
fn count(tree: &str) -> usize {
    let names = tree
        .lines()
        .filter(|line| !line.is_empty() && !line.contains(" (/"));
    let names: std::collections::BTreeSet<String> = names
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    names.len()
}

fn suite(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    if plan.scale == crate::harness::Scale::Tiny {
        return Ok(());
    }
    let progress = Progress::of("b14 suite");
    progress.show(|| "building".into());
    let nextest = [
        "nextest",
        "run",
        "--no-run",
        "--workspace",
        "--all-features",
    ];
    said(Command::new("cargo").args(nextest))?;
    progress.show(|| "running".into());
    let begun = Instant::now();
    said(Command::new("cargo").args(["xtask", "test"]))?;
    watch(outcome, "test suite", "s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn build(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    if plan.scale == crate::harness::Scale::Tiny {
        return Ok(());
    }
    let _progress = Progress::of("b14 clean build");
    let target = plan.scratch.join("clean");
    let begun = Instant::now();
    let words = [
        "build",
        "--release",
        "--locked",
        "-p",
        "rlm-loop",
        "--bin",
        "rlm",
    ];
    said(
        Command::new("cargo")
            .args(words)
            .arg("--target-dir")
            .arg(&target),
    )?;
    let took = begun.elapsed();
    fs_err::remove_dir_all(target)?;
    watch(outcome, "clean build", "s", took.as_secs_f64());
    Ok(())
}

/// Does what the README tells a new user, with a filled registry cache: `cargo run -- demo` with an empty target directory. The demo then waits for
/// Enter, and ends because there is none.
fn first_line(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    if plan.scale == crate::harness::Scale::Tiny {
        return Ok(());
    }
    let _progress = Progress::of("b14 first line");
    let target = plan.scratch.join("first");
    let begun = Instant::now();
    let mut demo = Command::new("cargo")
        .args(["run", "--quiet", "--locked", "--target-dir"])
        .arg(&target)
        .args(["--", "demo"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = demo.stdout.take().expect("it was piped");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let took = begun.elapsed().as_secs_f64();
    // The demo may not be over, but its first line is all that counts here. It ends its own processes.
    let ended = demo.wait()?;
    fs_err::remove_dir_all(target)?;
    if line.is_empty() {
        return Err(format!("the demo printed nothing: {ended}").into());
    }
    watch(outcome, FIRST_LINE, "s", took);
    let target = outcome.at_most(FIRST_LINE, Some(took), MAX_FIRST_LINE, "s");
    target.about(FIRST_LINE, NOW);
    Ok(())
}

/// Adds a figure with the recorded one, and a note about its growth.
fn watch(outcome: &mut Outcome, what: &'static str, unit: &'static str, value: f64) {
    let mut contenders = vec![Contender::single(NOW, Role::Ours, value)];
    match recorded::known(what, unit) {
        Some(kept) => {
            contenders.push(Contender::single(KEPT, Role::Floor, kept.value));
            outcome.notes.push(kept.compared(what, value));
        }
        None => outcome
            .notes
            .push(format!("{what}: no figure in {unit} is recorded")),
    }
    outcome.series.push(Series::new(what, unit, contenders));
}

/// Runs a program to its end and returns its output.
///
/// # Errors
///
/// Fails when the program does, with the last line of its errors.
fn said(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).display().to_string();
    let ended = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if !ended.status.success() {
        let words = String::from_utf8_lossy(&ended.stderr);
        let last = words.lines().last().unwrap_or_default();
        return Err(format!("{name}: {}: {last}", ended.status).into());
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dependency_version_counts_once_and_workspace_crates_do_not() {
        let tree = "rlm-loop v0.1.0 (/somewhere/rlm)\na v1.0.0\nb v1.0.0 (proc-macro)\na v1.0.0\na v2.0.0\n";
        assert_eq!(count(tree), 3);
    }
}
