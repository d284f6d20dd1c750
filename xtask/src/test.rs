//! Runs all tests: nextest if it is installed, and the doctests always. A test that skipped itself counts as a skip, by name. An ignored test doesn't
//! count: it is a part of another test, or a tool.

pub(crate) mod unchanged;

use std::collections::BTreeSet;
use std::io;
use std::num::NonZero;
use std::process::Command;

use fs_err as fs;

use crate::command::{self, Ended, Show};
use crate::skips;
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;
use crate::{clippy, nats_server, rustdoc};
use unchanged::TestBinaries;

/// The report of nextest's profile `ci`, in a fixed directory, whatever the target directory of cargo is.
pub(crate) const REPORT: &str = "target/nextest/ci/junit.xml";

/// nextest's list of the test binaries. With it `ci` runs them without cargo, which would wait for the lock of another stage.
const BINARIES: &str = "target/nextest/binaries.json";

/// An environment variable of a cargo command.
type Variable = (&'static str, String);

/// All tests.
const ALL: [&str; 3] = ["--workspace", "--all-features", "--tests"];

/// All tests again, and the examples, one of which a test starts. With the tests, cargo selects the same features of the dependencies.
const WITH_EXAMPLES: [&str; 5] = [
    "build",
    "--workspace",
    "--all-features",
    "--tests",
    "--examples",
];

pub(crate) fn run(workspace: &Workspace, show: Show) -> Tally {
    let mut tally = build_examples(&[]);
    let selection = [&["--cargo-quiet"], &ALL[..]].concat();
    tally += run_selected(workspace, &selection, show, Vec::new);
    tally += doctests(show);
    tally
}

/// Runs the tests that [`build`] compiled, except those of test binaries that passed earlier and did not change since.
pub(crate) fn run_built(workspace: &Workspace) -> Tally {
    let list = fs::read_to_string(workspace.root.join(BINARIES)).unwrap_or_default();
    let binaries = TestBinaries::read(&workspace.root, &list);
    let filter = binaries.filter();
    let mut selection = vec!["--binaries-metadata", BINARIES];
    if let Some(filter) = &filter {
        selection.extend(["-E", filter]);
    }
    let report = workspace.root.join(REPORT);
    let variables = clippy::variables_of_built_tests;
    let mut tally = run_selected(workspace, &selection, Show::OnFailure, variables);
    let saved = match tally.is_red() {
        true => Ok(()),
        false => binaries.save(&report, &list),
    };
    let (count, unchanged) = binaries.unchanged();
    if count > 0 {
        let tests = skips::cases(&unchanged).count();
        println!("{tests} tests of {count} unchanged test binaries passed in an earlier run");
        tally.passed += tests;
        skip(&mut tally, skips::of_junit(&unchanged));
    }
    match saved.and_then(|()| binaries.complete(&report)) {
        // Without nextest, there is no report.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tally += Tally::failed(format!("test: can't complete the report: {error}"));
        }
        _ => {}
    }
    tally
}

/// Runs tests with nextest, or all tests with cargo and these variables if nextest is absent.
fn run_selected(
    workspace: &Workspace,
    selection: &[&str],
    show: Show,
    variables: fn() -> Vec<Variable>,
) -> Tally {
    match of_nextest(workspace, selection, show) {
        Ok(tally) => tally,
        Err(why) => {
            println!("{why}; the tests of a binary share a process");
            let variables = [variables(), nats(workspace).into_iter().collect()].concat();
            of_cargo(show, &variables)
        }
    }
}

/// Compiles all tests, and the programs that they and the live checks start, with Clippy as the compiler. So the workspace is compiled once for the
/// tests and for the stage `lint`. If Clippy refuses the code, compiles without it: the tests run, and `lint` reports the errors.
pub(crate) fn build(workspace: &Workspace) -> Tally {
    let checked = clippy::variables();
    let tally = build_with(workspace, &checked);
    match tally.is_red() && !checked.is_empty() {
        true => build_with(workspace, &[]),
        false => tally,
    }
}

fn build_with(workspace: &Workspace, variables: &[Variable]) -> Tally {
    let list = [
        "list",
        "--cargo-quiet",
        "--list-type",
        "binaries-only",
        "--message-format",
        "json",
    ];
    let mut nextest = Tool::Nextest.command(workspace);
    let built = match &mut nextest {
        Ok(nextest) => nextest.args(list),
        Err(_absent) => &mut cargo(&["test", "--no-run"]),
    };
    let built = command::finish(
        built.args(ALL).envs(variables.iter().cloned()),
        Show::OnFailure,
    );
    // The list of an earlier build may name other binaries.
    let noted = fs::create_dir_all(workspace.root.join("target/nextest"))
        .and_then(|()| fs::write(workspace.root.join(BINARIES), &built.stdout));
    match noted {
        _ if !built.success => Tally::failed("build: the tests don't compile"),
        Err(error) => Tally::failed(format!("build: {error}")),
        Ok(()) => build_examples(variables),
    }
}

