//! Takes the crates to crates.io: `plan`, `check`, `package`, `cut`, `publish`, `tag`. A step changes something outside of `target` with `--execute` only.

mod bump;
mod changelog;
mod check;
pub(crate) mod crates;
mod cut;
mod git;
mod publish;
mod registry;
mod rules;
mod tag;

use self::crates::Crate;
use self::publish::Manner;
use crate::tally::Tally;
use crate::workspace::{self, Workspace};

/// A step of a release.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Step {
    /// Shows the order of the uploads, and which versions crates.io has.
    Plan,
    /// Checks whether all crates can be released as they stand.
    Check(check::Arguments),
    /// Packs all crates without building them or asking crates.io.
    Package,
    /// Makes the commit: versions, requirements, changelogs.
    Cut(cut::Arguments),
    /// Publishes the versions that crates.io lacks, in order; called again, it resumes.
    Publish {
        #[command(flatten)]
        manner: Manner,
        /// Does it; without, it only shows what it would do.
        #[arg(long)]
        execute: bool,
    },
    /// Tags each published version as CRATE-vVERSION, at the commit that its package was made of.
    Tag {
        /// Does it; without, it only shows what it would do.
        #[arg(long)]
        execute: bool,
    },
}

/// Packs all crates, for `ci`.
pub(crate) fn package(workspace: &Workspace) -> Tally {
    run(workspace, &Step::Package)
}

/// Reads the crates that are published, in the order of their upload.
fn published() -> Result<Vec<Crate>, String> {
    workspace::metadata().and_then(|metadata| crates::read(&metadata))
}

pub(crate) fn run(workspace: &Workspace, step: &Step) -> Tally {
    let crates = match published() {
        Ok(crates) => crates,
        Err(why) => return Tally::failed(format!("release: {why}")),
    };
    match step {
        Step::Plan => plan(&crates),
        Step::Check(arguments) => check::run(workspace, &crates, arguments),
        Step::Package => check::packed(&crates),
        Step::Cut(arguments) => cut::run(&workspace.root, &crates, arguments),
        Step::Publish {
            manner,
            execute: true,
        } => match check::unready(&crates, manner.allow_dirty) {
            unready if unready.is_empty() => publish::run(&crates, *manner),
            unready => Tally {
                failures: unready,
                ..Tally::default()
            },
        },
        Step::Publish { .. } => {
            let tally = plan(&crates);
            println!("nothing was done: --execute does it");
            tally
        }
        Step::Tag { execute } => tag::run(&workspace.root, &crates, *execute),
    }
}

/// Names what keeps the crates from being released, as far as it is seen without a compiler or a registry.
pub(crate) fn wrong() -> Vec<String> {
    match published() {
        Ok(crates) => check::standing(&crates),
        Err(why) => vec![why],
    }
}

fn plan(crates: &[Crate]) -> Tally {
    let mut tally = Tally::default();
    let published = publish::published(crates);
    println!(
        "{:<4}{:<20}{:<9}{:<12}{:<26}needs",
        "", "crate", "version", "registry", "last tag"
    );
    for (at, found) in crates.iter().enumerate() {
        let state = match published.as_ref().map(|it| it[at]) {
            Ok(true) => "published",
            Ok(false) => "to publish",
            Err(_) => "unknown",
        };
        let last = git::last_tag(&found.name).unwrap_or_else(|| "none".into());
        let needs: Vec<&str> = found.siblings.keys().map(String::as_str).collect();
        println!(
            "{:<4}{:<20}{:<9}{state:<12}{last:<26}{}",
            at + 1,
            found.name,
            found.version.to_string(),
            needs.join(", ")
        );
        tally.passed += usize::from(state != "unknown");
    }
    if let Err(why) = published {
        tally += Tally::skipped(format!("plan: {why}"));
    }
    tally
}
