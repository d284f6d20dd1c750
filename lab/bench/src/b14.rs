//! B14: figures without a target that may grow unnoticed: sizes, dependencies, the time of the tests and of a clean build.

mod recorded;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::{Bench, Contender, Outcome, Plan, Progress, Result, Role, Series};
use crate::programs::rlm_or_skip;
pub(crate) use recorded::keep;

pub(crate) const BENCH: Bench = Bench {
    id: "b14",
    title: "size and dependencies, without a target",
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

const NOW: &str = "now";
const KEPT: &str = "kept";

fn small(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    if let Some(rlm) = rlm_or_skip("size of the binary", outcome) {
        let stripped = plan.scratch.join("rlm-stripped");
        let tried = said(Command::new("strip").arg("-o").arg(&stripped).arg(rlm));
        match tried.and_then(|_| Ok(fs_err::metadata(&stripped)?.len())) {
            Ok(bytes) => watch(outcome, "stripped binary", "MB", bytes as f64 / 1e6),
            Err(why) => outcome.skip("size of the binary", &why),
        }
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
