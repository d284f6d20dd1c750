//! Checks whether all crates can be released: one table of all crates, and the errors in words.

use std::process::Command;

use fs_err as fs;

use super::crates::Crate;
use super::{bump, changelog, git, registry, rules};
use crate::command::{self, Show};
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// The scope of the check.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Skip the parts that compile: the dry run of the upload, and the comparison with the last release
    #[arg(long)]
    quick: bool,
    /// Also check a working tree with uncommitted changes
    #[arg(long)]
    allow_dirty: bool,
}

/// The result of one check of one crate.
enum CrateCheck {
    /// Passed, with the word for the table.
    Fine(&'static str),
    Wrong(Vec<String>),
    Skipped(String),
    /// Skipped for a reason that holds for all crates and is printed once.
    Unreported,
}

impl CrateCheck {
    fn of(wrong: Vec<String>) -> Self {
        match wrong.is_empty() {
            true => Self::Fine("ok"),
            false => Self::Wrong(wrong),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Fine(word) => word,
            Self::Wrong(_) => "WRONG",
            Self::Skipped(_) | Self::Unreported => "skipped",
        }
    }
}

const COLUMNS: [&str; 7] = [
    "manifest",
    "changelog",
    "readme",
    "siblings",
    "files",
    "name",
    "semver",
];

pub(crate) fn run(workspace: &Workspace, crates: &[Crate], arguments: &Arguments) -> Tally {
    let mut tally = Tally::default();
    let names = known(crates);
    let semver = compared(workspace, crates, arguments.quick);
    println!(
        "{:<20}{:<9}{}",
        "crate",
        "version",
        COLUMNS.map(|it| format!("{it:<10}")).concat()
    );
    for (at, found) in crates.iter().enumerate() {
        let [manifest, changelog, readme, siblings, files] = static_checks(found, crates);
        let name = match &names {
            Ok(known) => name(found, known[at]),
            Err(_) => CrateCheck::Unreported,
        };
        let semver = breaks(workspace, found, semver.is_ok());
        let cells = [manifest, changelog, readme, siblings, files, name, semver];
        let words: Vec<_> = cells
            .iter()
            .map(|cell| format!("{:<10}", cell.word()))
            .collect();
        println!(
            "{:<20}{:<9}{}",
            found.name,
            found.version.to_string(),
            words.concat()
        );
        for (column, cell) in COLUMNS.into_iter().zip(cells) {
            tally += counted(cell, &format!("{}: {column}", found.name));
        }
    }
    if crates
        .iter()
        .all(|found| git::last_tag(&found.name).is_none())
    {
        println!("semver: first release, nothing to compare");
    }
    for (column, unknown) in [
        ("name", names.as_ref().err()),
        ("semver", semver.as_ref().err()),
    ] {
        tally
            .skipped
            .extend(unknown.map(|why| format!("{column}: {why}")));
    }
    tally += counted(tree(arguments.allow_dirty), "the working tree");
    let dry = match names {
        Ok(_) => dry_run(crates, arguments),
        Err(why) => CrateCheck::Skipped(why),
    };
    tally += counted(dry, "the dry run");
    tally
}

/// Returns for each name whether the registry knows it. Stops at the first query without an answer.
fn known(crates: &[Crate]) -> Result<Vec<bool>, String> {
    let known = crates.iter().map(|found| registry::has(&found.name, None));
    known.collect()
}

/// Finds or installs the tool before the table, if there is a release to compare with.
fn compared(workspace: &Workspace, crates: &[Crate], quick: bool) -> Result<(), String> {
    let is_later = |found: &Crate| found.lib.is_some() && git::last_tag(&found.name).is_some();
    match crates.iter().any(is_later) {
        false => Ok(()),
        true if quick => Err("a quick check compiles nothing".into()),
        true => Tool::SemverChecks.find_or_install(workspace).map(drop),
    }
}

/// Names the errors of the crates without compiling anything or contacting a registry.
pub(crate) fn static_errors(crates: &[Crate]) -> Vec<String> {
    let wrong = crates.iter().flat_map(|found| {
        let cells = static_checks(found, crates).into_iter().zip(COLUMNS);
        let tallies =
            cells.map(|(cell, column)| counted(cell, &format!("{}: {column}", found.name)));
        tallies.flat_map(|tally| tally.failures)
    });
    wrong.collect()
}

/// Names the problems that block all crates, before the upload of the first: uncommitted changes in any crate, and versions without a section in
/// their changelog, which `release cut` did not prepare.
pub(super) fn unready(crates: &[Crate], allow_dirty: bool) -> Vec<String> {
    let dirty = match tree(allow_dirty) {
        CrateCheck::Wrong(lines) => lines,
        _ => Vec::new(),
    };
    let dirty = dirty
        .into_iter()
        .map(|line| format!("the working tree: {line}"));
    dirty.chain(uncut(crates)).collect()
}

fn uncut(crates: &[Crate]) -> Vec<String> {
    let has = |found: &Crate| {
        let text = fs::read_to_string(found.folder.join("CHANGELOG.md")).unwrap_or_default();
        changelog::section(&text, &found.version.to_string()).is_some()
    };
    let uncut = crates.iter().filter(|found| !has(found));
    uncut
        .map(|found| {
            format!(
                "{} {}: not in the changelog: run `release cut` first",
                found.name, found.version
            )
        })
        .collect()
}

fn static_checks(found: &Crate, crates: &[Crate]) -> [CrateCheck; 5] {
    [
        CrateCheck::of(rules::manifest(found)),
        read(found, "CHANGELOG.md", |text| {
            changelog::problems(text, &found.version)
        }),
        read(found, "README.md", |text| stale(text, crates)),
        CrateCheck::of(siblings(found, crates)),
        files(found),
    ]
}

fn counted(cell: CrateCheck, what: &str) -> Tally {
    match cell {
        CrateCheck::Fine(_) => Tally::passed(1),
        CrateCheck::Skipped(why) => Tally::skipped(format!("{what}: {why}")),
        CrateCheck::Unreported => Tally::default(),
        CrateCheck::Wrong(lines) => Tally {
            failures: lines.iter().map(|line| format!("{what}: {line}")).collect(),
            ..Tally::default()
        },
    }
}

fn read(found: &Crate, file: &str, problems: impl FnOnce(&str) -> Vec<String>) -> CrateCheck {
    match fs::read_to_string(found.folder.join(file)) {
        Ok(text) => CrateCheck::of(problems(&text)),
        Err(error) => CrateCheck::Wrong(vec![error.to_string()]),
    }
}

/// Names the requirements of a README that differ from the released version.
fn stale(readme: &str, crates: &[Crate]) -> Vec<String> {
    let stale = readme.lines().flat_map(|line| {
        crates.iter().filter_map(move |it| {
            let old = bump::stale(line, &it.name, &it.version)?;
            Some(format!(
                "requires {} {old}, which is now {}",
                it.name, it.version
            ))
        })
    });
    stale.collect()
}

fn siblings(found: &Crate, crates: &[Crate]) -> Vec<String> {
    let wrong = found.siblings.iter().filter_map(|(name, requirement)| {
        let Some(sibling) = crates.iter().find(|it| it.name == *name) else {
            return Some(format!("needs {name}, which is not published"));
        };
        let takes = requirement.matches(&sibling.version) && requirement.to_string() != "*";
        (!takes).then(|| {
            format!(
                "requires {name} {requirement}, which is at {}",
                sibling.version
            )
        })
    });
    wrong.collect()
}

fn files(found: &Crate) -> CrateCheck {
    let words = [
        "package",
        "--list",
        "--allow-dirty",
        "--color=never",
        "--quiet",
        "-p",
        &found.name,
    ];
    let ended = command::run("cargo", &words, Show::Never);
    if !ended.success {
        return CrateCheck::Wrong(vec![ended.output.trim().to_owned()]);
    }
    let files: Vec<&str> = ended.stdout.lines().collect();
    let mut wrong = rules::files(&files);
    let size = |file: &&str| fs::metadata(found.folder.join(file)).map_or(0, |it| it.len());
    let bytes: u64 = files.iter().map(size).sum();
    if bytes > rules::LARGEST {
        wrong.push(format!(
            "{bytes} bytes in {} files; a registry takes 10 MB, packed",
            files.len()
        ));
    }
    CrateCheck::of(wrong)
}

/// Checks the name of a crate: if the registry knows it and no tag of ours exists, the name belongs to another owner.
fn name(found: &Crate, is_known: bool) -> CrateCheck {
    match is_known {
        false => CrateCheck::Fine("free"),
        true if git::last_tag(&found.name).is_some() => CrateCheck::Fine("ours"),
        true => CrateCheck::Wrong(vec![format!(
            "crates.io knows the name, but this clone has no tag {}-v…: another owner has the name, or run `git fetch --unshallow --tags`",
            found.name
        )]),
    }
}

fn breaks(workspace: &Workspace, found: &Crate, has_tool: bool) -> CrateCheck {
    let Some(tag) = git::last_tag(&found.name) else {
        return CrateCheck::Fine("first");
    };
    if found.lib.is_none() {
        return CrateCheck::Fine("no lib");
    }
    if !has_tool {
        return CrateCheck::Unreported;
    }
    let words = ["--color=never", "--baseline-rev", &tag, "-p", &found.name];
    match Tool::SemverChecks.run(workspace, &words, Show::Never) {
        Ok(ended) if ended.success => CrateCheck::Fine("ok"),
        Ok(ended) => CrateCheck::Wrong(vec![format!("since {tag}:\n{}", ended.output.trim_end())]),
        Err(why) => CrateCheck::Skipped(why),
    }
}

fn tree(allow_dirty: bool) -> CrateCheck {
    match git::changes() {
        Ok(changes) if changes.is_empty() || allow_dirty => CrateCheck::Fine("ok"),
        Ok(changes) => CrateCheck::Wrong(vec![format!(
            "{} uncommitted changes, such as `{}`",
            changes.len(),
            changes[0]
        )]),
        Err(why) => CrateCheck::Wrong(vec![why]),
    }
}

/// Packs all crates and builds each from its package, with the packages of the others in place of the registry.
fn dry_run(crates: &[Crate], arguments: &Arguments) -> CrateCheck {
    if arguments.quick {
        return CrateCheck::Skipped("a quick check compiles nothing".into());
    }
    let published = match super::publish::published(crates) {
        Ok(published) => published,
        Err(why) => return CrateCheck::Skipped(why),
    };
    let new: Vec<_> = crates
        .iter()
        .zip(published)
        .filter(|(_, has)| !has)
        .collect();
    if new.is_empty() {
        return CrateCheck::Fine("nothing to publish");
    }
    println!(
        "the dry run builds {} packages and their dependencies, which takes minutes",
        new.len()
    );
    let mut cargo = Command::new("cargo");
    cargo.args(["publish", "--dry-run", "--color=never"]);
    cargo.args(["--registry", registry::NAME]);
    cargo.args(arguments.allow_dirty.then_some("--allow-dirty"));
    for (found, _) in &new {
        cargo.args(["-p", &found.name]);
    }
    let ended = command::finish(&mut cargo, Show::Steps("Verifying"));
    match ended.success {
        true => CrateCheck::Fine("ok"),
        false => CrateCheck::Wrong(vec![command::errors(&ended.output).to_owned()]),
    }
}

/// Packs all crates as `cargo publish --workspace` does, including uncommitted changes. A warning is a failure. Builds nothing, and needs no network
/// once cargo has fetched the dependencies.
pub(super) fn packed(crates: &[Crate]) -> Tally {
    let mut cargo = Command::new("cargo");
    cargo.args(["package", "--no-verify", "--allow-dirty", "--offline"]);
    cargo.arg("--color=never");
    for found in crates {
        cargo.args(["-p", &found.name]);
    }
    let ended = command::finish(&mut cargo, Show::Steps("Packaging"));
    let warning = ended.output.lines().find(|it| it.starts_with("warning:"));
    match (ended.success, warning) {
        (true, None) => Tally::passed(crates.len()),
        (true, Some(warning)) => Tally::failed(format!("package: {warning}")),
        (false, _) => Tally::failed(format!("package: {}", command::errors(&ended.output))),
    }
}