fn build_examples(variables: &[Variable]) -> Tally {
    let mut build = cargo(&WITH_EXAMPLES);
    build.envs(variables.iter().cloned());
    match command::finish(&mut build, Show::OnFailure).success {
        true => Tally::default(),
        false => Tally::failed("build: an example doesn't compile"),
    }
}

/// Runs the doctests with the libraries that [`build`] compiled, and builds the public documentation of the published ones without a warning.
pub(crate) fn doctests_built(workspace: &Workspace) -> Tally {
    let mut test = doctest_command(&clippy::variables_of_built_tests());
    let directory = workspace.root.join("target/xtask-doc");
    let what = "the doctests and the documentation";
    match rustdoc::also_document(&mut test, workspace, &directory) {
        Ok(()) => ended_doctests(&mut test, Show::OnFailure, what),
        Err(error) => Tally::failed(format!("doctests: {error}")),
    }
}

/// Runs the examples of the documentation and of the READMEs.
fn doctests(show: Show) -> Tally {
    ended_doctests(&mut doctest_command(&[]), show, "the doctests")
}

fn doctest_command(variables: &[Variable]) -> Command {
    let mut test = cargo(&["test", "--doc", "--workspace", "--all-features"]);
    test.arg("--no-fail-fast").envs(variables.iter().cloned());
    test
}

fn ended_doctests(test: &mut Command, show: Show, what: &str) -> Tally {
    let ended = command::finish(test, show);
    counted(Tally::of_libtest(&ended.output), &ended, what)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments);
    cargo
}

fn of_nextest(workspace: &Workspace, selection: &[&str], show: Show) -> Result<Tally, String> {
    // The report of an earlier run may describe other tests.
    let report = workspace.root.join(REPORT);
    match fs::remove_file(&report) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.to_string()),
        _ => {}
    }
    let threads = threads().to_string();
    let run = ["run", "--profile", "ci", "--test-threads", &threads];
    let mut nextest = Tool::Nextest.command(workspace)?;
    nextest.args(run).args(selection).envs(nats(workspace));
    let ended = command::finish(&mut nextest, show);
    let mut tally = counted(Tally::of_nextest(&ended.output), &ended, "the tests");
    match fs::read_to_string(&report) {
        Ok(report) => skip(&mut tally, skips::of_junit(&report)),
        Err(error) => {
            tally += Tally::failed(format!(
                "test: can't read the skips from the report: {error}"
            ))
        }
    }
    Ok(tally)
}

/// Returns the variable with the NATS server. Without a server, the tests that need it skip themselves.
fn nats(workspace: &Workspace) -> Option<Variable> {
    match nats_server::find_or_install(workspace) {
        Ok(program) => Some((nats_server::VARIABLE, program.display().to_string())),
        Err(why) => {
            println!("{why}");
            None
        }
    }
}

/// Returns the number of tests that run in parallel. Most tests wait for processes, terminals and clocks. For tests that compute,
/// `.config/nextest.toml` sets the number of threads that each counts for.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get) * 3
}

fn of_cargo(show: Show, variables: &[Variable]) -> Tally {
    let mut test = cargo(&["test", "--no-fail-fast"]);
    test.args(ALL).args(["--", "--show-output"]);
    let ended = command::finish(test.envs(variables.iter().cloned()), show);
    let mut tally = counted(Tally::of_libtest(&ended.output), &ended, "the tests");
    skip(&mut tally, skips::of_libtest(&ended.output));
    tally
}

/// Moves the tests with skips from the passed ones to the skips. A test can skip several things, and one thing several times.
fn skip(tally: &mut Tally, mut skips: Vec<String>) {
    skips.dedup();
    let tests = skips
        .iter()
        .filter_map(|skip| Some(skip.split_once(": ")?.0));
    tally.passed = tally
        .passed
        .saturating_sub(tests.collect::<BTreeSet<_>>().len());
    let skips = skips.into_iter().map(|skip| format!("test: {skip}"));
    tally.skipped.extend(skips);
}

/// Counts a failure for a runner that failed without counting one, for instance because of a compile error.
fn counted(tally: Option<Tally>, ended: &Ended, what: &str) -> Tally {
    let mut tally = tally.unwrap_or_default();
    if !ended.success && !tally.is_red() {
        tally += Tally::failed(format!(
            "test: {what} ended with an error that is no failed test"
        ));
    }
    if ended.success && tally.passed == 0 {
        tally += Tally::failed(format!("test: {what}: none ran"));
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_with_a_skipped_part_does_not_count_as_passed() {
        let mut tally = Tally::passed(3);
        let skips = [
            "a one: no xfs",
            "a one: no xfs",
            "a one: no btrfs",
            "a two: no disk",
        ];
        skip(&mut tally, skips.map(Into::into).into());
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 3 skipped");
        assert_eq!(tally.skipped[2], "test: a two: no disk");
    }
}
