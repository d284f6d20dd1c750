//! Compares `tests/acceptance.md` with the tests that show its items, and with the results of the last test run.

mod judge;
mod list;
#[cfg(test)]
mod numbers;
mod results;

use std::collections::BTreeMap;

pub(crate) use crate::acceptance::judge::TestFunction;
pub(crate) use crate::acceptance::list::{List, ListEntry};

use crate::acceptance::judge::{ClauseState, Judgement};
use crate::acceptance::results::Results;
use crate::sources::{self, Source};
use crate::tally::Tally;
use crate::test;
use crate::workspace::Workspace;

/// Prints each item and clause with its tests and its verdict.
pub(crate) fn run(workspace: &Workspace, missing: bool) -> Tally {
    let (list, judgement) = judged(workspace);
    for item in &list.items {
        print(item, &judgement, missing, "");
        for clause in &item.clauses {
            print(clause, &judgement, missing, "  ");
        }
    }
    report(&judgement)
}

/// Checks all items and clauses without printing the list.
pub(crate) fn stage(workspace: &Workspace) -> Tally {
    report(&judged(workspace).1)
}

fn judged(workspace: &Workspace) -> (List, Judgement) {
    let list = List::read(&workspace.root);
    let tests = tests_by_item(workspace, &sources::read(&workspace.root));
    let results = match fs_err::read_to_string(workspace.root.join(test::REPORT)) {
        Ok(report) => {
            let results = Results::of_junit(&report);
            println!("the last test run has {} tests", results.count());
            Some(results)
        }
        Err(_) => {
            let report = test::REPORT;
            println!("no test report at {report}; only the names of the tests are checked");
            None
        }
    };
    let judgement = judge::judge(&list, tests, results.as_ref());
    (list, judgement)
}

fn report(judgement: &Judgement) -> Tally {
    println!("{}", judgement.summary());
    let (failures, skipped) = (judgement.failures(), judgement.skips());
    Tally {
        passed: usize::from(failures.is_empty()),
        failures,
        skipped,
        ..Tally::default()
    }
}

fn print(item: &list::Item, judgement: &Judgement, missing: bool, indent: &str) {
    if !item.clauses.is_empty() {
        println!("{:<5}    {}", item.id, head(&item.text));
        return;
    }
    let point = judgement.points.iter().find(|point| point.id == item.id);
    let Some(point) = point else { return };
    let is_shown = matches!(point.verdict, ClauseState::Shown);
    if is_shown && missing {
        return;
    }
    let count = match point.tests.len() {
        0 => "-".to_owned(),
        count => count.to_string(),
    };
    println!("{indent}{:<5} {count}  {}", item.id, head(&item.text));
    if !missing {
        for test in &point.tests {
            println!("{indent}         {}: {}", test.path.display(), test.name);
        }
    }
    if let Some(reason) = point.verdict.reason() {
        println!("{indent}         {reason}");
    }
}

/// A clause, or an item without clauses, and the tests that show it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clause {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) tests: Vec<TestFunction>,
}

/// Returns the clauses that have tests.
pub(crate) fn clauses(workspace: &Workspace) -> Vec<Clause> {
    let list = List::read(&workspace.root);
    let mut tests = tests_by_item(workspace, &sources::read(&workspace.root));
    let clauses = list.points().filter_map(|item| {
        Some(Clause {
            id: item.id.clone(),
            text: item.text.clone(),
            tests: tests.remove(&item.id)?,
        })
    });
    clauses.collect()
}

/// Returns the tests of each item and clause.
fn tests_by_item(workspace: &Workspace, sources: &[Source]) -> BTreeMap<String, Vec<TestFunction>> {
    let mut by_item: BTreeMap<String, Vec<TestFunction>> = BTreeMap::new();
    for source in sources {
        let path = workspace.root.join(&source.path);
        let package = { workspace.packages.iter() }
            .find(|package| path.starts_with(&package.folder))
            .map(|package| package.name.as_str());
        for test in source.test_functions() {
            for item in sources::items_of(test.name) {
                by_item.entry(item).or_default().push(TestFunction {
                    package: package.unwrap_or_default().to_owned(),
                    path: source.path.clone(),
                    name: test.name.to_owned(),
                    is_ignored: test.is_ignored,
                });
            }
        }
    }
    by_item
}

fn head(text: &str) -> String {
    let mut head: String = text.chars().take(100).collect();
    if head.len() < text.len() {
        head.push('…');
    }
    head
}
