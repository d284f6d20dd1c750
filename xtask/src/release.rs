//! Publishes the crates to crates.io: `plan`, `check`, `package`, `cut`, `publish`, `tag`. A step changes nothing outside of `target` without
//! `--execute`.

mod bump;
mod changelog;
mod check;
pub(crate) mod crates;
mod git;
mod prepare;
mod publish;
mod registry;
mod rules;
mod tag;

use self::crates::Crate;
use self::publish::UploadOptions;
use crate::tally::Tally;
use crate::workspace::{self, Workspace};

/// A step of a release.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Step {
    /// Show the order of the uploads, and the versions on crates.io
    Plan,
    /// Check whether all crates can be released in their present state
    Check(check::Arguments),
    /// Pack all crates without building them or contacting crates.io
    Package,
    /// Create the release commit: versions, requirements, changelogs
    Cut(prepare::Arguments),
    /// Publish the versions that crates.io lacks, in order; a second call resumes
    Publish {
        #[command(flatten)]
        manner: UploadOptions,
        /// Publish; without this option, only show the steps
        #[arg(long)]
        execute: bool,
    },
    /// Tag each published version as CRATE-vVERSION, at the commit that its package was made of
    Tag {
        /// Create the tags; without this option, only show them
        #[arg(long)]
        execute: bool,
    },
}

/// Packs all crates, for `ci`.
pub(crate) fn package(workspace: &Workspace) -> Tally {
    run(workspace, &Step::Package)
}

/// Reads the published crates, in the order of their upload.
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
        Step::Cut(arguments) => prepare::run(&workspace.root, &crates, arguments),
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
            println!("nothing was done; add --execute to do it");
            tally
        }
        Step::Tag { execute } => tag::run(&workspace.root, &crates, *execute),
    }
}

/// Names the problems that block a release, as far as they can be found without a compiler or a registry.
pub(crate) fn wrong() -> Vec<String> {
    match published() {
        Ok(crates) => check::static_errors(&crates),
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
