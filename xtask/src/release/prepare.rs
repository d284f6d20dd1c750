//! Creates the commit of a release: versions, requirements of siblings, changelogs, READMEs, the lock file.

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::bump::{self, Bump, CrateVersion, History, Pick};
use super::crates::Crate;
use super::{changelog, git};
use crate::command::{self, Show};
use crate::date;
use crate::tally::Tally;

/// The crates to release, and their versions.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The part of the version to increase for each changed crate that was released before; below 1.0.0 a breaking change is `minor`
    #[arg(long, value_name = "PART")]
    bump: Option<Bump>,
    /// The version of a crate, which overrides --bump
    #[arg(value_name = "CRATE=VERSION")]
    picks: Vec<Pick>,
    /// Create the commit; without this option, only show the changes
    #[arg(long)]
    execute: bool,
}

pub(crate) fn run(root: &Path, crates: &[Crate], arguments: &Arguments) -> Tally {
    match try_run(root, crates, arguments) {
        Ok(()) => Tally::passed(1),
        Err(why) => Tally::failed(format!("release cut: {why}")),
    }
}

/// A file and its new content.
type Edit = (PathBuf, String);

fn try_run(root: &Path, crates: &[Crate], arguments: &Arguments) -> Result<(), String> {
    git::whole(root)?;
    if arguments.execute {
        unchanged()?;
    }
    let mut known = Vec::new();
    for found in crates {
        known.push((found.clone(), history(root, found)?));
    }
    let cuts = bump::decide(&known, arguments.bump, &arguments.picks)?;
    if cuts.is_empty() {
        let why = "no changelog has an entry under Unreleased: nothing changed, or the release commit exists and `release publish` is next";
        return Err(why.into());
    }
    let edits = edits(root, crates, &cuts, &date::today())?;
    let words: Vec<_> = cuts.iter().map(ToString::to_string).collect();
    let subject = format!("release: {}", words.join(", "));
    for (path, text) in &edits {
        if read(path)? != *text {
            println!(
                "change {}",
                path.strip_prefix(root).unwrap_or(path).display()
            );
        }
    }
    println!("commit {subject}");
    if !arguments.execute {
        println!("nothing was done; add --execute to do it");
        return Ok(());
    }
    for (path, text) in &edits {
        fs::write(path, text).map_err(|error| error.to_string())?;
    }
    let locked = command::run(
        "cargo",
        &["update", "--quiet", "--workspace", "--offline"],
        Show::Never,
    );
    if !locked.success {
        return Err(format!(
            "the lock file: {}; undo the edits with `git checkout .`",
            locked.output.trim()
        ));
    }
    git::git(&["commit", "--quiet", "--all", "--message", &subject])?;
    println!("{}", git::git(&["log", "--oneline", "-1"])?);
    Ok(())
}

/// Fails if the working tree has changes, because the commit would contain them.
fn unchanged() -> Result<(), String> {
    match git::changes()?.first() {
        None => Ok(()),
        Some(change) => Err(format!(
            "the working tree has changes, such as `{change}`: commit them first, or remove those of an interrupted cut with `git checkout .`"
        )),
    }
}

fn history(root: &Path, found: &Crate) -> Result<History, String> {
    let changelog = read(&found.folder.join("CHANGELOG.md"))?;
    Ok(History {
        is_tagged: git::has_tag(root, &found.tag()),
        is_changed: changelog::section(&changelog, changelog::UNRELEASED)
            .is_some_and(|body| !body.is_empty()),
    })
}

/// Returns the new contents of the files of a release.
fn edits(
    root: &Path,
    crates: &[Crate],
    cuts: &[CrateVersion],
    date: &str,
) -> Result<Vec<Edit>, String> {
    let manifest = root.join("Cargo.toml");
    let text = bump::set_requirements(&read(&manifest)?, cuts)?;
    let mut edits = vec![(manifest, text)];
    for cut in cuts {
        let found = crates.iter().find(|found| found.name == cut.name);
        let found = found.ok_or("every released crate is a member")?;
        let mut edit = |file: &str, change: &dyn Fn(&str) -> Result<String, String>| {
            let path = found.folder.join(file);
            let text =
                change(&read(&path)?).map_err(|why| format!("{}: {file}: {why}", cut.name))?;
            edits.push((path, text));
            Ok::<_, String>(())
        };
        edit("Cargo.toml", &|text| bump::set_version(text, &cut.version))?;
        edit("CHANGELOG.md", &|text| {
            let noted = cut
                .notes
                .iter()
                .fold(text.to_owned(), |text, note| changelog::note(&text, note));
            changelog::cut(&noted, &cut.version, date)
        })?;
    }
    for found in crates {
        let path = found.folder.join("README.md");
        let text = cuts.iter().fold(read(&path)?, |text, cut| {
            bump::set_readme(&text, &cut.name, &cut.version)
        });
        edits.push((path, text));
    }
    Ok(edits)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| error.to_string())
}
