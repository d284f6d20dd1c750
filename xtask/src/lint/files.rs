//! Rules on files: how long they may be, and that tests do not claim items that are not there.

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

#[cfg(test)]
mod tests {
    use super::*;

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
