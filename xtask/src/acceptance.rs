//! Which items of `tests/acceptance.md` have a test that shows them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::sources::{self, Source};
use crate::tally::Tally;
use crate::workspace::Workspace;

const LIST: &str = "tests/acceptance.md";

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
    println!("{}", summary(&items, &shown));
    Tally::default()
}

/// One line for the whole.
pub(crate) fn summarise(workspace: &Workspace) -> String {
    summary(
        &items(&workspace.root),
        &shown(&sources::read(&workspace.root)),
    )
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
}
