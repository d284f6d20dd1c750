//! The results of the last test run, by package and test function.

use std::collections::HashMap;

use crate::skips;

/// The result of a test function in the last run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// The test skipped a part, with the reason.
    Skipped(String),
}

/// The report of nextest. A function name is unique in a package, except for a few in several modules, whose results are combined.
#[derive(Debug, Default)]
pub(super) struct Results(HashMap<(String, String), Vec<Outcome>>);

impl Results {
    pub(super) fn of_junit(report: &str) -> Self {
        let mut results: HashMap<_, Vec<_>> = HashMap::new();
        for case in skips::cases(report) {
            // For instance `rlm-tests::e2e` and `menu::s7_…`.
            let package = case.binary.split("::").next().unwrap_or_default();
            let name = case.test.rsplit("::").next().unwrap_or_default();
            let outcome = match case.reasons.into_iter().next() {
                _ if case.has_failed => Outcome::Failed,
                Some(reason) => Outcome::Skipped(reason),
                None => Outcome::Passed,
            };
            let key = (package.to_owned(), name.to_owned());
            results.entry(key).or_default().push(outcome);
        }
        Self(results)
    }

    pub(super) fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Returns `None` for a test that did not run.
    pub(super) fn of(&self, package: &str, name: &str) -> Option<Outcome> {
        let outcomes = self.0.get(&(package.to_owned(), name.to_owned()))?;
        let has = |outcome: &Outcome| outcomes.contains(outcome);
        match outcomes.first()? {
            _ if has(&Outcome::Failed) => Some(Outcome::Failed),
            _ if has(&Outcome::Passed) => Some(Outcome::Passed),
            skipped => Some(skipped.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_by_package_and_function() {
        let report = "<testsuite>\n\
            <testcase name=\"menu::s7_a\" classname=\"rlm-tests::e2e\"></testcase>\n\
            <testcase name=\"one::p4_b\" classname=\"agent\">\n<system-out>skipped: no disk\n</system-out></testcase>\n\
            <testcase name=\"two::p4_b\" classname=\"agent\"></testcase>\n\
            <testcase name=\"c\" classname=\"agent::it\"><failure type=\"test failure\">no</failure></testcase>\n\
            <testcase name=\"e\" classname=\"agent::it\">\n<system-err>skipped: no disk\n</system-err></testcase>\n";
        let results = Results::of_junit(report);
        assert_eq!(results.of("rlm-tests", "s7_a"), Some(Outcome::Passed));
        assert_eq!(results.of("agent", "s7_a"), None);
        assert_eq!(results.of("agent", "p4_b"), Some(Outcome::Passed));
        assert_eq!(results.of("agent", "c"), Some(Outcome::Failed));
        let skipped = Outcome::Skipped("no disk".into());
        assert_eq!(results.of("agent", "e"), Some(skipped));
    }
}
