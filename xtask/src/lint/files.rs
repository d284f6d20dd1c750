//! Rules on files: each states its purpose, and no test names an unknown acceptance item.

use crate::acceptance::{List, ListEntry};
use crate::sources::{self, Source};
use crate::workspace::Workspace;

/// Names the tests whose name contains an item that is not in the acceptance list, or an item that has clauses.
pub(super) fn unknown_items(workspace: &Workspace) -> Vec<String> {
    let list = List::read(&workspace.root);
    let sources = sources::read(&workspace.root);
    let wrong = sources.iter().flat_map(|source| misnamed(source, &list));
    wrong.collect()
}

fn misnamed(source: &Source, list: &List) -> Vec<String> {
    let items = source
        .tests()
        .flat_map(|test| sources::items_of(test).map(move |item| (test, item)));
    let wrong = items.filter_map(|(test, item)| {
        let why = match list.find(&item) {
            ListEntry::Point => return None,
            ListEntry::Nothing => format!("no such item {item}"),
            ListEntry::Parent => format!("{item} has clauses; name the clause"),
        };
        Some(format!("{}: {test}: {why}", source.path.display()))
    });
    wrong.collect()
}

/// Names the files that do not begin with their purpose.
pub(super) fn without_header(workspace: &Workspace) -> Vec<String> {
    let sources = sources::read(&workspace.root);
    let without = sources.iter().filter(|source| !has_header(&source.text));
    without
        .map(|source| {
            format!(
                "{}: state the purpose of the file in its first line, with `//!`",
                source.path.display()
            )
        })
        .collect()
}

/// Whether the first line states the purpose. It must come before attributes and imports, where every reader sees it.
fn has_header(text: &str) -> bool {
    let said = text.strip_prefix("//!").and_then(|it| it.lines().next());
    said.is_some_and(|said| !said.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_an_item_and_its_clause() {
        let list = List::parse("- **S1** a\n- **J41** b\n  - **J41a** c\n");
        let marker = "#[test]"; // in a variable, since this lint also reads this file
        let of = |name: &str| {
            let source = Source {
                path: "a.rs".into(),
                text: format!("{marker}\nfn {name}() {{}}"),
            };
            misnamed(&source, &list)
        };
        assert!(of("s1_j41a_x").is_empty() && of("plain").is_empty());
        assert_eq!(of("s2_x"), ["a.rs: s2_x: no such item S2"]);
        assert_eq!(of("s1a_x"), ["a.rs: s1a_x: no such item S1a"]);
        let parent = "a.rs: s1_j41_x: J41 has clauses; name the clause";
        assert_eq!(of("s1_j41_x"), [parent]);
    }

    #[test]
    fn file_starts_with_its_purpose() {
        assert!(has_header("//! A table.\n\nuse std::fmt;\n"));
        for text in [
            "",
            "use std::fmt;\n",
            "use std::fmt;\n//! A table.\n",
            "//!\n//! A table.\n",
            "/// A table.\nstruct Table;\n",
            "#![no_main]\n//! A table.\n",
            "\n//! A table.\n",
        ] {
            assert!(!has_header(text), "{text:?}");
        }
    }
}
