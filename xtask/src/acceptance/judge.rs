//! Decides which items and clauses of the acceptance list are shown, by the names of the tests and the results of their last run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::acceptance::list::List;
use crate::acceptance::results::{Outcome, Results};

/// A test function whose name contains an item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestFunction {
    pub(crate) package: String,
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) is_ignored: bool,
}

/// Whether a clause is shown. An item without clauses counts as its own clause.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClauseState {
    Shown,
    /// The list states that it needs no test, and it has none.
    Exempt,
    NoTest,
    /// These tests failed.
    Failed(Vec<String>),
    /// All its tests were skipped on this machine, with the reason of each.
    NotShownHere(Vec<String>),
}

impl ClauseState {
    /// Returns the reason why the clause isn't shown.
    pub(super) fn reason(&self) -> Option<String> {
        match self {
            Self::Shown => None,
            Self::Exempt => Some("needs no test".into()),
            Self::NoTest => Some("has no test".into()),
            Self::Failed(tests) => Some(format!("failed: {}", tests.join(", "))),
            Self::NotShownHere(reasons) => Some(format!("not shown here: {}", reasons.join("; "))),
        }
    }
}

/// The result of one clause.
#[derive(Debug)]
pub(super) struct ClauseResult {
    pub(super) id: String,
    pub(super) tests: Vec<TestFunction>,
    pub(super) verdict: ClauseState,
}

/// The result of the list.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) points: Vec<ClauseResult>,
    /// The errors in the list itself.
    errors: Vec<String>,
    shown_items: usize,
    items: usize,
    is_by_results: bool,
}

pub(super) fn judge(
    list: &List,
    mut tests: BTreeMap<String, Vec<TestFunction>>,
    results: Option<&Results>,
) -> Judgement {
    let mut errors = list.errors.clone();
    for id in &list.without {
        let is_point = list.points().any(|point| point.id == *id);
        if !is_point || tests.contains_key(id) {
            errors.push(format!("{id} must not be in `Without a test: `"));
        }
    }
    let points = list.points().map(|item| {
        let tests = tests.remove(&item.id).unwrap_or_default();
        let verdict = match results {
            _ if tests.is_empty() && list.without.contains(&item.id) => ClauseState::Exempt,
            _ if tests.is_empty() => ClauseState::NoTest,
            Some(results) => of_results(&tests, results),
            None => ClauseState::Shown,
        };
        ClauseResult {
            id: item.id.clone(),
            tests,
            verdict,
        }
    });
    let points: Vec<ClauseResult> = points.collect();
    let is_shown = |id: &str| {
        let point = points.iter().find(|point| point.id == id);
        point.is_some_and(|point| point.verdict == ClauseState::Shown)
    };
    let shown_items = list.items.iter();
    let shown_items = shown_items.filter(|item| item.points().all(|point| is_shown(&point.id)));
    Judgement {
        shown_items: shown_items.count(),
        items: list.items.len(),
        points,
        errors,
        is_by_results: results.is_some(),
    }
}

fn of_results(tests: &[TestFunction], results: &Results) -> ClauseState {
    let mut failed = Vec::new();
    // The tests of each reason, in the order of the sources.
    let mut skipped: Vec<(String, Vec<&str>)> = Vec::new();
    for test in tests {
        let name = test.name.as_str();
        let reason = match results.of(&test.package, name) {
            Some(Outcome::Passed) => continue,
            Some(Outcome::Failed) => {
                failed.push(name.to_owned());
                continue;
            }
            Some(Outcome::Skipped(reason)) => reason,
            None if test.is_ignored => "#[ignore]".to_owned(),
            None => "not in the last test run".to_owned(),
        };
        match skipped.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => skipped.push((reason, vec![name])),
        }
    }
    let skips: usize = skipped.iter().map(|(_, names)| names.len()).sum();
    if !failed.is_empty() {
        ClauseState::Failed(failed)
    } else if skips == tests.len() {
        let reasons = skipped.into_iter();
        ClauseState::NotShownHere(
            reasons
                .map(|(reason, names)| with(&reason, &names))
                .collect(),
        )
    } else {
        ClauseState::Shown
    }
}

/// Formats a reason with the tests that have it.
fn with(reason: &str, names: &[&str]) -> String {
    match names {
        [first] => format!("{reason} ({first})"),
        [first, more @ ..] => format!("{reason} ({first} and {} more)", more.len()),
        [] => reason.to_owned(),
    }
}

impl Judgement {
    pub(super) fn failures(&self) -> Vec<String> {
        let errors = self.errors.iter().cloned();
        let points = self
            .points
            .iter()
            .filter(|point| matches!(point.verdict, ClauseState::NoTest | ClauseState::Failed(_)));
        let lines = errors.chain(points.filter_map(ClauseResult::line));
        lines.map(|line| format!("acceptance: {line}")).collect()
    }

    pub(super) fn skips(&self) -> Vec<String> {
        let points = self.points.iter();
        let points = points.filter(|point| matches!(point.verdict, ClauseState::NotShownHere(_)));
        let lines = points.filter_map(ClauseResult::line);
        lines.map(|line| format!("acceptance: {line}")).collect()
    }

