//! What crates.io has, as cargo reports it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;
use semver::Version;

use crate::command::{self, Show};

/// How cargo calls crates.io.
pub(super) const NAME: &str = "crates-io";

/// Asks the index whether it has this version, or any, of a crate.
///
/// # Errors
///
/// When the index does not answer.
pub(super) fn has(name: &str, version: Option<&Version>) -> Result<bool, String> {
    asked(&mut Command::new("cargo"), name, version)
}

/// Takes a package from the registry into a home of cargo's that has nothing of it yet, and returns the folder into which cargo unpacked it; `None` where the
/// registry does not have it.
///
/// # Errors
///
/// When the index does not answer, or the package can't be had.
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
        format!("cargo knows {name} {version} and did not unpack it: another cargo may")
    })
}

fn asked(cargo: &mut Command, name: &str, version: Option<&Version>) -> Result<bool, String> {
    let spec = version.map_or_else(|| name.to_owned(), |version| format!("{name}@{version}"));
    cargo.args(["info", "--color=never", "--registry", NAME, &spec]);
    // In a workspace cargo would describe its member instead.
    cargo.current_dir(std::env::temp_dir());
    let ended = command::finish(cargo, Show::Never);
    answer(ended.success, &ended.output)
}

/// An index that was not asked, since cargo is offline, knows nothing either.
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
    let error = error.unwrap_or("cargo says no word");
    // Each `Caused by:` goes a step back; the last is where it began.
    let why = lines
        .next_back()
        .map_or(error.to_owned(), |cause| format!("{error}: {cause}"));
    Err(format!("the index does not answer: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_was_not_asked_has_not_answered() {
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
