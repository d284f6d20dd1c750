//! Takes the crates to a registry: `plan`, `check`, `cut`, `publish`, `tag`, and all of it against a registry on loopback. What changes anything
//! outside of `target` does so with `--execute` only.

mod bump;
mod changelog;
mod check;
pub(crate) mod crates;
mod cut;
mod git;
mod publish;
mod rehearse;
mod rules;
mod tag;
mod target;

use self::crates::Crate;
use self::publish::Manner;
pub(crate) use self::target::Target;
use crate::tally::Tally;
use crate::workspace::{self, Workspace};

/// A step of a release.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Step {
    /// Shows in which order the crates go, and what the registry has of them.
    Plan {
        #[command(flatten)]
        target: Target,
    },
    /// Checks whether all crates can be released as they stand.
    Check(check::Arguments),
    /// Makes the commit: versions, requirements, changelogs.
    Cut(cut::Arguments),
    /// Publishes what the registry lacks, in order; goes on where it stopped.
    Publish {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        manner: Manner,
        /// Does it; without, it only shows what it would do.
        #[arg(long)]
        execute: bool,
    },
    /// Tags what the registry has, as CRATE-vVERSION, at the commit that its package was made of.
    Tag {
        #[command(flatten)]
        target: Target,
        /// Does it; without, it only shows what it would do.
        #[arg(long)]
        execute: bool,
    },
    /// Publishes all crates into a registry on loopback, and takes each from there into an empty project.
    Rehearse(rehearse::Arguments),
}

/// Publishes all crates to a registry on loopback, and builds nothing.
pub(crate) fn quick_rehearsal(workspace: &Workspace) -> Tally {
    run(workspace, &Step::Rehearse(rehearse::Arguments::quick()))
}

pub(crate) fn run(workspace: &Workspace, step: &Step) -> Tally {
    let crates = match workspace::metadata().and_then(|metadata| crates::read(&metadata)) {
        Ok(crates) => crates,
        Err(why) => return Tally::failed(format!("release: {why}")),
    };
    match step {
        Step::Plan { target } => plan(&crates, target),
        Step::Check(arguments) => check::run(workspace, &crates, arguments),
        Step::Cut(arguments) => cut::run(&workspace.root, &crates, arguments),
        Step::Publish {
            target,
            manner,
            execute: true,
        } => match check::unready(&crates, manner.allow_dirty) {
            unready if unready.is_empty() => publish::run(&crates, target, *manner),
            unready => Tally {
                failures: unready,
                ..Tally::default()
            },
        },
        Step::Publish { target, .. } => {
            let tally = plan(&crates, target);
            println!("nothing was done: --execute does it");
            tally
        }
        Step::Tag { target, execute } => tag::run(&workspace.root, &crates, target, *execute),
        Step::Rehearse(arguments) => rehearse::run(workspace, &crates, arguments),
    }
}

/// Names what keeps the crates from being released, as far as it is seen without a compiler or a registry.
pub(crate) fn wrong() -> Vec<String> {
    match workspace::metadata().and_then(|metadata| crates::read(&metadata)) {
        Ok(crates) => check::standing(&crates),
        Err(why) => vec![why],
    }
}

fn plan(crates: &[Crate], target: &Target) -> Tally {
    let mut tally = Tally::default();
    let published = publish::published(crates, target);
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
