//! Compares the public API of each library with its text below `docs/api`, so that a reviewer sees each change of it. Also finds test snapshots that
//! nobody accepted or that no test uses.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;

use crate::changes;
use crate::command;
use crate::sources::{self, Source};
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

const FOLDER: &str = "docs/api";

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Write the current public API
    #[arg(long)]
    update: bool,
}

pub(crate) fn run(workspace: &Workspace, arguments: Arguments) -> Tally {
    let program = command::nightly().and_then(|()| Tool::PublicApi.find_or_install(workspace));
    judged(workspace, program, arguments.update, Tally::failed)
}

/// Compares as [`run`] does, but only with an installed tool, because a missing tool must neither delay nor fail the other stages. Skips a library if
/// the tool can't parse the output of this nightly compiler, whose format changes.
pub(crate) fn stage(workspace: &Workspace) -> Tally {
    let absent = "cargo-public-api is not installed; install it with `cargo xtask snapshots`";
    let program =
        command::nightly().and_then(|()| Tool::PublicApi.find(workspace).ok_or(absent.to_owned()));
    judged(workspace, program, false, Tally::skipped)
}

fn judged(
    workspace: &Workspace,
    program: Result<PathBuf, String>,
    update: bool,
    unread: fn(String) -> Tally,
) -> Tally {
    let mut tally = of_tests(workspace);
    let names = program.and_then(|program| public_names(workspace, &program, update, unread));
    tally += names.unwrap_or_else(|why| Tally::skipped(format!("snapshots: public names: {why}")));
    tally
}

/// Checks the snapshots of tests: this needs no other compiler and takes no time.
fn of_tests(workspace: &Workspace) -> Tally {
    let mut tally = Tally::default();
    let sources = sources::read(&workspace.root);
    for (what, wrong) in [
        ("not accepted", pending(&workspace.root)),
        ("not used by a test", left_over(workspace, &sources)),
    ] {
        wrong
            .iter()
            .for_each(|path| println!("    {}", path.display()));
        match wrong.is_empty() {
            true => tally.passed += 1,
            false => tally += Tally::failed(format!("snapshots: {what}")),
        }
    }
    tally
}

/// Compares the public API of each library. An error states why it is unknown on this machine.
fn public_names(
    workspace: &Workspace,
    program: &Path,
    update: bool,
    unread: fn(String) -> Tally,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for package in workspace.libraries() {
        let name = package.name.as_str();
        // Building a C library would add minutes and no name.
        let features = package.features.iter().map(String::as_str);
        let features: Vec<&str> = features.filter(|name| !name.ends_with("bundled")).collect();
        // Omits auto traits, which follow from the fields, and blanket implementations, which every type has.
        let mut command = Command::new(program);
        command
            .args([
                "public-api",
                "--package",
                name,
                "--no-default-features",
                "-sss",
            ])
            .args(["--color", "never", "--features", &features.join(",")]);
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            print!("{}", String::from_utf8_lossy(&output.stderr));
            tally += unread(format!("snapshots: can't read the names of {name}"));
            continue;
        }
        let shown = String::from_utf8_lossy(&output.stdout);
        let path = workspace.root.join(FOLDER).join(format!("{name}.txt"));
        if update {
            fs::create_dir_all(workspace.root.join(FOLDER)).map_err(|error| error.to_string())?;
            fs::write(&path, shown.as_bytes()).map_err(|error| error.to_string())?;
        }
        let changes = changes::of(&fs::read_to_string(&path).unwrap_or_default(), &shown);
        changes.iter().for_each(|line| println!("    {line}"));
        match changes.is_empty() {
            true => {
                println!("snapshots: the public names of {name}: ok");
                tally.passed += 1;
            }
            false => {
                println!("    if this change is intended: cargo xtask snapshots --update");
                tally += Tally::failed(format!("snapshots: the public names of {name}"));
            }
        }
    }
    Ok(tally)
}

/// Returns the files that tests wrote because their output differs from the accepted snapshot.
fn pending(root: &Path) -> Vec<PathBuf> {
    let files = sources::with_extensions(root, &["new", "pending-snap"]);
    files.into_iter().map(|file| file.path).collect()
}

/// Returns the snapshots whose name is in no source of their package. The name is that of a test, or an explicit one.
fn left_over(workspace: &Workspace, sources: &[Source]) -> Vec<PathBuf> {
    let mut left_over = Vec::new();
    for snapshot in sources::with_extensions(&workspace.root, &["snap"]) {
        let path = workspace.root.join(&snapshot.path);
        let folder = workspace
            .packages
            .iter()
            .find(|package| path.starts_with(&package.folder));
        let folder = folder.and_then(|package| package.folder.strip_prefix(&workspace.root).ok());
        let mut near = sources
            .iter()
            .filter(|source| folder.is_some_and(|folder| source.path.starts_with(folder)));
        let name = name_of(&snapshot.path);
        if !near.any(|source| source.text.contains(&name)) {
            left_over.push(snapshot.path);
        }
    }
    left_over
}

/// Returns `menu` for `it__terminal__menu-2.snap`.
fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = stem.rsplit("__").next().unwrap_or_default();
    match name.rsplit_once('-') {
        Some((name, number)) if number.parse::<u32>().is_ok() => name.into(),
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    #[test]
    fn unreadable_names_fail_if_requested_and_are_named_otherwise() {
        let root = tempfile::tempdir().unwrap();
        let package = Package {
            name: "a".into(),
            folder: root.path().join("crates/a"),
            is_library: true,
            is_published: true,
            ..Package::default()
        };
        let workspace = Workspace {
            root: root.path().into(),
            target: root.path().join("target"),
            packages: vec![package],
        };
        let of =
            |program: Result<PathBuf, String>, unread| judged(&workspace, program, false, unread);
        let unreadable = || Ok("false".into());
        assert!(of(unreadable(), Tally::failed).is_red());
        let stage = of(unreadable(), Tally::skipped);
        assert_eq!(stage.skipped, ["snapshots: can't read the names of a"]);
        let absent = of(Err("no tool".into()), Tally::skipped);
        assert_eq!(absent.skipped, ["snapshots: public names: no tool"]);
        assert!(!stage.is_red() && !absent.is_red());
    }

    #[test]
    fn snapshot_name_comes_from_its_test_or_an_explicit_name() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("a/snapshots/it__terminal__menu-2.snap"), "menu");
        assert_eq!(
            name("a/snapshots/a__b__tests__claude-code.snap"),
            "claude-code"
        );
    }
}
