//! Checks the names in the pages for contributors and in the tables of guarantees of the crates: the test, file or directory must exist.

use std::collections::HashSet;
use std::path::Path;

use fs_err as fs;

use crate::sources;

/// The pages that name tests and files of this repository.
const PAGES: [&str; 2] = ["CONTRIBUTING.md", "SECURITY.md"];
/// The section with the tables.
const GUARANTEES: &str = "## Guarantees";
/// A name with this many words is the name of a test.
const WORDS: usize = 4;

/// Returns an error for each name that doesn't exist.
pub(super) fn unknown(root: &Path) -> Vec<String> {
    let sources = sources::read(root);
    let tests: HashSet<&str> = sources.iter().flat_map(sources::Source::tests).collect();
    let complaints = PAGES.into_iter().flat_map(|page| {
        let text = fs::read_to_string(root.join(page)).unwrap_or_default();
        let wrong = names(&text).filter(|name| match kind(name) {
            NameKind::Test => !tests.contains(name),
            NameKind::Path => !root.join(name).exists(),
            NameKind::Other => false,
        });
        let wrong = wrong.map(|name| format!("{page}: {name}: no such test, file or directory"));
        wrong.collect::<Vec<_>>()
    });
    let mut complaints: Vec<String> = complaints.collect();
    let readmes = sources::with_extensions(root, &["md"]).into_iter();
    for page in readmes.filter(|page| page.path.ends_with("README.md")) {
        let proofs = proofs(&page.text);
        let wrong = proofs.filter(|name| !is_shown(name, &tests, &sources));
        complaints
            .extend(wrong.map(|name| format!("{}: {name}: no such test", page.path.display())));
    }
    complaints
}

/// Returns the names in the last column of the tables of guarantees.
fn proofs(text: &str) -> impl Iterator<Item = &str> {
    let mut is_ours = false;
    let rows = text.lines().filter(move |line| {
        if line.starts_with("## ") {
            is_ours = *line == GUARANTEES;
        }
        is_ours && line.starts_with('|')
    });
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

/// Whether this is a test name (possibly with stars) or a test file that exists. Other names pass.
fn is_shown(name: &str, tests: &HashSet<&str>, sources: &[sources::Source]) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '*';
    if !name.chars().all(is_word) {
        return true;
    }
    match name.split_once('*') {
        Some((first, last)) => {
            { tests.iter() }.any(|test| test.starts_with(first) && test.ends_with(last))
        }
        None if name.contains('_') => tests.contains(name),
        None => sources.iter().any(|source| {
            source.path.file_stem().is_some_and(|stem| stem == name)
                || source.path.iter().any(|part| part == name)
        }),
    }
}

enum NameKind {
    Test,
    Path,
    Other,
}

fn kind(name: &str) -> NameKind {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(is_word) && name.split('_').count() >= WORDS {
        NameKind::Test
    } else if name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.contains('/')
        && !name.contains(' ')
    {
        NameKind::Path
    } else {
        NameKind::Other
    }
}

/// Returns the texts between backticks, outside of code blocks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    let lines = text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_and_files_are_distinguished_from_other_words() {
        let text = "```sh\n`a/b`\n```\n`x1_it_ends_so` in `crates/a`, not `--until`, `../` or `cargo run`.";
        let kinds = names(text).map(|name| match kind(name) {
            NameKind::Test => 't',
            NameKind::Path => 'p',
            NameKind::Other => '-',
        });
        assert_eq!(kinds.collect::<String>(), "tp---");
    }

    #[test]
    fn guarantee_row_ends_with_its_test() {
        let text = "`a`\n## Guarantees\n\n| promised | shown by |\n|---|---|\n| `send` | `l80_*`, `model`; `Audit` |\n## Limits\n| `b` |\n";
        let names: Vec<&str> = proofs(text).collect();
        assert_eq!(names, ["l80_*", "model", "Audit"]);
        let (tests, model) = (
            HashSet::from(["l80_a", "c_b_holds"]),
            Path::new("a/model.rs"),
        );
        let model = sources::Source {
            path: model.into(),
            text: String::new(),
        };
        let is_shown = |name: &str| is_shown(name, &tests, std::slice::from_ref(&model));
        for name in [
            "l80_*",
            "c_*_holds",
            "c_b_holds",
            "model",
            "a",
            "Audit",
            "a::b",
        ] {
            assert!(is_shown(name), "{name}");
        }
        for name in ["l81_*", "c_*_hold", "c_b", "night"] {
            assert!(!is_shown(name), "{name}");
        }
    }
}
