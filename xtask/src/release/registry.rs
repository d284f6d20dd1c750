//! The state of crates.io, as cargo reports it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;
use semver::Version;

use crate::command::{self, Show};

/// Cargo's name for crates.io.
pub(super) const NAME: &str = "crates-io";

/// Queries the index for this version, or any version, of a crate.
///
/// # Errors
///
/// If the index does not answer.
pub(super) fn has(name: &str, version: Option<&Version>) -> Result<bool, String> {
    asked(&mut Command::new("cargo"), name, version)
}

/// Downloads a package into a cargo home that does not contain it yet, and returns the directory into which cargo unpacked it; `None` if the registry
/// does not have it.
///
/// # Errors
///
/// If the index does not answer, or the package can't be downloaded.
pub(super) fn take(home: &Path, name: &str, version: &Version) -> Result<Option<PathBuf>, String> {
    // Cargo unpacks the package to read its manifest.
    let mut cargo = Command::new("cargo");
    if !asked(cargo.env("CARGO_HOME", home), name, Some(version))? {
        return Ok(None);
    }
    let sources = fs::read_dir(home.join("registry/src")).map_err(|error| error.to_string())?;
    let mut folders = { sources.flatten() }.map(|it| it.path().join(format!("{name}-{version}")));
    let folder = folders.find(|it| it.is_dir());
    folder.map(Some).ok_or_else(|| {
        format!("cargo found {name} {version} but did not unpack it; try another version of cargo")
    })
}

fn asked(cargo: &mut Command, name: &str, version: Option<&Version>) -> Result<bool, String> {
    let spec = version.map_or_else(|| name.to_owned(), |version| format!("{name}@{version}"));
    cargo.args(["info", "--color=never", "--registry", NAME, &spec]);
    // In a workspace, cargo would describe the member instead.
    cargo.current_dir(std::env::temp_dir());
    let ended = command::finish(cargo, Show::Never);
    answer(ended.success, &ended.output)
}

/// Returns whether the index has it. An error of an offline cargo is not a "no".
fn answer(success: bool, output: &str) -> Result<bool, String> {
    if success {
        return Ok(true);
    }
    if output.contains("could not find") && output.contains("Updating") {
        return Ok(false);
    }
    let mut lines = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let error = lines.find(|line| line.starts_with("error"));
    let error = error.unwrap_or("cargo printed no error");
    // Each `Caused by:` is one step closer to the cause; the last one is the cause.
    let why = lines
        .next_back()
        .map_or(error.to_owned(), |cause| format!("{error}: {cause}"));
    Err(format!("the index does not answer: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unqueried_index_has_no_answer() {
        let absent =
            "    Updating crates.io index\nerror: could not find `x@0.1.0` in registry `y`\n";
        assert_eq!(answer(false, absent), Ok(false));
        assert_eq!(answer(true, "x\n"), Ok(true));
        for silent in [
            "error: could not find `x@0.1.0` in registry `y`\n",
            "    Updating crates.io index\nwarning: spurious network error (1 try remaining)\nerror: download of config.json failed\n\nCaused by:\n  no such host\n",
        ] {
            let why = answer(false, silent).unwrap_err();
            assert!(
                why.starts_with("the index does not answer: error: "),
                "{why}"
            );
            assert!(
                !why.contains("spurious")
                    && (!silent.contains("host") || why.ends_with(": no such host")),
                "{why}"
            );
        }
    }
}
