//! Switches off functions that the tests of acceptance clauses reach, and expects that a test fails. A clause whose tests stay green without the
//! functions that they reach is not shown.
//!
//! cargo-mutants compiles each mutant, so a mutant for each of 750 clauses would take days. Here, all mutants of function bodies are in one build, and
//! a file switches one of them on. The tests note which of them they reach, so a clause is tried only with functions that its tests run.

mod build;
mod choice;
mod module;
mod order;
mod runner;
mod switches;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use fs_err as fs;

use crate::acceptance::{self, Clause};
use crate::switch_off::build::Folders;
use crate::switch_off::module::Order;
use crate::switch_off::order::Counts;
use crate::switch_off::runner::{Ended, Runner, Test};
use crate::switch_off::switches::Switch;
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// The tests and examples of the packages that have clauses. No test of the other packages shows a clause, or reaches a switch.
const CARGO: [&str; 8] = [
    "--workspace",
    "--all-features",
    "--tests",
    "--examples",
    "--exclude=rlm-bench",
    "--exclude=rlm-score",
    "--exclude=xtask",
    "--exclude=rlm-fleet",
];

/// The time after which no further clause is tried.
const STAGE: Duration = Duration::from_secs(3 * 3600);
/// The limit for a test without a switch.
const UNCHANGED: Duration = Duration::from_secs(240);
/// The bounds of the limit with a switch, which is five times the time without it.
const WITH_SWITCH: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(120)];

/// The default number of functions to switch off for a clause. Nearly all clauses need fewer; a clause that differs from others only in a signal
/// handler, which has no switches, needed 14.
const TRIES: usize = 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this clause, such as V12a; can be repeated
    #[arg(long, value_name = "ID")]
    clause: Vec<String>,
    /// Percentage of the clauses of each package
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "clause")]
    share: u8,
    /// Seed of the random choice, which a run prints [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Maximum number of functions to switch off for a clause
    #[arg(long, value_name = "N", default_value_t = TRIES)]
    tries: usize,
}

/// Checks a tenth of the clauses.
pub(crate) fn tenth(workspace: &Workspace) -> Tally {
    let arguments = Arguments {
        clause: Vec::new(),
        share: 10,
        seed: None,
        tries: TRIES,
    };
    run(workspace, &arguments)
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let seed = arguments.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap_or_default().as_secs()
    });
    println!("switch-off: seed {seed}");
    let clauses = acceptance::clauses(workspace);
    let chosen = choice::choose(clauses, &arguments.clause, arguments.share, seed);
    let choice = match chosen {
        Ok(choice) => choice,
        Err(why) => return Tally::failed(format!("switch-off: {why}")),
    };
    let program = match Tool::Mutants.find_or_install(workspace) {
        Ok(program) => program,
        Err(why) => return Tally::skipped(format!("switch-off: {why}")),
    };
    let folder = workspace.target.join("switch-off");
    let folders = Folders {
        original: workspace.root.clone(),
        copy: folder.join("sources"),
        target: folder.join("build"),
        order: folder.join("order"),
        reached: folder.join("reached"),
    };
    let prepared = list(&program, &folders).and_then(|mut switches| {
        let programs = build::build(&folders, &CARGO, &mut switches)?;
        let runner = Runner::new(folders, programs).map_err(|error| error.to_string())?;
        Ok(Check {
            runner,
            switches,
            tries: arguments.tries,
            deadline: Instant::now() + STAGE,
        })
    });
    match prepared.and_then(|check| check.all(&choice).map_err(|error| error.to_string())) {
        Ok(tally) => tally,
        Err(why) => Tally::failed(format!("switch-off: {why}")),
    }
}

