//! Rules on files: how long they may be, that each says why it is there, and that tests do not claim items that are not there.

use std::collections::HashSet;

use crate::acceptance;
use crate::sources::{self, Source};
use crate::workspace::Workspace;

const LONGEST: usize = 500;
/// What a longer file must say in its `//!`, with the reason behind it.
const EXCUSE: &str = "is long because";

/// Names the tests that are called after an item of the acceptance list that does not exist.
pub(super) fn unknown_items(workspace: &Workspace) -> Vec<String> {
    let known: HashSet<String> = acceptance::items(&workspace.root)
        .into_iter()
        .map(|item| item.id)
        .collect();
    let sources = sources::read(&workspace.root);
    let unknown = |source: &Source| -> Vec<String> {
        let items = source
            .tests()
            .flat_map(|test| sources::items_of(test).map(move |item| (test, item)));
        items
            .filter(|(_, item)| !known.contains(item))
            .map(|(test, item)| {
                format!("{}: {test}: there is no item {item}", source.path.display())
            })
            .collect()
    };
    sources.iter().flat_map(unknown).collect()
}

/// Names the files that are too long and do not say why.
pub(super) fn too_long(workspace: &Workspace) -> Vec<String> {
    let sources = sources::read(&workspace.root);
    let long = sources.iter().filter(|source| is_too_long(&source.text));
    long.map(|source| {
        format!(
            "{}: {} lines; split it, or say in its `//!` that it {EXCUSE} …",
            source.path.display(),
            source.text.lines().count()
        )
    })
    .collect()
}

fn is_too_long(text: &str) -> bool {
    let excused = text
        .lines()
        .any(|line| line.starts_with("//!") && line.contains(EXCUSE));
    text.lines().count() > LONGEST && !excused
}

/// Names the files that do not begin with what they are for.
pub(super) fn without_header(workspace: &Workspace) -> Vec<String> {
    let sources = sources::read(&workspace.root);
    let without = sources.iter().filter(|source| !has_header(&source.text));
    without
        .map(|source| {
            format!(
                "{}: say in its first line, by `//!`, what it is for and why it is apart",
                source.path.display()
            )
        })
        .collect()
}

/// The first line has to have it, before attributes and imports: whoever opens the file reads that.
fn has_header(text: &str) -> bool {
    let said = text.strip_prefix("//!").and_then(|it| it.lines().next());
    said.is_some_and(|said| !said.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_begins_with_what_it_is_for() {
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

    #[test]
    fn a_long_file_needs_a_reason() {
        let body = "x\n".repeat(500);
        assert!(!is_too_long(&body));
        assert!(is_too_long(&format!("//! A table.\n{body}")));
        assert!(!is_too_long(&format!(
            "//! A table. It is long because the standard is.\n{body}"
        )));
    }
}
