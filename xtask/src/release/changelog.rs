//! Changelogs in the format of Keep a Changelog: the section of a version, and the conversion of the unreleased section into a version.

use semver::Version;

/// The section for the next release.
pub(crate) const UNRELEASED: &str = "Unreleased";

/// Returns the text under `## NAME`, `## [NAME]` or `## NAME - DATE`.
pub(crate) fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, from) = headings(text).find(|(heading, _)| *heading == name)?;
    let rest = &text[from..];
    Some(rest.find("\n## ").map_or(rest, |end| &rest[..=end]).trim())
}

/// Returns each second-level heading, and the offset of the text under it.
fn headings(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut end = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        end += line.len();
        let name = line.strip_prefix("## ")?.trim();
        let name = name.split(" - ").next().unwrap_or(name);
        Some((name.trim_matches(['[', ']']), end))
    })
}

/// Returns the errors in the changelog of a crate before or after its release as `version`.
pub(crate) fn problems(text: &str, version: &Version) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.starts_with("# Changelog\n") {
        problems.push("the first line is not `# Changelog`".into());
    }
    let has = |name: &str| section(text, name).is_some_and(|body| !body.is_empty());
    if section(text, UNRELEASED).is_none() {
        problems.push(format!("no section `## {UNRELEASED}`"));
    }
    if !has(UNRELEASED) && !has(&version.to_string()) {
        problems.push(format!("no entry under `{UNRELEASED}` or `{version}`"));
    }
    problems
}

/// Moves the unreleased section under `version`, with a new empty section above it.
pub(crate) fn cut(text: &str, version: &Version, date: &str) -> Result<String, String> {
    if section(text, &version.to_string()).is_some() {
        return Err(format!(
            "it already has a section {version}, but this clone has no such tag: run `git fetch --tags` if it is published; otherwise revert the release commit"
        ));
    }
    let Some((_, from)) = headings(text).find(|(heading, _)| *heading == UNRELEASED) else {
        return Err(format!("no section `## {UNRELEASED}`"));
    };
    if section(text, UNRELEASED).is_none_or(str::is_empty) {
        return Err(format!("no entry under `{UNRELEASED}`"));
    }
    let (before, after) = text.split_at(from);
    Ok(format!("{before}\n## {version} - {date}\n{after}"))
}

/// Adds a line to the changed and unreleased entries.
pub(crate) fn note(text: &str, line: &str) -> String {
    let Some((_, from)) = headings(text).find(|(heading, _)| *heading == UNRELEASED) else {
        return text.to_owned();
    };
    let (before, after) = text.split_at(from);
    let body = section(text, UNRELEASED).unwrap_or_default();
    match body
        .find("### Changed\n")
        .and(after.split_once("### Changed\n"))
    {
        Some((above, below)) => format!(
            "{before}{above}### Changed\n\n{line}\n{}",
            below.trim_start_matches('\n')
        ),
        None => {
            let rest = after.trim_start_matches('\n');
            let gap = if rest.is_empty() { "" } else { "\n" };
            format!("{before}\n### Changed\n\n{line}\n{gap}{rest}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = "# Changelog\n\nIts format.\n\n## [Unreleased]\n\n### Added\n\n- It.\n\n## 0.1.0 - 2026-01-02\n\n- Old.\n";

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn sections_are_found_with_brackets_and_dates() {
        assert_eq!(section(SAMPLE, UNRELEASED), Some("### Added\n\n- It."));
        assert_eq!(section(SAMPLE, "0.1.0"), Some("- Old."));
        assert_eq!(section(SAMPLE, "0.1"), None);
        assert_eq!(section("## 1.0.0", "1.0.0"), Some(""));
    }

    #[test]
    fn unreleased_section_becomes_version() {
        let after = cut(SAMPLE, &version("0.2.0"), "2026-11-22").unwrap();
        insta::assert_snapshot!(after, @"
        # Changelog

        Its format.

        ## [Unreleased]

        ## 0.2.0 - 2026-11-22

        ### Added

        - It.

        ## 0.1.0 - 2026-01-02

        - Old.
        ");
        let again = cut(&after, &version("0.3.0"), "2026-11-23").unwrap_err();
        assert_eq!(again, "no entry under `Unreleased`");
        assert!(cut(SAMPLE, &version("0.1.0"), "2026-11-22").is_err());
    }

    #[test]
    fn unreleasable_changelog_states_the_reason() {
        let none = problems("- x\n# Changelog\n", &version("0.1.0"));
        assert_eq!(none.len(), 3, "{none:?}");
        assert!(problems(SAMPLE, &version("0.2.0")).is_empty());
        let cut = cut(SAMPLE, &version("0.2.0"), "2026-11-22").unwrap();
        assert!(problems(&cut, &version("0.2.0")).is_empty());
        assert_eq!(problems(&cut, &version("0.3.0")).len(), 1);
    }

    #[test]
    fn note_is_added_to_the_changed_section() {
        let noted = note(SAMPLE, "- `leaf` 0.2.0.");
        assert_eq!(
            section(&noted, UNRELEASED),
            Some("### Changed\n\n- `leaf` 0.2.0.\n\n### Added\n\n- It.")
        );
        let twice = note(&noted, "- `other` 0.2.0.");
        assert_eq!(
            section(&twice, UNRELEASED),
            Some("### Changed\n\n- `other` 0.2.0.\n- `leaf` 0.2.0.\n\n### Added\n\n- It.")
        );
        let empty = note("# Changelog\n\n## Unreleased\n", "- x");
        assert_eq!(
            empty,
            "# Changelog\n\n## Unreleased\n\n### Changed\n\n- x\n"
        );
        let elsewhere =
            "# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-01-02\n\n### Changed\n\n- y\n";
        assert_eq!(
            section(&note(elsewhere, "- x"), UNRELEASED),
            Some("### Changed\n\n- x")
        );
        assert_eq!(
            section(&note(elsewhere, "- x"), "0.1.0"),
            Some("### Changed\n\n- y")
        );
    }

    proptest! {
        /// A release loses no line, adds only the heading, and keeps older versions unchanged.
        #[test]
        fn release_only_adds_a_heading(new in prop::collection::vec("- [a-z ]{1,12}", 1..5), old in prop::collection::vec("- [a-z ]{1,12}", 1..5)) {
            let text = format!("# Changelog\n\n## Unreleased\n\n{}\n\n## 0.1.0 - 2026-01-02\n\n{}\n", new.join("\n"), old.join("\n"));
            let after = cut(&text, &version("0.1.1"), "2026-11-22").unwrap();
            prop_assert_eq!(section(&after, UNRELEASED), Some(""));
            prop_assert_eq!(section(&after, "0.1.1"), section(&text, UNRELEASED));
            prop_assert_eq!(section(&after, "0.1.0"), section(&text, "0.1.0"));
            prop_assert_eq!(after.replace("\n## 0.1.1 - 2026-11-22\n", ""), text);
        }
    }
}