    pub(super) fn summary(&self) -> String {
        let shown = self.points.iter();
        let shown = shown.filter(|point| point.verdict == ClauseState::Shown);
        let verb = match self.is_by_results {
            true => "are shown by the last test run",
            false => "have a test",
        };
        format!(
            "{} of {} acceptance items {verb} ({} of {} clauses)",
            self.shown_items,
            self.items,
            shown.count(),
            self.points.len()
        )
    }
}

impl ClauseResult {
    fn line(&self) -> Option<String> {
        Some(format!("{} {}", self.id, self.verdict.reason()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "- **S1** a\n- **J41** b\n  - **J41a** c\n  - **J41b** d\n- **P7** e\n\nWithout a test: P7.\n";

    fn test(name: &str) -> TestFunction {
        TestFunction {
            package: "p".into(),
            name: name.into(),
            ..TestFunction::default()
        }
    }

    fn judged(
        list: &str,
        tests: impl IntoIterator<Item = TestFunction>,
        report: Option<&str>,
    ) -> Judgement {
        let mut by_item: BTreeMap<String, Vec<TestFunction>> = BTreeMap::new();
        for test in tests {
            for item in crate::sources::items_of(&test.name) {
                by_item.entry(item).or_default().push(test.clone());
            }
        }
        let results = report.map(Results::of_junit);
        judge(&List::parse(list), by_item, results.as_ref())
    }

    fn case(name: &str, inner: &str) -> String {
        format!("<testcase name=\"m::{name}\" classname=\"p::it\">{inner}</testcase>\n")
    }

    fn skipped(name: &str) -> String {
        case(name, "\n<system-out>skipped: no namespaces\n</system-out>")
    }

    #[test]
    fn every_clause_needs_its_own_test() {
        let judgement = judged(LIST, ["s1_a", "j41a_b"].map(test), None);
        assert_eq!(judgement.failures(), ["acceptance: J41b has no test"]);
        assert_eq!(
            judgement.summary(),
            "1 of 3 acceptance items have a test (2 of 4 clauses)"
        );
        let all = judged(LIST, ["s1_j41a_a", "j41b_b"].map(test), None);
        assert!(all.failures().is_empty() && all.skips().is_empty());
        assert!(all.summary().starts_with("2 of 3 "));
    }

    #[test]
    fn item_has_a_test_or_is_listed_as_untested() {
        let list = "- **S1** a\n- **S2** b\n- **S3** c\n  - **S3a** d\n\nWithout a test: S2, S1, S3, S4.\n";
        let judgement = judged(list, ["s1_a", "s3a_b"].map(test), None);
        let expected = ["S1", "S3", "S4"]
            .map(|id| format!("acceptance: {id} must not be in `Without a test: `"));
        assert_eq!(judgement.failures(), expected);
    }

    #[test]
    fn clause_with_only_skipped_tests_is_not_covered() {
        let mut ignored = test("j41b_d");
        ignored.is_ignored = true;
        let named = ["s1_a", "j41a_b", "j41a_c", "j41b_c"].map(test);
        let tests: Vec<_> = named.into_iter().chain([ignored]).collect();
        let skips = ["j41a_b", "j41a_c", "j41b_c"].map(skipped).concat();
        let report = case("s1_a", "") + &skips;
        let judgement = judged(LIST, tests.clone(), Some(&report));
        assert!(judgement.failures().is_empty());
        assert_eq!(
            judgement.skips(),
            [
                "acceptance: J41a not shown here: no namespaces (j41a_b and 1 more)",
                "acceptance: J41b not shown here: no namespaces (j41b_c); #[ignore] (j41b_d)",
            ]
        );
        assert_eq!(
            judgement.summary(),
            "1 of 3 acceptance items are shown by the last test run (1 of 4 clauses)"
        );

        // One test that passed is enough. A test that did not run doesn't count.
        let report = case("s1_a", "") + &case("j41b_c", "");
        let judgement = judged(LIST, tests, Some(&report));
        assert_eq!(
            judgement.skips(),
            ["acceptance: J41a not shown here: not in the last test run (j41a_b and 1 more)"]
        );
    }

    #[test]
    fn a_clause_with_a_failed_test_has_failed() {
        let tests = ["s1_a", "s1_b", "j41a_b", "j41b_c"].map(test);
        let failed = case("s1_b", "<failure type=\"test failure\">no</failure>");
        let report = case("s1_a", "") + &failed + &case("j41a_b", "") + &case("j41b_c", "");
        let judgement = judged(LIST, tests, Some(&report));
        assert_eq!(judgement.failures(), ["acceptance: S1 failed: s1_b"]);
    }

    #[test]
    fn a_list_that_breaks_its_format_is_a_failure() {
        let judgement = judged("- **S1** a\n- **S1** b\n", ["s1_a"].map(test), None);
        assert!(judgement.failures()[0].contains("duplicate item S1"));
    }
}