/// Lists the mutants of functions.
fn list(program: &Path, folders: &Folders) -> Result<Vec<Switch>, String> {
    let failed = |error: std::io::Error| error.to_string();
    fs::create_dir_all(&folders.target).map_err(failed)?;
    let list = folders.order.with_file_name("mutants.json");
    // The list has the text of each mutant: more than `command::finish` keeps.
    let output = File::create(&list).map_err(failed)?;
    let mut mutants = std::process::Command::new(program);
    mutants
        .args(["mutants", "--list", "--json", "--workspace"])
        .current_dir(&folders.original)
        .stdin(Stdio::null())
        .stdout(output);
    let status = mutants.status().map_err(failed)?;
    let text = fs::read_to_string(&list).map_err(failed)?;
    let list = serde_json::from_str(&text).map_err(|error| error.to_string());
    match status.success() {
        true => Ok(switches::read(&list?)),
        false => Err(format!("cargo-mutants ended with {status}")),
    }
}

/// The tests and the switches of the copy.
struct Check {
    runner: Runner,
    switches: Vec<Switch>,
    tries: usize,
    deadline: Instant,
}

/// A test that passed, its time, and the switches that it reached.
struct Passed {
    test: Test,
    took: Duration,
    reached: BTreeSet<u32>,
}

/// The tests of a clause without a switch.
#[derive(Default)]
struct Noted {
    passed: Vec<Passed>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Noted {
    fn reached(&self) -> BTreeSet<u32> {
        let all = self.passed.iter().flat_map(|passed| &passed.reached);
        all.copied().collect()
    }
}

/// The result of a clause.
enum Verdict {
    Red(String),
    Green(String),
    Skipped(String),
}

impl Check {
    fn all(&self, choice: &choice::Choice) -> std::io::Result<Tally> {
        let mut counts = Counts::default();
        let mut noted = Vec::new();
        let clauses = choice.clauses.iter().chain(&choice.background);
        let total = clauses.clone().count();
        for (number, clause) in (1..).zip(clauses) {
            let of_clause = self.note(clause)?;
            let reached = of_clause.reached();
            let (id, tests, switches) = (&clause.id, of_clause.passed.len(), reached.len());
            println!("noted {number} of {total}: {id}: {tests} tests reach {switches} switches");
            counts.add(&reached);
            noted.push(of_clause);
        }
        let mut tally = Tally::default();
        let total = choice.clauses.len();
        for (number, (clause, noted)) in (1..).zip(choice.clauses.iter().zip(noted)) {
            let begun = Instant::now();
            let verdict = self.judge(clause, &noted, &counts)?;
            let (word, text) = match &verdict {
                Verdict::Red(text) => ("red", text),
                Verdict::Green(text) => ("GREEN", text),
                Verdict::Skipped(text) => ("skipped", text),
            };
            let took = begun.elapsed().as_secs();
            let id = &clause.id;
            println!("clause {number} of {total}: {id}: {word}: {text} ({took} s)");
            match verdict {
                Verdict::Red(_) => tally.passed += 1,
                Verdict::Green(text) => tally.failures.push(format!("switch-off: {id}: {text}")),
                Verdict::Skipped(text) => tally.skipped.push(format!("switch-off: {id}: {text}")),
            }
        }
        Ok(tally)
    }

    /// Runs the tests of a clause without a switch.
    fn note(&self, clause: &Clause) -> std::io::Result<Noted> {
        let mut noted = Noted::default();
        let mut seen = BTreeSet::new();
        for function in &clause.tests {
            if choice::is_control(function) || Instant::now() > self.deadline {
                continue;
            }
            let tests = self.runner.find(function);
            if tests.is_empty() || function.is_ignored {
                let why = "it is ignored, or not in the build";
                noted.skipped.push(format!("{}: {why}", function.name));
                continue;
            }
            for test in tests {
                // Functions of two modules can have one name.
                if !seen.insert(test.clone()) {
                    continue;
                }
                let (ended, took, reached) = self.runner.note(&test, UNCHANGED)?;
                match ended {
                    Ended::Failed | Ended::TimedOut => {
                        noted.failed.push(format!("{} {ended}", test.name));
                    }
                    Ended::Skipped(_) if reached.is_empty() => {
                        noted.skipped.push(format!("{}: {ended}", test.name));
                    }
                    Ended::Passed | Ended::Skipped(_) => {
                        if reached.is_empty() {
                            let (id, name) = (&clause.id, &test.name);
                            println!("switch-off: {id}: {name} reaches no switch");
                        }
                        noted.passed.push(Passed {
                            test,
                            took,
                            reached,
                        });
                    }
                }
            }
        }
        Ok(noted)
    }

