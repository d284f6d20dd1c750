//! Checks each published crate with the oldest compiler that it supports, with three sets of features.

use std::process::Command;

use crate::command::{self, Show};
use crate::release::crates;
use crate::tally::Tally;
use crate::workspace::{self, Workspace, array, text};

const FEATURES: [(&str, Option<&str>); 3] = [
    ("default features", None),
    ("no features", Some("--no-default-features")),
    ("all features", Some("--all-features")),
];

pub(crate) fn run(workspace: &Workspace) -> Tally {
    match try_run(workspace) {
        Ok(tally) => tally,
        Err(why) => Tally::failed(format!("msrv: {why}")),
    }
}

fn try_run(workspace: &Workspace) -> Result<Tally, String> {
    let metadata = workspace::metadata()?;
    let crates = crates::read(&metadata)?;
    let promised = |name: &str| {
        let found = array(&metadata["packages"]).find(|it| it["name"] == name);
        found.map_or_else(String::new, |it| text(&it["rust_version"]))
    };
    let installed = command::run("rustup", &["toolchain", "list"], Show::Never);
    if !installed.success {
        return Ok(Tally::skipped(
            "msrv: rustup, which locates the compiler, is not installed",
        ));
    }
    let mut tally = Tally::default();
    for found in &crates {
        let version = promised(&found.name);
        if version.is_empty() {
            tally
                .failures
                .push(format!("msrv: {} has no `rust-version`", found.name));
        } else if !has(&installed.output, &version) {
            let how = format!("rustup toolchain install {version} --profile minimal");
            tally.skipped.push(format!(
                "msrv: {}: {version} is not installed: {how}",
                found.name
            ));
        } else {
            tally += check(workspace, &found.name, &version);
        }
    }
    Ok(tally)
}

fn check(workspace: &Workspace, name: &str, version: &str) -> Tally {
    let mut tally = Tally::default();
    for (what, option) in FEATURES {
        let mut cargo = Command::new("cargo");
        cargo
            .args([
                &format!("+{version}"),
                "check",
                "--quiet",
                "--locked",
                "--color=never",
                "-p",
                name,
            ])
            .args(option)
            // In the common target directory, each compiler would discard the output of the other.
            .env("CARGO_TARGET_DIR", workspace.target.join("msrv"));
        let ended = command::finish(&mut cargo, Show::OnFailure);
        println!(
            "{name:<20}{version:<9}{what:<18}{}",
            if ended.success { "ok" } else { "FAILED" }
        );
        match ended.success {
            true => tally.passed += 1,
            false => tally
                .failures
                .push(format!("msrv: {name} with {what} on {version}")),
        }
    }
    tally
}

/// Whether `rustup toolchain list` has `1.89-x86_64…` or `1.89.0-x86_64…` for 1.89.
fn has(list: &str, version: &str) -> bool {
    list.lines().any(|line| {
        let rest = line.strip_prefix(version);
        rest.is_some_and(|rest| rest.starts_with('-') || rest.starts_with(".0-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_is_found_by_its_version() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default)\n1.89.0-x86_64-unknown-linux-gnu\n1.90-x86_64-unknown-linux-gnu\n";
        assert!(has(list, "1.89") && has(list, "1.90") && !has(list, "1.9") && !has(list, "1.88"));
    }
}
