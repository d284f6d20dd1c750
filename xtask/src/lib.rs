//! Maintainers' commands, from `cargo xtask ci` to `cargo xtask release`. See `README.md`.
//!
//! xtask is a library, so that `cargo test --doc` and `cargo build --tests` select the same features of the dependencies. Otherwise cargo compiles them
//! twice.
#![expect(
    clippy::print_stdout,
    reason = "the output is the purpose of this program for maintainers"
)]

mod acceptance;
mod bench;
mod browser;
mod changes;
mod chosen_tests;
mod ci;
mod clippy;
mod command;
mod crash_test;
mod date;
mod dist;
mod docs;
mod features;
mod fleet_simulation;
mod fleet_storm;
mod fuzz;
mod lab;
mod lint;
mod live;
mod loom;
mod minimal;
mod msrv;
mod mutants;
mod nats_server;
mod night;
mod nightly;
mod peers;
mod picture;
mod release;
mod rustdoc;
mod skips;
mod snapshots;
mod sources;
mod survivors;
mod switch_off;
mod tables;
mod tally;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command::Show;
use crate::tally::Tally;
use crate::workspace::Workspace;

#[derive(Debug, Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    about = "Maintainers' commands"
)]
struct Arguments {
    /// Report a check that can't run here as a failure, not a skip
    #[arg(long, global = true)]
    strict: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(about = ci::about())]
    Ci,
    /// Runs one stage of `ci`, and ends with the counts that `ci` reads.
    #[command(hide = true)]
    Stage { name: String },
    /// Check formatting, clippy and the rules of this project
    Lint(lint::Arguments),
    /// Run all tests and doctests
    Test,
    /// List the acceptance items with their clauses and tests, and judge them by the last test run
    Acceptance {
        /// List only items and clauses without a test
        #[arg(long)]
        missing: bool,
    },
    /// Build the documentation without warnings, and check its links
    Docs,
    /// Run `rlm` with the real agent CLIs, at pinned versions from npm, against a scripted model. `ci` runs one check per agent, `nightly` runs all
    Live(live::Arguments),
    /// Test the pages of `rlm view` in headless Chromium
    Browser,
    /// Compare rlm with its peers and with the lowest possible cost, and judge the targets
    Bench(bench::Arguments),
    /// Search for acknowledged saves that a crash, a fault or a second writer loses
    CrashTest(crash_test::Arguments),
    /// Simulate fleets of 100 to 10,000 runs with crashes, freezes, partitions and restarts, and print what the server gets
    FleetSimulation(fleet_simulation::Arguments),
    /// Simulate nights of a run, each from a seed, in moments
    Night(night::Arguments),
    #[command(about = nightly::about())]
    Nightly(nightly::Arguments),
    /// Stop rlm or any other loop runner in eight ways, and count the survivors
    Survivors(survivors::Arguments),
    /// Kill workers and servers of a fleet, and judge what git has afterwards
    FleetStorm(fleet_storm::Arguments),
    /// Score rlm or any other loop runner by five promises: stop, resume, done, night and control
    Lab(lab::Arguments),
    /// Run the fuzz targets of the store's readers
    Fuzz(fuzz::Arguments),
    /// Check the published crates with the oldest supported compiler
    Msrv,
    /// Pack `rlm` into an archive for people without cargo
    Dist(dist::Arguments),
    /// Publish the crates to crates.io, one step at a time
    #[command(subcommand)]
    Release(release::Step),
    /// Check each published crate with no feature, each feature, each pair and all
    Features,
    /// Run the tests that a model checker executes in every interleaving
    Loom(loom::Arguments),
    /// Compile the published crates with the oldest dependencies that they allow
    Minimal,
    /// Search for changes of the pure cores that no test notices; takes hours
    Mutants(mutants::Arguments),
    /// Switch off functions that the tests of acceptance clauses reach, and expect failed tests; a random tenth of the clauses of each package
    SwitchOff(switch_off::Arguments),
    /// Compare the public API of each library with the accepted one, and search for unaccepted test snapshots
    Snapshots(snapshots::Arguments),
    /// Record `rlm demo` and draw `docs/rlm.svg`
    Picture,
    /// Stop `rlm` in eight ways, search for saves that a crash loses, and write the results into `docs/proof.md`
    Tables(tables::Arguments),
    /// List the tools that the commands need, and their locations
    Tools {
        /// Also install missing tools into `target/tools`
        #[arg(long)]
        install: bool,
    },
}

/// Runs the command of the command line.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = rustdoc::run_if_stand_in() {
        return code;
    }
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
        Command::Browser => browser::run(&workspace),
        Command::Bench(arguments) => bench::run(&workspace, &arguments),
        Command::CrashTest(arguments) => crash_test::run(&arguments),
        Command::FleetSimulation(arguments) => fleet_simulation::run(&arguments),
        Command::Night(arguments) => night::run(&arguments),
        Command::Nightly(arguments) => nightly::run(&workspace, &arguments, strict),
        Command::Survivors(arguments) => survivors::run(&arguments),
        Command::FleetStorm(arguments) => fleet_storm::run(&workspace, &arguments),
        Command::Lab(arguments) => lab::run(&workspace, &arguments),
        Command::Fuzz(arguments) => fuzz::run(&workspace, &arguments),
        Command::Msrv => msrv::run(&workspace),
        Command::Dist(arguments) => dist::run(&workspace, &arguments),
        Command::Release(step) => release::run(&workspace, &step),
        Command::Features => features::pairs(&workspace),
        Command::Loom(arguments) => loom::run(&workspace, arguments),
        Command::Minimal => minimal::run(&workspace),
        Command::Mutants(arguments) => mutants::run(&workspace, &arguments),
        Command::SwitchOff(arguments) => switch_off::run(&workspace, &arguments),
        Command::Snapshots(arguments) => snapshots::run(&workspace, arguments),
        Command::Picture => picture::run(),
        Command::Tables(arguments) => tables::run(&workspace, &arguments),
        Command::Tools { install } => tools::run(&workspace, install),
    };
    finish(&tally.judged(strict))
}

/// Prints the failures and skips, and ends with the counts.
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
