//! Installs the Python peers of the benches, each at its pinned version, into their own environment.

use std::path::{Path, PathBuf};

use crate::command::{self, Ended, Show};
use crate::tally::Tally;

/// The list of the peers to install: one name and version per line.
const REQUIREMENTS: &str = "lab/bench/peers/requirements.txt";
/// This peer is installed from source: its wheel contains the agent, 300 MB that no bench starts.
const WITHOUT_WHEEL: &str = "claude-agent-sdk";

/// Returns the path of the environment, below `target`.
fn folder(target: &Path) -> PathBuf {
    target.join("tools").join("bench-peers")
}

/// Returns the Python of the environment, if it exists.
pub(crate) fn python(target: &Path) -> Option<PathBuf> {
    program(target, "python")
}

/// Returns a program of a peer, if it exists.
pub(crate) fn program(target: &Path, name: &str) -> Option<PathBuf> {
    let program = folder(target).join("bin").join(name);
    std::path::absolute(program)
        .ok()
        .filter(|path| path.exists())
}

/// Returns a peer with its pinned version, such as `ralphify 0.3.0`.
pub(crate) fn versioned(peer: &str) -> String {
    let lines = fs_err::read_to_string(REQUIREMENTS).unwrap_or_default();
    let mut pins = lines.lines().filter_map(|line| line.split_once("=="));
    match pins.find(|pin| pin.0 == peer) {
        Some((name, version)) => format!("{name} {version}"),
        None => peer.to_owned(),
    }
}

/// Installs missing peers. The tally lists a peer that can't be installed as skipped, and the benches run without it.
pub(crate) fn install(target: &Path) -> Tally {
    let skip =
        |what: &str, ended: &Ended| Tally::skipped(format!("{what}: {}", last(&ended.output)));
    let folder = folder(target);
    if python(target).is_none() {
        let place = folder.to_string_lossy();
        let made = command::run("python3", &["-m", "venv", &place], Show::Never);
        if !made.success {
            return skip("the environment of the Python peers", &made);
        }
    }
    let (Some(python), Ok(lines)) = (python(target), fs_err::read_to_string(REQUIREMENTS)) else {
        return Tally::failed("peers: no environment, or no list of them");
    };
    let python = python.to_string_lossy();
    let mut tally = Tally::default();
    for peer in lines.lines().filter(|line| !line.starts_with('#')) {
        println!("peer: {peer}");
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--retries=1",
            "--no-binary",
            WITHOUT_WHEEL,
            peer,
        ];
        let installed = command::run(&python, &pip, Show::Never);
        if !installed.success {
            tally += skip(peer, &installed);
        }
    }
    tally
}

fn last(output: &str) -> &str {
    let lines = output.lines().map(str::trim);
    let mut errors = lines.clone().filter(|line| line.starts_with("ERROR"));
    let told = errors
        .next_back()
        .or_else(|| lines.rev().find(|line| !line.is_empty()));
    told.unwrap_or("no output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_pip_line_may_not_be_the_cause() {
        let output = "Collecting x\nERROR: No matching distribution found for x==1\n\nnotice: hm\n";
        assert_eq!(
            last(output),
            "ERROR: No matching distribution found for x==1"
        );
        assert_eq!(last("python3: not found\n\n"), "python3: not found");
        assert_eq!(last(""), "no output");
    }
}
