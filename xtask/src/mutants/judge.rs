//! Runs the tests once for each mutant of a build: one that no test turns red for is missed.
//!
//! A mutant may loop and may allocate, so the time and the memory of a process are bounded. Each process runs many tests: what starts one for each test is slower
//! than the tests. The first red one is enough, so those beside the changed file come first, and what takes seconds last.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::build::CHOICE;
use super::list::Mutant;
use super::{Core, Place};
use crate::command::{self, Show};
use crate::tools::Tool;
use crate::workspace::text;

/// So much longer than without a mutant, and at the least so long, is for ever.
const PATIENCE: u32 = 5;
const SHORTEST: Duration = Duration::from_secs(10);
/// For the tests as they are.
const LONGEST: Duration = Duration::from_secs(600);
/// Of addresses, in KiB.
const MEMORY: u32 = 4 << 20;
/// How a part of the name begins of a test that takes seconds; `.config/nextest.toml` has them too.
const SLOW: [&str; 3] = ["explore", "properties", "ladder_agrees"];
/// Between two lines that say how far it is.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Missed,
    Caught,
    TimedOut,
}

/// A program of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suite {
    package: String,
    program: PathBuf,
    folder: PathBuf,
    tests: Vec<String>,
}

/// Tests that are run before others, and how long they may take.
struct Stage {
    suites: Vec<Suite>,
    limit: Duration,
}

/// Judges each; an error says that the tests are red, or can't be run, without any mutant.
pub(super) fn judge<'a>(
    place: &Place<'_>,
    core: &Core,
    mutants: &[&'a Mutant],
) -> Result<Vec<(&'a Mutant, Verdict)>, String> {
    let suites = suites(place, core)?;
    let mut by_module = Vec::new();
    for module in modules(mutants) {
        let mut stages = Vec::new();
        for suites in stages_of(&suites, module) {
            let took = baseline(&suites)?;
            let limit = SHORTEST.max(took * PATIENCE);
            stages.push(Stage { suites, limit });
        }
        by_module.push((module, stages));
    }
    let stages = |mutant: &Mutant| {
        let found = by_module.iter().find(|it| it.0 == module(&mutant.file));
        found.map_or(&[][..], |it| it.1.as_slice())
    };
    let progress = Mutex::new(Progress::new(core.name, mutants.len()));
    let next = Mutex::new(mutants.iter());
    let take = || lock(&next).next();
    let verdicts = Mutex::new(Vec::new());
    let work = || {
        while let Some(mutant) = take() {
            let verdict = verdict(stages(mutant), mutant.number);
            lock(&progress).tell(mutant, verdict);
            lock(&verdicts).push((*mutant, verdict));
        }
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut verdicts = verdicts
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    verdicts.sort_by_key(|(mutant, _)| mutant.number);
    Ok(verdicts)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Progress {
    core: &'static str,
    all: usize,
    done: usize,
    missed: usize,
    told: Instant,
}

impl Progress {
    fn new(core: &'static str, all: usize) -> Self {
        Self {
            core,
            all,
            done: 0,
            missed: 0,
            told: Instant::now(),
        }
    }

    fn tell(&mut self, mutant: &Mutant, verdict: Verdict) {
        self.done += 1;
        if verdict == Verdict::Missed {
            self.missed += 1;
            println!("mutants: missed: {}", mutant.name);
        }
        if self.told.elapsed() >= SILENCE {
            self.told = Instant::now();
            let Self {
                core,
                all,
                done,
                missed,
                ..
            } = self;
            println!("mutants: {core}: {done} of {all} judged, {missed} missed");
        }
    }
}

/// The programs and those of their tests that the core is judged by, as nextest finds and filters them.
fn suites(place: &Place<'_>, core: &Core) -> Result<Vec<Suite>, String> {
    let mut nextest = Tool::Nextest.command(place.workspace)?;
    place
        .prepare(&mut nextest)
        .args(["list", "--message-format", "json", "--all-features"])
        .args(["--package", core.package])
        .args(core.targets)
        .args(["-E", core.tests]);
    let ended = command::finish(&mut nextest, Show::Never);
    match read(&ended.stdout) {
        Some(suites) if ended.success && !suites.is_empty() => Ok(suites),
        _ => Err(format!("it has no tests: {}", ended.output.trim())),
    }
}

fn read(list: &str) -> Option<Vec<Suite>> {
    let list: Value = serde_json::from_str(list).ok()?;
    let suites = list["rust-suites"].as_object()?.values();
    let suites = suites.map(|suite| {
        let tests = suite["testcases"].as_object().into_iter().flatten();
        let runs =
            |test: &Value| test["ignored"] == false && test["filter-match"]["status"] == "matches";
        Suite {
            package: text(&suite["package-name"]),
            program: text(&suite["binary-path"]).into(),
            folder: text(&suite["cwd"]).into(),
            tests: { tests.filter(|(_, test)| runs(test)) }
                .map(|(name, _)| name.clone())
                .collect(),
        }
    });
    Some(suites.filter(|suite| !suite.tests.is_empty()).collect())
}

/// The module at the root of the crate that a file is, or is in.
fn module(file: &str) -> &str {
    let inner = file.split_once("/src/").map_or(file, |(_, inner)| inner);
    inner.split(['/', '.']).next().unwrap_or(inner)
}

fn modules<'a>(mutants: &[&'a Mutant]) -> Vec<&'a str> {
    let mut modules: Vec<_> = mutants.iter().map(|it| module(&it.file)).collect();
    modules.sort_unstable();
    modules.dedup();
    modules
}

