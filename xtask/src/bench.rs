//! Builds and runs the benches, a program of `rlm-bench`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{command, peers};

/// The benches to run, and the destination of the figures.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Benches to run, such as b1 [default: all].
    names: Vec<String>,
    /// Also writes the figures as JSON.
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    json: Option<PathBuf>,
    /// Run quickly: the figures are only a hint, and no target can be missed
    #[arg(long)]
    quick: bool,
    /// First install the Python peers below `target/tools`, each at its pinned version
    #[arg(long)]
    peers: bool,
    /// Store the figures of b14 in the repository, as the baseline of later runs
    #[arg(long)]
    keep: bool,
}

/// The path of the baseline figures.
const KEPT: &str = "lab/bench/kept.json";

/// Resolves a path against the maintainer's current directory instead of the root of the workspace.
pub(crate) fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let target = &workspace.target;
    let out = target.join("bench");
    let mut tally = Tally::default();
    if arguments.peers {
        tally += peers::install(target);
    }
    let figures = arguments
        .json
        .clone()
        .unwrap_or_else(|| out.join("figures.json"));
    let is_meant = |name| arguments.names.is_empty() || arguments.names.iter().any(|it| it == name);
    // The other benches measure the program that a user installs, which has no pages.
    let pages = ["--bin", "rlm", "--features", "view"];
    if is_meant("b17") && command::build("rlm-loop", &pages) {
        let [built, kept] = ["rlm", "rlm-with-pages"].map(|name| target.join("release").join(name));
        if let Err(error) = fs_err::copy(built, kept) {
            tally += Tally::failed(format!("bench: {error}"));
        }
    }
    // Some benches measure `rlm` itself. Without the program they are skipped with a message.
    let _without = command::build("rlm-loop", &["--bin", "rlm"]);

    let mut cargo = Command::new("cargo");
    cargo
        .args(["run", "--quiet", "--release", "-p", "rlm-bench"])
        .args(["--features", "sqlite", "--"])
        .args(&arguments.names)
        .args(arguments.quick.then_some("--quick"))
        .arg("--out")
        .arg(&out)
        .arg("--json")
        .arg(&figures);
    if arguments.keep {
        cargo.args(["--keep", KEPT]);
    }
    if let (None, Some(python)) = (std::env::var_os("BENCH_PYTHON"), peers::python(target)) {
        cargo.env("BENCH_PYTHON", python);
    }
    if let Err(error) = fs_err::create_dir_all(&out) {
        return Tally::failed(error.to_string());
    }
    tally += match cargo.status() {
        // Exit code 1 means a missed target, which the figures name.
        Ok(status) if matches!(status.code(), Some(0 | 1)) => read(&figures, arguments.quick),
        Ok(status) => Tally::failed(format!("bench: exited with {status}")),
        Err(error) => Tally::failed(format!("cargo: {error}")),
    };
    tally
}

fn read(figures: &Path, quick: bool) -> Tally {
    let read = fs_err::read_to_string(figures).map_err(|error| error.to_string());
    match read.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
        Ok(figures) => tally(&figures, quick),
        Err(error) => Tally::failed(format!("bench: {error}")),
    }
}

/// Counts the targets. A quick run has no figures that can miss a target.
fn tally(figures: &Value, quick: bool) -> Tally {
    let mut tally = Tally::default();
    for bench in figures["benches"].as_array().into_iter().flatten() {
        let id = bench["id"].as_str().unwrap_or_default();
        for verdict in bench["verdicts"].as_array().into_iter().flatten() {
            let what = format!("{id}: {}", verdict["what"].as_str().unwrap_or_default());
            match verdict["hit"].as_bool() {
                Some(true) => tally.passed += 1,
                _ if quick => tally
                    .skipped
                    .push(format!("{what}: a quick run cannot judge it")),
                _ => tally.failures.push(what),
            }
        }
        let skipped = bench["skipped"].as_array().into_iter().flatten();
        tally.skipped.extend(
            skipped
                .filter_map(Value::as_str)
                .map(|skip| format!("{id}: {skip}")),
        );
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_a_failure_unless_the_run_was_quick() {
        let figures = serde_json::json!({ "benches": [{
            "id": "b1",
            "verdicts": [{ "what": "p50", "hit": true }, { "what": "max", "hit": false }],
            "skipped": ["a peer: not installed"],
        }]});
        let full = tally(&figures, false);
        assert_eq!(full.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(full.failures, ["b1: max"]);
        assert_eq!(
            tally(&figures, true).to_string(),
            "1 passed, 0 failed, 2 skipped"
        );
    }
}
