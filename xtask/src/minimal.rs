//! Whether the published crates compile with the oldest dependencies that their manifests allow: a lower bound that nobody tries becomes a lie.

use std::io;
use std::path::Path;
use std::process::Command;

use fs_err as fs;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Not a part of the workspace's sources, at its root.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

pub(crate) fn run(workspace: &Workspace) -> Tally {
    if !command::run("cargo", &["+nightly", "--version"], Show::Never).success {
        return Tally::skipped("minimal: a nightly compiler is not installed");
    }
    // In a copy, so that the lock file stays as it is.
    let copy = workspace.target.join("minimal");
    let sources = copy.join("sources");
    let fresh = match fs::remove_dir_all(&sources) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => copy_sources(&workspace.root, &sources),
    };
    if let Err(error) = fresh {
        return Tally::failed(format!("minimal: {}: {error}", sources.display()));
    }
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo
            .args(arguments)
            .current_dir(&sources)
            .env("CARGO_TARGET_DIR", copy.join("build"));
        command::finish(&mut cargo, Show::OnFailure).success
    };
    if !cargo(&["+nightly", "update", "--quiet", "-Zdirect-minimal-versions"]) {
        return Tally::failed("minimal: no versions fit together");
    }
    let mut tally = Tally::default();
    for package in workspace.published() {
        let check = ["check", "--quiet", "--all-features", "-p", &package.name];
        match cargo(&check) {
            true => tally.passed += 1,
            false => tally += Tally::failed(format!("minimal: {}", package.name)),
        }
    }
    tally
}

fn copy_sources(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if kind.is_dir() && !LEFT_OUT.iter().any(|left_out| name == *left_out) {
            copy_sources(&entry.path(), &to.join(&name))?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(&name))?;
        }
    }
    Ok(())
}