    fn judge(&self, clause: &Clause, noted: &Noted, counts: &Counts) -> std::io::Result<Verdict> {
        if !noted.failed.is_empty() {
            let failed = noted.failed.join(", ");
            return Ok(Verdict::Green(format!("without any switch: {failed}")));
        }
        if let Some(control) = self.passed_control(clause)? {
            return Ok(Verdict::Red(format!("by its control {control}")));
        }
        if noted.passed.is_empty() {
            let why = match noted.skipped.is_empty() {
                true => "the time of the stage is over".into(),
                false => noted.skipped.join("; "),
            };
            return Ok(Verdict::Skipped(why));
        }
        let names = noted.passed.iter().map(|passed| passed.test.name.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let words = format!("{} {names}", clause.text);
        let reached = noted.reached();
        let candidates = order::most_specific_first(&words, &reached, counts, &self.switches);
        if candidates.is_empty() {
            let why = format!("its tests reach no function that has a switch: {names}");
            return Ok(Verdict::Skipped(why));
        }
        let mut tried = Vec::new();
        for switch in candidates.into_iter().take(self.tries) {
            if Instant::now() > self.deadline {
                return Ok(Verdict::Skipped("the time of the stage is over".into()));
            }
            tried.push(switch.name());
            if let Some((test, ended)) = self.red_test(noted, switch)? {
                let count = tried.len();
                let name = switch.name();
                let text = format!("after {count}: {name} ({test} {ended})");
                return Ok(Verdict::Red(text));
            }
        }
        let tried = tried.join("; ");
        Ok(Verdict::Green(format!(
            "its tests ({names}) stay green without any of these functions: {tried}"
        )))
    }

    fn passed_control(&self, clause: &Clause) -> std::io::Result<Option<String>> {
        let controls = clause.tests.iter().filter(|test| choice::is_control(test));
        for test in controls.flat_map(|function| self.runner.find(function)) {
            let (ended, _) = self.runner.run(&test, Order::Nothing, UNCHANGED)?;
            if ended == Ended::Passed {
                return Ok(Some(test.name));
            }
            println!("switch-off: {}: {} {ended}", clause.id, test.name);
        }
        Ok(None)
    }

    /// Returns the first test that fails with this switch and passes again without it.
    fn red_test(&self, noted: &Noted, switch: &Switch) -> std::io::Result<Option<(String, Ended)>> {
        let [least, most] = WITH_SWITCH;
        for passed in &noted.passed {
            if !passed.reached.contains(&switch.id) {
                continue;
            }
            let limit = (passed.took * 5).clamp(least, most.max(passed.took * 2));
            let (ended, _) = self
                .runner
                .run(&passed.test, Order::Off(switch.id), limit)?;
            if !ended.is_red() {
                continue;
            }
            let (without, _) = self.runner.run(&passed.test, Order::Nothing, UNCHANGED)?;
            let name = passed.test.name.clone();
            match without.is_red() {
                false => return Ok(Some((name, ended))),
                true => println!("switch-off: {name} is unsteady: it {without} without a switch"),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::json;

    use super::*;
    use crate::acceptance::TestFunction;
    use crate::command::{self, Show};

    const LIBRARY: &str = "/// Doubles.
pub fn double(n: u8) -> u8 {
    n * 2
}

/// Has no default value.
pub struct Odd;

/// Returns it.
pub fn odd() -> Odd {
    Odd
}
";

    const TESTS: &str = "#[test]
fn v1_double() {
    assert_eq!(tiny::double(2), 4);
}
#[test]
fn v2_weak() {
    tiny::double(2);
    tiny::odd();
}
#[test]
fn v3_nothing() {}
#[test]
fn v4_skipped() {
    println!(\"skipped: no disk\");
}
#[test]
fn v5_wrong() {
    assert_eq!(tiny::double(2), 5);
}
#[test]
fn v6_control_without_it() {}
";

    fn folders(root: &Path) -> Folders {
        for folder in ["crates/tiny/src", "crates/tiny/tests", "target/build"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let files = [
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"crates/tiny\"]\n",
            ),
            (
                "crates/tiny/Cargo.toml",
                "[package]\nname = \"tiny\"\nedition = \"2024\"\n",
            ),
            ("crates/tiny/src/lib.rs", LIBRARY),
            ("crates/tiny/tests/it.rs", TESTS),
            (".gitignore", "target\n"),
        ];
        for (file, text) in files {
            fs::write(root.join(file), text).unwrap();
        }
        let mut git = Command::new("git");
        git.args(["init", "--quiet"]).current_dir(root);
        assert!(command::finish(&mut git, Show::OnFailure).success);
        Folders {
            original: root.into(),
            copy: root.join("target/sources"),
            target: root.join("target/build"),
            order: root.join("target/order"),
            reached: root.join("target/reached"),
        }
    }

    fn switches() -> Vec<Switch> {
        let file = "crates/tiny/src/lib.rs";
        let double = [(2, 1), (3, 5), (4, 2)];
        let odd = [(10, 1), (11, 5), (12, 2)];
        switches::read(&json!([
            switches::tests::mutant(file, ["double", "0"], double),
            switches::tests::mutant(file, ["double", "1"], double),
            switches::tests::mutant(file, ["odd", "Default::default()"], odd),
        ]))
    }

    fn clause(test: &str) -> Clause {
        Clause {
            id: test[..2].to_uppercase(),
            tests: vec![TestFunction {
                package: "tiny".into(),
                name: test.into(),
                ..TestFunction::default()
            }],
            ..Clause::default()
        }
    }

    #[test]
    fn only_a_clause_whose_test_notices_the_change_is_red() {
        let place = tempfile::tempdir().unwrap();
        let folders = folders(place.path());
        let mut switches = switches();
        let programs = build::build(&folders, &["--tests"], &mut switches).unwrap();
        let names: Vec<String> = switches.iter().map(Switch::name).collect();
        let name = |value: u8| format!("crates/tiny/src/lib.rs: double returns {value}");
        assert_eq!(names, [name(0), name(1)]);
        // A second build knows the switch that doesn't compile.
        let list = self::switches();
        let mut again = list.clone();
        assert_eq!(
            build::build(&folders, &["--tests"], &mut again),
            Ok(programs.clone())
        );
        assert_eq!((again.len(), list.len()), (2, 3));

        let check = Check {
            runner: Runner::new(folders, programs).unwrap(),
            switches,
            tries: 8,
            deadline: Instant::now() + UNCHANGED,
        };
        let tests = TESTS.lines().filter_map(|line| line.strip_prefix("fn "));
        let tests = tests.filter_map(|line| line.split('(').next());
        let choice = choice::Choice {
            clauses: tests.map(clause).collect(),
            ..choice::Choice::default()
        };
        let tally = check.all(&choice).unwrap();
        assert_eq!(tally.to_string(), "2 passed, 2 failed, 2 skipped");
        assert_eq!(
            tally.failures,
            [
                format!(
                    "switch-off: V2: its tests (v2_weak) stay green without any of these functions: {}",
                    name(0)
                ),
                "switch-off: V5: without any switch: v5_wrong failed".into(),
            ]
        );
        assert_eq!(
            tally.skipped,
            [
                "switch-off: V3: its tests reach no function that has a switch: v3_nothing",
                "switch-off: V4: v4_skipped: skipped: no disk",
            ]
        );
    }
}
