//! Reads `tests/acceptance.md`: the items, their lettered clauses, and the items without a test.

use std::collections::HashSet;
use std::path::Path;

use crate::sources;

const LIST: &str = "tests/acceptance.md";
/// The prefix of the line that names the items without a test.
const WITHOUT_TEST: &str = "Without a test: ";

/// The acceptance list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(super) items: Vec<Item>,
    /// The ids after `Without a test: `.
    pub(super) without: Vec<String>,
    /// The lines that break the format.
    pub(super) errors: Vec<String>,
}

/// An item of the list, or a clause of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) text: String,
    /// Empty for a clause, and for an item without clauses.
    pub(super) clauses: Vec<Item>,
}

/// The kind of an id in the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ListEntry {
    Nothing,
    /// A clause, or an item without clauses: the name of a test can contain it.
    Point,
    /// An item with clauses: a test must name one of them.
    Parent,
}

impl List {
    pub(crate) fn read(root: &Path) -> Self {
        Self::parse(&fs_err::read_to_string(root.join(LIST)).unwrap_or_default())
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut list = Self::default();
        let mut seen = HashSet::new();
        for line in text.lines() {
            if let Some(without) = line.strip_prefix(WITHOUT_TEST) {
                let ids = without.split(", ").map(|id| id.trim_end_matches('.'));
                list.without
                    .extend(ids.filter(|id| !id.is_empty()).map(Into::into));
            }
            let Some((is_clause, id, text)) = bullet(line) else {
                continue;
            };
            if !seen.insert(id) {
                list.errors.push(format!("duplicate item {id}"));
            }
            let item = Item {
                id: id.into(),
                text: text.into(),
                clauses: Vec::new(),
            };
            if !is_clause {
                if parts(id).is_none_or(|(_, letter)| letter.is_some()) {
                    let error = format!("invalid item {id}: expected a letter and a number");
                    list.errors.push(error);
                }
                list.items.push(item);
                continue;
            }
            let Some(parent) = list.items.last_mut() else {
                list.errors.push(format!("no item above clause {id}"));
                continue;
            };
            let letter = (b'a'..=b'z').nth(parent.clauses.len());
            let expected = letter.map(|letter| format!("{}{}", parent.id, char::from(letter)));
            if expected.as_deref() != Some(id) {
                let expected = expected.as_deref().unwrap_or("no more clauses");
                let error = format!("expected {expected}, found {id}");
                list.errors.push(error);
            }
            parent.clauses.push(item);
        }
        list
    }

    /// Looks up the id of a test name.
    pub(crate) fn find(&self, id: &str) -> ListEntry {
        match self.items.iter().find(|item| item.id == id) {
            Some(item) if item.clauses.is_empty() => ListEntry::Point,
            Some(_) => ListEntry::Parent,
            None if self.points().any(|point| point.id == id) => ListEntry::Point,
            None => ListEntry::Nothing,
        }
    }

    /// Returns everything that needs its own test: the clauses, and the items without clauses.
    pub(super) fn points(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().flat_map(Item::points)
    }
}

impl Item {
    pub(super) fn points(&self) -> impl Iterator<Item = &Item> {
        let own = self.clauses.is_empty().then_some(self);
        own.into_iter().chain(&self.clauses)
    }
}

/// Parses `- **J41** text` and `  - **J41a** text`.
fn bullet(line: &str) -> Option<(bool, &str, &str)> {
    let (is_clause, line) = match line.strip_prefix("  ") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let (id, text) = line.strip_prefix("- **")?.split_once("** ")?;
    Some((is_clause, id, text))
}

/// Splits `J41a` into `J41` and `a`.
fn parts(id: &str) -> Option<(&str, Option<char>)> {
    let test = format!("{}_", id.to_lowercase());
    sources::items_of(&test).next().filter(|item| item == id)?;
    match id.chars().last() {
        Some(letter) if letter.is_ascii_lowercase() => Some((&id[..id.len() - 1], Some(letter))),
        _ => Some((id, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<&'a str> {
        items.map(|item| item.id.as_str()).collect()
    }

    #[test]
    fn items_are_bold_bullets_and_clauses_are_bullets_below_them() {
        let text = "# T\n- **S1** `rlm run`: does\n- not one\n- **J41** Shutdown\n  - **J41a** It prints\n  - **J41b** It ends\n- **X101** ★ Stop\n\nWithout a test: P7, J41b.\n";
        let list = List::parse(text);
        assert_eq!(ids(list.items.iter()), ["S1", "J41", "X101"]);
        assert_eq!(ids(list.points()), ["S1", "J41a", "J41b", "X101"]);
        assert_eq!(list.items[1].clauses[0].text, "It prints");
        assert_eq!(list.without, ["P7", "J41b"]);
        assert!(list.errors.is_empty(), "{:?}", list.errors);
    }

    #[test]
    fn an_item_with_clauses_is_found_as_a_parent() {
        let list = List::parse("- **S1** a\n- **J41** b\n  - **J41a** c\n");
        assert_eq!(list.find("S1"), ListEntry::Point);
        assert_eq!(list.find("J41"), ListEntry::Parent);
        assert_eq!(list.find("J41a"), ListEntry::Point);
        for unknown in ["S2", "S1a", "J41b"] {
            assert_eq!(list.find(unknown), ListEntry::Nothing, "{unknown}");
        }
    }

    #[test]
    fn a_line_that_breaks_the_format_is_an_error() {
        let errors = |text| List::parse(text).errors;
        assert_eq!(errors("- **S1** a\n- **S1** b\n"), ["duplicate item S1"]);
        assert_eq!(errors("  - **S1a** b\n"), ["no item above clause S1a"]);
        let other = "- **S1** a\n  - **S2a** b\n";
        assert_eq!(errors(other), ["expected S1a, found S2a"]);
        let gap = "- **S1** a\n  - **S1a** b\n  - **S1c** c\n";
        assert_eq!(errors(gap), ["expected S1b, found S1c"]);
        for wrong in ["- **S1a** no parent\n", "- **Q1** a\n", "- **note** a\n"] {
            assert_eq!(errors(wrong).len(), 1, "{wrong}");
        }
    }
}