/// Divides the tests: those that are named after the module, all others that are quick, the slow ones.
fn stages_of(suites: &[Suite], module: &str) -> Vec<Vec<Suite>> {
    let stage_of = |test: &String| match test {
        test if is_slow(test) => 2,
        test if test.starts_with(module) => 0,
        _ => 1,
    };
    let stages = (0..3).map(|stage| {
        let parts = suites.iter().map(|suite| {
            let tests = suite.tests.iter().filter(|test| stage_of(test) == stage);
            let tests = tests.cloned().collect();
            Suite {
                tests,
                ..suite.clone()
            }
        });
        parts.filter(|suite| !suite.tests.is_empty()).collect()
    });
    stages.filter(|stage: &Vec<_>| !stage.is_empty()).collect()
}

fn is_slow(test: &str) -> bool {
    let mut parts = test.split("::");
    parts.any(|part| SLOW.iter().any(|slow| part.starts_with(slow)))
}

/// Runs tests as they are, and says how long the longest of their programs took.
fn baseline(suites: &[Suite]) -> Result<Duration, String> {
    let mut longest = Duration::ZERO;
    for suite in suites {
        let begun = Instant::now();
        if suite.run(0, LONGEST) != Verdict::Missed {
            let program = suite.program.display();
            return Err(format!("its tests are red without a mutant: {program}"));
        }
        longest = longest.max(begun.elapsed());
    }
    Ok(longest)
}

fn verdict(stages: &[Stage], number: u32) -> Verdict {
    let runs = stages
        .iter()
        .flat_map(|stage| { stage.suites.iter() }.map(|suite| suite.run(number, stage.limit)));
    { runs }
        .find(|verdict| *verdict != Verdict::Missed)
        .unwrap_or(Verdict::Missed)
}

impl Suite {
    fn run(&self, number: u32, limit: Duration) -> Verdict {
        let mut sh = Command::new("sh");
        sh.args(["-c", &format!("ulimit -v {MEMORY} && exec \"$@\""), "sh"])
            .arg(&self.program)
            // One thread each, since as many mutants as there are processors are judged at once.
            .args(["--test-threads", "1", "--exact"])
            .args(&self.tests)
            .current_dir(&self.folder)
            // As cargo has them: those of this package are inherited otherwise, or none.
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env(CHOICE, number.to_string())
            // Nobody reads how it fails, and the next one is to find the same files.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .env("INSTA_UPDATE", "no")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match sh.spawn() {
            Ok(child) => wait(child, limit),
            Err(_) => Verdict::Caught,
        }
    }
}

fn wait(mut child: Child, limit: Duration) -> Verdict {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Verdict::Missed,
            Ok(Some(_)) | Err(_) => return Verdict::Caught,
            Ok(None) if Instant::now() >= deadline => {
                let _gone = child.kill().and_then(|()| child.wait());
                return Verdict::TimedOut;
            }
            Ok(None) => thread::park_timeout(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(program: &str, tests: &[&str]) -> Suite {
        Suite {
            package: "a".into(),
            program: program.into(),
            folder: "/".into(),
            tests: tests.iter().map(|&test| test.into()).collect(),
        }
    }

    #[test]
    fn tests_are_read_with_what_is_left_out_of_them() {
        let list = r#"{ "rust-suites": {
            "a": { "package-name": "a", "binary-path": "/t/a-1", "cwd": "/w/a", "testcases": {
                "b::c": { "ignored": false, "filter-match": { "status": "matches" } },
                "b::d": { "ignored": false, "filter-match": { "status": "mismatch", "reason": "expression" } },
                "b::e": { "ignored": true, "filter-match": { "status": "matches" } } } },
            "a::it": { "binary-path": "/t/it-1", "cwd": "/w/a", "testcases": {} } } }"#;
        let [read] = read(list).unwrap().try_into().unwrap();
        assert_eq!(
            read,
            Suite {
                folder: "/w/a".into(),
                ..suite("/t/a-1", &["b::c"])
            }
        );
    }

    #[test]
    fn tests_beside_the_file_are_first_and_slow_ones_last() {
        let all = [
            suite(
                "lib",
                &["frame_tests::a", "frame_tests::properties::b", "lock::c"],
            ),
            suite("it", &["explored::d", "model::e"]),
        ];
        let stages = stages_of(&all, module("crates/a/src/frame.rs"));
        let expected = [
            vec![suite("lib", &["frame_tests::a"])],
            vec![suite("lib", &["lock::c"]), suite("it", &["model::e"])],
            vec![
                suite("lib", &["frame_tests::properties::b"]),
                suite("it", &["explored::d"]),
            ],
        ];
        assert_eq!(stages, expected);
        assert_eq!(module("crates/a/src/claude/protocol/json.rs"), "claude");
    }

    #[test]
    fn what_is_slow_is_slow_for_nextest_too() {
        let profiles = include_str!("../../../.config/nextest.toml");
        assert!(profiles.contains(&format!("test(/(^|::)({})/)", SLOW.join("|"))));
    }

    #[test]
    fn a_mutant_is_missed_by_what_stays_green_and_caught_by_what_loops_or_allocates() {
        let run = |script: &str, limit| {
            let mut sh = Command::new("sh");
            wait(sh.args(["-c", script]).spawn().unwrap(), limit)
        };
        assert_eq!(run("exit 0", LONGEST), Verdict::Missed);
        assert_eq!(run("exit 101", LONGEST), Verdict::Caught);
        assert_eq!(run("kill -9 $$", LONGEST), Verdict::Caught);
        let forever = "while :; do :; done";
        assert_eq!(run(forever, Duration::from_millis(100)), Verdict::TimedOut);
    }
}
