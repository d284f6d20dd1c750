//! What the pages for contributors name: that the test, the file or the folder is there.

use std::collections::HashSet;
use std::path::Path;

use fs_err as fs;

use crate::sources;

/// The pages that name tests and files of this repository.
const PAGES: [&str; 2] = ["CONTRIBUTING.md", "SECURITY.md"];
/// A name with so many words is a test's.
const WORDS: usize = 4;

/// Says of each name that nothing has it.
pub(super) fn unknown(root: &Path) -> Vec<String> {
    let sources = sources::read(root);
    let tests: HashSet<&str> = sources.iter().flat_map(sources::Source::tests).collect();
    let complaints = PAGES.into_iter().flat_map(|page| {
        let text = fs::read_to_string(root.join(page)).unwrap_or_default();
        let wrong = names(&text).filter(|name| match kind(name) {
            Kind::Test => !tests.contains(name),
            Kind::Path => !root.join(name).exists(),
            Kind::Other => false,
        });
        let wrong = wrong.map(|name| format!("{page}: {name}: there is nothing of that name"));
        wrong.collect::<Vec<_>>()
    });
    complaints.collect()
}

enum Kind {
    Test,
    Path,
    Other,
}

fn kind(name: &str) -> Kind {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(is_word) && name.split('_').count() >= WORDS {
        Kind::Test
    } else if name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.contains('/')
        && !name.contains(' ')
    {
        Kind::Path
    } else {
        Kind::Other
    }
}

/// What stands between backticks, outside of blocks of code.
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
    fn names_of_tests_and_files_are_told_from_other_words() {
        let text = "```sh\n`a/b`\n```\n`x1_it_ends_so` in `crates/a`, not `--until`, `../` or `cargo run`.";
        let kinds = names(text).map(|name| match kind(name) {
            Kind::Test => 't',
            Kind::Path => 'p',
            Kind::Other => '-',
        });
        assert_eq!(kinds.collect::<String>(), "tp---");
    }
}
