//! The rules of this project. Each check is independent: a failed check doesn't prevent the others from running.

mod dependencies;
mod files;
mod import_cycles;
mod opened_files;
mod sentences;
mod shipped;
mod sleep_gates;
mod stop_times;
mod unsafe_code;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use crate::clippy;
use crate::command::{self, Ended, Show};
use crate::release;
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// The result of a check.
pub(crate) enum LintResult {
    Passed,
    /// The errors, one per line.
    Failed(Vec<String>),
    Skipped(String),
}

impl LintResult {
    fn of(wrong: Vec<String>) -> Self {
        if wrong.is_empty() {
            Self::Passed
        } else {
            Self::Failed(wrong)
        }
    }
}

type Check = fn(&Workspace) -> LintResult;

const CHECKS: [(&str, Check); 16] = [
    ("formatting", |_| {
        cargo(&["fmt", "--all", "--check", "--", "--color=never"])
    }),
    ("clippy", |_| clippy_check("--all-targets")),
    ("macOS", |_| mac()),
    ("dependencies", |workspace| {
        LintResult::of(dependencies::wrong(&workspace.packages))
    }),
    ("import cycles", |workspace| {
        LintResult::of(import_cycles::wrong(workspace))
    }),
    ("snapshot and property tests", |workspace| {
        LintResult::of(dependencies::without_tests(workspace))
    }),
    ("names of acceptance tests", |workspace| {
        LintResult::of(files::unknown_items(workspace))
    }),
    ("file headers", |workspace| {
        LintResult::of(files::without_header(workspace))
    }),
    ("unsafe code", |workspace| {
        LintResult::of(unsafe_code::wrong(workspace))
    }),
    ("opened files", |workspace| {
        LintResult::of(opened_files::wrong(workspace))
    }),
    ("sleep gates", |workspace| {
        LintResult::of(sleep_gates::wrong(workspace))
    }),
    ("stop times", |workspace| {
        LintResult::of(stop_times::wrong(workspace))
    }),
    ("sentences", |workspace| {
        LintResult::of(sentences::wrong(workspace))
    }),
    ("packages", |_| LintResult::of(release::wrong())),
    ("cargo-deny", |workspace| by_deny(workspace, deny)),
    ("advisories", |workspace| by_deny(workspace, advisories)),
];

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Run only the checks whose names contain one of these [default: all]
    names: Vec<String>,
    /// Write the list of unsafe code, `docs/unsafe.md`, and check nothing
    #[arg(long)]
    update: bool,
    /// Whether the stage `build` compiled the tests with Clippy
    #[arg(skip)]
    tests_are_built: bool,
}

