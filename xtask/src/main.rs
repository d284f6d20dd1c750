//! Maintainers' commands, from `cargo xtask ci` to `cargo xtask release`. See `README.md`.
#![expect(
    clippy::print_stdout,
    reason = "a program for maintainers, whose output is its purpose"
)]

mod acceptance;
mod bench;
mod changes;
mod ci;
mod command;
mod crash_test;
mod day;
mod dist;
mod docs;
mod features;
mod fuzz;
mod lint;
mod live;
mod loom;
mod minimal;
mod msrv;
mod mutants;
mod night;
mod nightly;
mod peers;
mod picture;
mod release;
mod skips;
mod snapshots;
mod sources;
mod survivors;
mod tables;
mod tally;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command::Show;
use crate::features::Choice;
use crate::tally::Tally;
use crate::workspace::Workspace;

#[derive(Debug, Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    about = "Maintainers' commands"
)]
struct Arguments {
    /// What can't be done here is a failure, not a skip.
    #[arg(long, global = true)]
    strict: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(about = ci::about())]
    Ci,
    /// Runs one stage of `ci`, and closes with what `ci` reads.
    #[command(hide = true)]
    Stage { name: String },
    /// Checks formatting, clippy and the rules of the house.
    Lint(lint::Arguments),
    /// Runs all tests and doctests.
    Test,
    /// Lists the acceptance items, their clauses and the tests that show them, and judges them by the last test run.
    Acceptance {
        /// Only those that no test shows.
        #[arg(long)]
        missing: bool,
    },
    /// Builds the documentation without warnings, and follows its links.
    Docs,
    /// Runs `rlm` around the real agent CLIs, at pinned versions from npm, against a scripted model. `ci` makes one check an agent, `nightly` makes all.
    Live(live::Arguments),
    /// Measures ours, a peer and the floor in turn, and judges the targets.
    Bench(bench::Arguments),
    /// Looks for an acknowledged save that a crash, a fault or a second writer loses.
    CrashTest(crash_test::Arguments),
    /// Plays nights of a run in moments, each from a seed.
    Night(night::Arguments),
    #[command(about = nightly::about())]
    Nightly(nightly::Arguments),
    /// Stops a loop runner, ours or any other, in eight ways, and counts what it leaves alive.
    Survivors(survivors::Arguments),
    /// Runs the fuzz targets of the store's readers.
    Fuzz(fuzz::Arguments),
    /// Checks the published crates with the oldest compiler that they promise.
    Msrv,
    /// Packs `rlm` into an archive for those without cargo.
    Dist(dist::Arguments),
    /// Takes the crates to crates.io, a step at a time.
    #[command(subcommand)]
    Release(release::Step),
    /// Checks each published crate with no, each, each two and all of its features.
    Features,
    /// Runs the tests that a model checker plays in every interleaving.
    Loom(loom::Arguments),
    /// Compiles the published crates with the oldest dependencies that they allow.
    Minimal,
    /// Looks for changes of the pure cores that no test notices; takes hours.
    Mutants(mutants::Arguments),
    /// Compares what each library shows with what was accepted, and looks for snapshots of tests that nobody accepted.
    Snapshots(snapshots::Arguments),
    /// Records `rlm demo` and draws `docs/rlm.svg`.
    Picture,
    /// Stops `rlm` in eight ways, looks for saves that a crash loses, and writes the results into `docs/proof.md`.
    Tables(tables::Arguments),
    /// Lists the tools that the commands use, and where they are found.
    Tools {
        /// Also installs those that are not there, into `target/tools`.
        #[arg(long)]
        install: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let workspace = match Workspace::find() {
        Ok(workspace) => workspace,
        Err(error) => return finish(&Tally::failed(format!("cargo metadata: {error}"))),
    };
    let strict = arguments.strict;
    let tally = match arguments.command {
        Command::Ci => ci::run(strict),
        Command::Stage { name } => {
            let tally = ci::run_stage(&workspace, &name);
            println!("{}", tally::COUNTS);
            tally
        }
        Command::Lint(arguments) => lint::run(&workspace, &arguments),
        Command::Test => test::run(&workspace, Show::AsItComes),
        Command::Acceptance { missing } => acceptance::run(&workspace, missing),
        Command::Docs => docs::run(&workspace),
        Command::Live(arguments) => live::run(&arguments),
        Command::Bench(arguments) => bench::run(&workspace, &arguments),
        Command::CrashTest(arguments) => crash_test::run(&arguments),
        Command::Night(arguments) => night::run(&arguments),
        Command::Nightly(arguments) => nightly::run(&workspace, &arguments, strict),
        Command::Survivors(arguments) => survivors::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&workspace, &arguments),
        Command::Msrv => msrv::run(&workspace),
        Command::Dist(arguments) => dist::run(&workspace, &arguments),
        Command::Release(step) => release::run(&workspace, &step),
        Command::Features => features::run(&workspace, Choice::Pairs),
        Command::Loom(arguments) => loom::run(&workspace, arguments),
        Command::Minimal => minimal::run(&workspace),
        Command::Mutants(arguments) => mutants::run(&workspace, &arguments),
        Command::Snapshots(arguments) => snapshots::run(&workspace, arguments),
        Command::Picture => picture::run(),
        Command::Tables(arguments) => tables::run(&workspace, &arguments),
        Command::Tools { install } => tools::run(&workspace, install),
    };
    finish(&tally.judged(strict))
}

/// Names what failed and what was skipped, and closes with the counts.
fn finish(tally: &Tally) -> ExitCode {
    for skip in &tally.skipped {
        println!("skipped: {skip}");
    }
    for failure in &tally.failures {
        println!("failed: {failure}");
    }
    println!("{tally}");
    if tally.is_red() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
