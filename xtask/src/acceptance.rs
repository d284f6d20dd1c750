//! Which items of `tests/acceptance.md` have a test that shows them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::sources::{self, Source};
use crate::tally::Tally;
use crate::workspace::Workspace;

const LIST: &str = "tests/acceptance.md";
/// How the line begins that names the items which have no test, and shall have none.
const ON_PURPOSE: &str = "Without a test: ";

/// One item of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) id: String,
    text: String,
}

/// Reads the items of the list, in its order.
pub(crate) fn items(root: &Path) -> Vec<Item> {
    parse(&fs_err::read_to_string(root.join(LIST)).unwrap_or_default())
}

fn parse(list: &str) -> Vec<Item> {
    let bullets = list
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("** "));
    bullets
        .map(|(id, text)| Item {
            id: id.into(),
            text: text.into(),
        })
        .collect()
}

/// The tests of each item, as `path::name`.
fn shown(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources {
        for test in source.tests() {
            for item in sources::items_of(test) {
                shown
                    .entry(item)
                    .or_default()
                    .push(format!("{}: {test}", source.path.display()));
            }
        }
    }
    shown
}

pub(crate) fn run(workspace: &Workspace, missing: bool) -> Tally {
    let items = items(&workspace.root);
    let shown = shown(&sources::read(&workspace.root));
    for item in &items {
        match shown.get(&item.id) {
            None => println!("{:<5} -  {}", item.id, head(&item.text)),
            Some(_) if missing => {}
            Some(tests) => {
                println!("{:<5} {}  {}", item.id, tests.len(), head(&item.text));
                tests.iter().for_each(|test| println!("         {test}"));
            }
        }
    }
    judged(workspace, &items, &shown)
}

/// The same without the lists.
pub(crate) fn stage(workspace: &Workspace) -> Tally {
    let items = items(&workspace.root);
    judged(workspace, &items, &shown(&sources::read(&workspace.root)))
}

fn judged(workspace: &Workspace, items: &[Item], shown: &BTreeMap<String, Vec<String>>) -> Tally {
    println!("{}", summary(items, shown));
    let list = fs_err::read_to_string(workspace.root.join(LIST)).unwrap_or_default();
    match wrong(items, shown, &list) {
        wrong if wrong.is_empty() => Tally::passed(1),
        failures => Tally {
            failures,
            ..Tally::default()
        },
    }
}

/// Names what has no test and is not listed so, and what is listed so and has one, or is no item.
fn wrong(items: &[Item], shown: &BTreeMap<String, Vec<String>>, list: &str) -> Vec<String> {
    let line = list.lines().find_map(|line| line.strip_prefix(ON_PURPOSE));
    let without: Vec<&str> = { line.unwrap_or_default().split(", ") }
        .map(|id| id.trim_end_matches('.'))
        .filter(|id| !id.is_empty())
        .collect();
    let has_test = |id: &str| shown.contains_key(id);
    let unseen = { items.iter() }
        .filter(|item| !has_test(&item.id) && !without.contains(&item.id.as_str()))
        .map(|item| format!("acceptance: {} has no test", item.id));
    let listed = { without.iter() }
        .filter(|id| has_test(id) || items.iter().all(|item| item.id != **id))
        .map(|id| format!("acceptance: {id} does not belong behind `{ON_PURPOSE}`"));
    unseen.chain(listed).collect()
}

fn summary(items: &[Item], shown: &BTreeMap<String, Vec<String>>) -> String {
    let with = items
        .iter()
        .filter(|item| shown.contains_key(&item.id))
        .count();
    format!("{with} of {} acceptance items have a test", items.len())
}

fn head(text: &str) -> String {
    let mut head: String = text.chars().take(100).collect();
    if head.len() < text.len() {
        head.push('…');
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_the_bold_bullets() {
        let list = "# T\n- **S1** `rlm run`: does\n- not one\n- **X101** ★ Stop\n";
        let ids: Vec<String> = parse(list).into_iter().map(|item| item.id).collect();
        assert_eq!(ids, ["S1", "X101"]);
    }

    #[test]
    fn an_item_has_a_test_or_is_listed_as_one_without() {
        let list = "- **S1** a\n- **S2** b\n- **S3** c\n\nWithout a test: S2, S1, S4.\n";
        let shown = BTreeMap::from([("S1".to_owned(), vec!["a.rs: s1_a".to_owned()])]);
        assert_eq!(
            wrong(&parse(list), &shown, list),
            [
                "acceptance: S3 has no test",
                "acceptance: S1 does not belong behind `Without a test: `",
                "acceptance: S4 does not belong behind `Without a test: `",
            ]
        );
    }
}
