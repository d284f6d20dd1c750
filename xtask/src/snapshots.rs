//! What each library shows to others, kept as text below `docs/api` so that a change of it is seen and meant; and snapshots of tests that nobody accepted
//! or that no test has.

use std::path::{Path, PathBuf};

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
    /// Writes what is shown now.
    #[arg(long)]
    update: bool,
}

pub(crate) fn run(workspace: &Workspace, arguments: Arguments) -> Tally {
    let mut tally = of_tests(workspace);
    match public_names(workspace, arguments.update) {
        Ok(names) => tally += names,
        Err(why) => tally += Tally::skipped(format!("snapshots: public names: {why}")),
    }
    tally
}

/// The part that needs no other compiler, and no time.
pub(crate) fn of_tests(workspace: &Workspace) -> Tally {
    let mut tally = Tally::default();
    let sources = sources::read(&workspace.root);
    for (what, wrong) in [
        ("not accepted", pending(&workspace.root)),
        ("no test's", left_over(workspace, &sources)),
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

/// Compares what each library shows; an error says why that can't be known here.
fn public_names(workspace: &Workspace, update: bool) -> Result<Tally, String> {
    command::nightly()?;
    let mut tally = Tally::default();
    for package in workspace.libraries() {
        let name = package.name.as_str();
        // A C library that is built along adds minutes, and no name.
        let features = package.features.iter().map(String::as_str);
        let features: Vec<&str> = features.filter(|name| !name.ends_with("bundled")).collect();
        // Without the traits that follow from the fields, and those that everything has.
        let mut command = Tool::PublicApi.command(workspace)?;
        command
            .args(["--package", name, "--no-default-features", "-sss"])
            .args(["--color", "never", "--features", &features.join(",")]);
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            print!("{}", String::from_utf8_lossy(&output.stderr));
            tally += Tally::failed(format!("snapshots: the names of {name} can't be read"));
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
                println!("{name}: its public names are those of {}", path.display());
                tally.passed += 1;
            }
            false => {
                println!("    if that is meant: cargo xtask snapshots --update");
                tally += Tally::failed(format!("snapshots: the public names of {name}"));
            }
        }
    }
    Ok(tally)
}

/// What a test wrote because it saw something else than what was accepted.
fn pending(root: &Path) -> Vec<PathBuf> {
    let files = sources::with_extensions(root, &["new", "pending-snap"]);
    files.into_iter().map(|file| file.path).collect()
}

/// The snapshots whose name, that of a test or one it is given, is nowhere in the sources of their package.
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

/// `menu` of `it__terminal__menu-2.snap`.
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

    #[test]
    fn a_snapshot_is_called_after_its_test_or_by_name() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("a/snapshots/it__terminal__menu-2.snap"), "menu");
        assert_eq!(
            name("a/snapshots/a__b__tests__claude-code.snap"),
            "claude-code"
        );
    }
}
