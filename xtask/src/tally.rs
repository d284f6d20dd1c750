//! Counts passed, failed and skipped checks, and parses the counts of test runners.

use std::fmt;
use std::ops::AddAssign;

/// The line before the failures, skips and counts in the output of a stage of `ci`.
pub(crate) const COUNTS: &str = "-- counts";

/// The result of a stage.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    /// The number of failed tests that a runner counted and named itself.
    pub(crate) failed: usize,
    /// The names of other failures.
    pub(crate) failures: Vec<String>,
    /// The skips, each with its name and reason.
    pub(crate) skipped: Vec<String>,
}

impl Tally {
    pub(crate) fn passed(count: usize) -> Self {
        Self {
            passed: count,
            ..Self::default()
        }
    }

    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self {
            failures: vec![what.into()],
            ..Self::default()
        }
    }

    pub(crate) fn skipped(what: impl Into<String>) -> Self {
        Self {
            skipped: vec![what.into()],
            ..Self::default()
        }
    }

    /// Turns skips into failures if `strict`.
    pub(crate) fn judged(mut self, strict: bool) -> Self {
        if strict {
            let skipped = self.skipped.drain(..);
            self.failures
                .extend(skipped.map(|skip| format!("{skip} (skipped)")));
        }
        self
    }

    pub(crate) fn is_red(&self) -> bool {
        self.failed + self.failures.len() > 0
    }

    /// Parses `Summary [ 0.3s] 25 tests run: 23 passed (1 slow), 1 failed, 1 timed out, 2 skipped`.
    pub(crate) fn of_nextest(output: &str) -> Option<Self> {
        let (_, counts) = output.lines().rev().find_map(|line| {
            line.trim_start()
                .strip_prefix("Summary [")?
                .split_once("run:")
        })?;
        let mut tally = Self::default();
        // `23 passed (1 slow, 1 leaky)` counts only 23.
        let counts = counts
            .split('(')
            .map(|part| part.rsplit(')').next().unwrap_or(part));
        for part in counts.collect::<String>().split(',') {
            let (number, what) = part.trim().split_once(' ')?;
            let number: usize = number.parse().ok()?;
            match what.split(' ').next()? {
                "passed" => tally.passed += number,
                // nextest's "skipped" means ignored or filtered out. A test that skips itself counts as passed.
                "skipped" => {}
                _ => tally.failed += number,
            }
        }
        Some(tally)
    }

    /// Adds up all lines `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub(crate) fn of_libtest(output: &str) -> Option<Self> {
        let mut tally = Self::default();
        let mut found = false;
        for counts in output.lines().filter_map(|line| {
            line.trim_start()
                .strip_prefix("test result: ")?
                .split_once(". ")
        }) {
            found = true;
            for part in counts.1.split("; ") {
                let (number, what) = part.split_once(' ').unwrap_or_default();
                let number: usize = number.parse().unwrap_or(0);
                match what {
                    "passed" => tally.passed += number,
                    "failed" => tally.failed += number,
                    _ => {}
                }
            }
        }
        found.then_some(tally)
    }

    /// Splits the output of a stage of `ci` into its text and its counts.
    pub(crate) fn of_stage(output: &str) -> Option<(&str, Self)> {
        let (output, counts) = output.rsplit_once(&format!("{COUNTS}\n"))?;
        let mut lines = counts.lines().rev();
        let (passed, rest) = lines.next()?.split_once(" passed, ")?;
        let (failed, _) = rest.split_once(" failed, ")?;
        let named = |what: &str| {
            let lines = counts.lines().filter_map(|line| line.strip_prefix(what));
            lines.map(Into::into).collect::<Vec<String>>()
        };
        let failures = named("failed: ");
        let tally = Self {
            passed: passed.parse().ok()?,
            failed: failed.parse::<usize>().ok()?.checked_sub(failures.len())?,
            failures,
            skipped: named("skipped: "),
        };
        Some((output, tally))
    }

    /// Parses the lines of the live checks: `ok: …`, `failed: …`, `skipped: …`.
    pub(crate) fn of_live(output: &str) -> Self {
        let mut tally = Self::default();
        for (verdict, what) in output.lines().filter_map(|line| line.split_once(": ")) {
            match verdict {
                "ok" => tally.passed += 1,
                "failed" => tally.failures.push(format!("live: {what}")),
                "skipped" => tally.skipped.push(format!("live: {what}")),
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed + self.failures.len();
        write!(
            f,
            "{} passed, {failed} failed, {} skipped",
            self.passed,
            self.skipped.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_nextest_are_read_for_every_outcome() {
        let output = "  PASS x\n     Summary [   0.285s] 27 tests run: 23 passed (1 slow, 1 leaky), 1 failed, 2 timed out, 2 skipped\nerror: test run failed";
        let tally = Tally::of_nextest(output).unwrap();
        assert_eq!(tally.to_string(), "23 passed, 3 failed, 0 skipped");
        assert!(tally.is_red());
        assert_eq!(
            Tally::of_nextest("Summary [ 1s] 1/9 tests run: 1 passed, 0 skipped")
                .unwrap()
                .to_string(),
            "1 passed, 0 failed, 0 skipped"
        );
        assert_eq!(Tally::of_nextest("error: could not compile"), None);
    }

    #[test]
    fn counts_of_all_binaries_are_added_up() {
        let output = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(
            Tally::of_libtest(output).unwrap().to_string(),
            "4 passed, 2 failed, 0 skipped"
        );
        assert_eq!(Tally::of_libtest(""), None);
    }

    #[test]
    fn ci_stage_reads_back_its_counts() {
        let tally = Tally {
            passed: 3,
            failed: 2,
            failures: vec!["docs: links".into()],
            skipped: vec!["live: two: no npm".into()],
        };
        let printed = "failed: live said this by itself\n";
        let skips = "skipped: live: two: no npm\nfailed: docs: links\n";
        let output = format!("{printed}{COUNTS}\n{skips}{tally}\n");
        assert_eq!(Tally::of_stage(&output), Some((printed, tally)));
        assert_eq!(Tally::of_stage("thread main panicked\n"), None);
    }

    #[test]
    fn skip_is_a_failure_if_all_tools_are_required() {
        let tally = |strict| Tally::skipped("one: no npm").judged(strict);
        assert!(!tally(false).is_red() && tally(true).is_red());
        assert_eq!(tally(true).failures, ["one: no npm (skipped)"]);
        assert_eq!(tally(true).to_string(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn live_checks_print_their_names() {
        let tally = Tally::of_live("installing\nok: one\nskipped: two: no npm\nfailed: three\n");
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(
            (tally.failures, tally.skipped),
            (vec!["live: three".into()], vec!["live: two: no npm".into()])
        );
    }
}
