//! Repeats tests of `ci` with larger numbers, and then runs everything that takes too long for `ci`.

use clap::builder::PossibleValuesParser;

use crate::chosen_tests::Tests;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{
    browser, ci, crash_test, dist, docs, features, fleet_storm, fuzz, lab, lint, live, loom,
    minimal, mutants, night, snapshots, survivors, switch_off,
};

/// The variable that makes a test run the full numbers of `tests/acceptance.md`, not the smaller ones of `ci`.
const FULL: (&str, &str) = ("RLM_TEST_EFFORT", "nightly");

/// The tests with two numbers in `tests/acceptance.md`: the item, and its tests.
pub(crate) const NUMBERS: [(&str, Tests); 12] = [
    ("a20", Tests::new("agent-api", "agent", "endurance::a20")),
    ("h9", Tests::new("rlm-tests", "e2e", "hostile_files::h")),
    ("x103", Tests::new("interrupt-stack", "it", "x103::")),
    ("c60", Tests::new("checkpoint-store", "it", "kill::c60")),
    ("l84", Tests::new("rlm-tests", "e2e", "steering::l84")),
    ("x115", Tests::new("rlm-tests", "e2e", "floods::x115")),
    ("x116", Tests::new("rlm-tests", "e2e", "long_loop::x116")),
    ("a6", Tests::new("agent-api", "agent", "crashes::a6")),
    ("f9", Tests::new("rlm-tests", "e2e", "fleet_many::f9")),
    ("v5", Tests::new("rlm-tests", "e2e", "view_pages::v5")),
    ("v6", Tests::new("rlm-tests", "e2e", "view_pages::v6")),
    ("v8", Tests::new("rlm-tests", "e2e", "view_attacks::v8")),
];

/// The stages after the full numbers.
const LONG: [(&str, ci::Stage); 17] = [
    ("deny", lint::dependencies_judged),
    // `ci` builds only the public documentation of published libraries.
    ("docs", docs::run),
    // `ci` checks the public names only if the tool is installed.
    ("snapshots", |workspace| {
        snapshots::run(workspace, snapshots::Arguments::default())
    }),
    ("minimal", minimal::run),
    ("features", features::pairs),
    ("loom", |workspace| {
        loom::run(workspace, loom::Arguments::default())
    }),
    ("mutants", mutants::all),
    ("switch-off", switch_off::tenth),
    ("crash-test", |_| crash_test::nightly()),
    // The stage x116 covers the ten thousand iterations of `night --long`.
    ("night", |_| night::nights()),
    ("fuzz", fuzz::hour),
    ("live", |_| live::run(&live::Arguments::default())),
    ("survivors", |_| survivors::hundred()),
    ("fleet-storm", |workspace| {
        // The storm installs the server that the controls need.
        let mut tally = fleet_storm::thousand(workspace);
        tally += STORM_CONTROLS.run(FULL);
        tally
    }),
    ("lab", |_| lab::nightly()),
    ("lab-program", dist::lab_program),
    ("browser", browser::run),
];

/// The controls of the storm that take too long for `ci`.
const STORM_CONTROLS: Tests = Tests::new("rlm-storm", "it", "controls::").ignored();

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only this stage; can be repeated
    #[arg(long, value_name = "STAGE", value_parser = PossibleValuesParser::new(names()))]
    only: Vec<String>,
}

fn names() -> impl Iterator<Item = &'static str> {
    let numbers = NUMBERS.iter().map(|(name, _)| *name);
    numbers.chain(LONG.iter().map(|(name, _)| *name))
}

/// Returns the description in the help.
pub(crate) fn about() -> String {
    let names: Vec<&str> = names().collect();
    format!(
        "Run the tests of `ci` with their full numbers, and the stages that take hours: {}",
        names.join(", ")
    )
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments, strict: bool) -> Tally {
    let wanted =
        |name: &&str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    let long = |name: &str| LONG.iter().find(|(stage, _)| *stage == name);
    ci::run_stages(names().filter(wanted), strict, |name| match long(name) {
        Some((_, stage)) => stage(workspace),
        None => numbers(name),
    })
}

/// Runs the tests of one item with their full numbers.
pub(crate) fn numbers(name: &str) -> Tally {
    match NUMBERS.iter().find(|(stage, _)| *stage == name) {
        Some((_, tests)) => tests.run(FULL),
        None => Tally::failed(format!("nightly: no such stage: {name}")),
    }
}
