//! Compiles the published crates with the oldest dependencies that their manifests allow: an untested lower bound is soon wrong.

use std::process::Command;

use crate::command::{self, Show};
use crate::sources;
use crate::tally::Tally;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Tally {
    if let Err(why) = command::nightly() {
        return Tally::skipped(format!("minimal: {why}"));
    }
    // A copy protects the lock file.
    let copy = workspace.target.join("minimal");
    let fresh = copy.join("sources");
    if let Err(error) = sources::copy_afresh(&workspace.root, &fresh) {
        return Tally::failed(format!("minimal: {}: {error}", fresh.display()));
    }
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo
            .args(arguments)
            .current_dir(&fresh)
            .env("CARGO_TARGET_DIR", copy.join("build"));
        command::finish(&mut cargo, Show::OnFailure).success
    };
    if !cargo(&["+nightly", "update", "--quiet", "-Zdirect-minimal-versions"]) {
        return Tally::failed("minimal: no compatible versions");
    }
    let mut tally = Tally::default();
    for package in workspace.published() {
        let check = ["check", "--quiet", "--all-features", "-p", &package.name];
        let success = cargo(&check);
        println!(
            "minimal: {}: {}",
            package.name,
            if success { "ok" } else { "FAILED" }
        );
        match success {
            true => tally.passed += 1,
            false => tally += Tally::failed(format!("minimal: {}", package.name)),
        }
    }
    tally
}
