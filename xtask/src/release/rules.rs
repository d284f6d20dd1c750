//! The rules of a registry for a manifest and the files of a package. This module reads no file.

use super::crates::Crate;

/// The maximum size of a package before packing; crates.io accepts 10 MB after packing.
pub(crate) const LARGEST: u64 = 30 << 20;
/// The files that every package contains.
const WANTED: [&str; 6] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
];
/// Directories and suffixes of files that are in a package by accident.
const JUNK: [&str; 10] = [
    ".rlm/",
    "target/",
    ".DS_Store",
    ".bak",
    ".log",
    ".orig",
    ".pending-snap",
    ".rej",
    ".snap.new",
    "~",
];
const LICENSE: &str = "MIT OR Apache-2.0";
/// The categories of crates.io that could fit one of our crates. crates.io drops an unknown category, with a warning that is easy to miss. From
/// <https://crates.io/category_slugs>
const CATEGORIES: [&str; 27] = [
    "accessibility",
    "algorithms",
    "api-bindings",
    "asynchronous",
    "caching",
    "command-line-interface",
    "command-line-utilities",
    "concurrency",
    "config",
    "data-structures",
    "database",
    "database-implementations",
    "date-and-time",
    "development-tools",
    "development-tools::debugging",
    "development-tools::profiling",
    "development-tools::testing",
    "encoding",
    "filesystem",
    "network-programming",
    "os",
    "os::linux-apis",
    "os::macos-apis",
    "os::unix-apis",
    "parser-implementations",
    "text-processing",
    "value-formatting",
];

/// Returns the errors in the manifest of a crate.
pub(crate) fn manifest(found: &Crate) -> Vec<String> {
    let mut wrong = Vec::new();
    let length = found.description.chars().count();
    if !(10..=150).contains(&length) || found.description.ends_with('.') {
        wrong.push(format!(
            "description: {length} characters; expected 10 to 150 without a full stop"
        ));
    }
    if found.license != LICENSE {
        wrong.push(format!("license: `{}` is not {LICENSE}", found.license));
    }
    if found.readme != "README.md" {
        wrong.push(format!("readme: `{}` is not README.md", found.readme));
    }
    if !(1..=5).contains(&found.keywords.len()) {
        wrong.push(format!(
            "keywords: {}; expected one to five",
            found.keywords.len()
        ));
    }
    let keyword = |word: &&String| {
        word.len() <= 20
            && word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-+".contains(c))
    };
    let odd = found.keywords.iter().filter(|word| !keyword(word));
    wrong.extend(
        odd.map(|word| format!("keywords: `{word}`: at most 20 letters, digits, _, - or +")),
    );
    if !(1..=5).contains(&found.categories.len()) {
        wrong.push(format!(
            "categories: {}; expected one to five",
            found.categories.len()
        ));
    }
    let unknown = found
        .categories
        .iter()
        .filter(|it| !CATEGORIES.contains(&it.as_str()));
    wrong.extend(
        unknown.map(|it| {
            format!("categories: `{it}` is not in the table of xtask/src/release/rules.rs")
        }),
    );
    wrong
}

/// Returns the missing and the unexpected files of a package.
pub(crate) fn files(files: &[&str]) -> Vec<String> {
    let missing = WANTED.iter().filter(|wanted| !files.contains(wanted));
    // Cargo adds the original manifest.
    let others = files.iter().filter(|file| **file != "Cargo.toml.orig");
    let junk = others.filter(|file| {
        JUNK.iter().any(|junk| match junk.ends_with('/') {
            true => file.starts_with(junk) || file.contains(&format!("/{junk}")),
            false => file.ends_with(junk),
        })
    });
    let missing = missing.map(|file| format!("{file} is missing"));
    missing
        .chain(junk.map(|file| format!("{file} is unexpected")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::crates::tests::sample;
    use super::*;

    fn good() -> Crate {
        Crate {
            description: "Sleeps that wake together".into(),
            license: LICENSE.into(),
            keywords: vec!["ctrl-c".into()],
            categories: vec!["os".into()],
            ..sample("leaf", &[])
        }
    }

    #[test]
    fn complete_manifest_passes_and_each_missing_key_is_named() {
        assert_eq!(manifest(&good()), Vec::<String>::new());
        let bad = Crate {
            description: "Does it.".into(),
            license: "MIT".into(),
            readme: String::new(),
            keywords: ["a", "b", "c", "d", "e", "two words"]
                .map(Into::into)
                .to_vec(),
            categories: vec!["loops".into()],
            ..good()
        };
        let wrong = manifest(&bad).join("\n");
        insta::assert_snapshot!(wrong, @"
        description: 8 characters; expected 10 to 150 without a full stop
        license: `MIT` is not MIT OR Apache-2.0
        readme: `` is not README.md
        keywords: 6; expected one to five
        keywords: `two words`: at most 20 letters, digits, _, - or +
        categories: `loops` is not in the table of xtask/src/release/rules.rs
        ");
        assert_eq!(
            manifest(&Crate {
                keywords: Vec::new(),
                categories: Vec::new(),
                ..good()
            })
            .len(),
            2
        );
    }

    #[test]
    fn package_has_required_files_and_no_others() {
        let mut list = WANTED.to_vec();
        list.extend([
            "Cargo.toml.orig",
            "src/lib.rs",
            "src/target.rs",
            "tests/it/snapshots/x.snap",
        ]);
        assert_eq!(files(&list), Vec::<String>::new());
        list.remove(0);
        list.extend([
            "target/x",
            "a/target/x",
            ".rlm/runs/x",
            "x.snap.new",
            "src/lib.rs.orig",
            "b~",
        ]);
        let wrong = files(&list);
        assert_eq!(wrong.len(), 7, "{wrong:?}");
        assert_eq!(wrong[0], "CHANGELOG.md is missing");
    }
}