impl Arguments {
    /// Runs all checks. Clippy checked the tests already if the stage `build` passed.
    pub(crate) fn of_built_tests() -> Self {
        Self {
            tests_are_built: true,
            ..Self::default()
        }
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let mut tally = Tally::default();
    if arguments.update {
        match unsafe_code::update(workspace) {
            Ok(()) => tally.passed += 1,
            Err(error) => tally += Tally::failed(format!("lint: {error}")),
        }
        return tally;
    }
    let named = |name: &str| arguments.names.iter().any(|part| name.contains(part));
    let wanted = |name: &str| arguments.names.is_empty() || named(name);
    let checks = CHECKS.iter().filter(|(name, _)| wanted(name));
    for (name, check) in checks {
        if std::io::stderr().is_terminal() {
            // Clippy takes minutes for a fresh build.
            drop(write!(std::io::stderr(), "lint: {name} ...\r"));
        }
        let result = match *name {
            "clippy" if arguments.tests_are_built => clippy_of_built_tests(),
            _ => check(workspace),
        };
        match result {
            LintResult::Passed => println!("lint: {name}: ok"),
            LintResult::Failed(lines) => {
                println!("lint: {name}: FAILED");
                lines.iter().for_each(|line| println!("    {line}"));
                tally += Tally::failed(format!("lint: {name}"));
            }
            LintResult::Skipped(reason) => {
                tally += Tally::skipped(format!("lint: {name}: {reason}"))
            }
        }
    }
    tally
}

/// Runs Clippy without compiling to machine code.
fn clippy_check(targets: &str) -> LintResult {
    cargo(&[
        "clippy",
        "--quiet",
        "--workspace",
        targets,
        "--all-features",
        "--",
        "-D",
        "warnings",
    ])
}

/// Takes the result of the stage `build`.
fn clippy_of_built_tests() -> LintResult {
    match clippy::tests() {
        Some(tests) => verdict(&tests),
        // The error names the missing component.
        None => clippy_check("--all-targets"),
    }
}

fn cargo(arguments: &[&str]) -> LintResult {
    verdict(&command::run("cargo", arguments, Show::Never))
}

fn verdict(ended: &Ended) -> LintResult {
    if ended.success {
        LintResult::Passed
    } else {
        LintResult::Failed(ended.output.lines().map(Into::into).collect())
    }
}

/// Compiles for macOS the crates that need no C compiler. A machine that is not a Mac can only check that they compile.
fn mac() -> LintResult {
    const TARGET: &str = "x86_64-apple-darwin";
    let libraries = command::run(
        "rustc",
        &["--print", "target-libdir", "--target", TARGET],
        Show::Never,
    );
    if !Path::new(libraries.stdout.trim()).is_dir() {
        return LintResult::Skipped(
            "the standard library for macOS is not installed: rustup target add x86_64-apple-darwin".into(),
        );
    }
    cargo(&[
        "clippy",
        "--quiet",
        "--target",
        TARGET,
        "-p",
        "interrupt-stack",
        "-p",
        "cancellable-sleep",
        "-p",
        "loop-state",
        "-p",
        "agent-api",
        "-p",
        "agent-duplex",
        "-p",
        "agent-subprocess",
        "-p",
        "agent-drivers",
        "--features",
        "interrupt-stack/tokio-util",
        "--",
        "-D",
        "warnings",
    ])
}

/// Checks licences, bans and sources, which needs no network.
fn deny(tool: &mut Command) -> LintResult {
    // cargo-deny reads the crates of all platforms, but a build fetches only those of one.
    let fetched = command::run("cargo", &["fetch", "--quiet"], Show::Never);
    if !fetched.success {
        let why = fetched.output.lines().next().unwrap_or_default();
        return LintResult::Skipped(format!(
            "the dependencies of other platforms can't be fetched: {why}"
        ));
    }
    tool.args(["--offline", "check", "bans", "licenses", "sources"]);
    verdict(&command::finish(tool, Show::Never))
}

/// Checks the dependencies for known vulnerabilities. The database is on GitHub, which not every machine can reach.
fn advisories(tool: &mut Command) -> LintResult {
    let ended = command::finish(tool.args(["check", "advisories"]), Show::Never);
    match ended.output.contains("failed to fetch advisory database") {
        true => LintResult::Skipped("the advisory database is unreachable".into()),
        false => verdict(&ended),
    }
}

/// Runs a check of cargo-deny if the tool is installed: compiling it takes longer than all other checks together.
fn by_deny(workspace: &Workspace, check: fn(&mut Command) -> LintResult) -> LintResult {
    match Tool::Deny.find(workspace) {
        Some(_) => Tool::Deny
            .command(workspace)
            .map_or_else(LintResult::Skipped, |mut tool| check(&mut tool)),
        None => LintResult::Skipped(
            "cargo-deny is not installed; install it with `cargo xtask tools --install`".into(),
        ),
    }
}

/// Installs cargo-deny if it is missing, and runs the checks that need it.
pub(crate) fn dependencies_judged(workspace: &Workspace) -> Tally {
    if let Err(why) = Tool::Deny.find_or_install(workspace) {
        return Tally::skipped(format!("deny: {why}"));
    }
    let names = ["cargo-deny", "advisories"].map(Into::into).into();
    let arguments = Arguments {
        names,
        ..Arguments::default()
    };
    run(workspace, &arguments)
}
