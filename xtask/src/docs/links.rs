//! Checks the links within the Markdown files of the repository: the file and the heading must exist.
//!
//! The README of a crate is shown on crates.io and docs.rs, where a relative path has no target. It must link to its files on docs.rs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use fs_err as fs;

/// The URL of a package's files on docs.rs, before its name and `/latest/source/`.
const SOURCE: &str = "https://docs.rs/crate/";

/// Names each link without a target.
pub(super) fn broken(root: &Path) -> Vec<String> {
    let mut pages = BTreeMap::new();
    collect(root, Path::new(""), &mut pages);
    let exists = |path: &Path| root.join(path).exists();
    let broken = pages.iter().flat_map(|(page, text)| {
        let targets = targets(text);
        let wrong = targets
            .into_iter()
            .filter_map(|target| complaint(page, &target, &pages, &exists))
            .map(|why| format!("{}: {why}", page.display()));
        wrong.collect::<Vec<_>>()
    });
    broken.collect()
}

/// Reads all Markdown files, except those of build output and hidden directories.
fn collect(root: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(root.join(folder))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let path = folder.join(&name);
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && name != "target" && !name.to_string_lossy().starts_with('.') {
            collect(root, &path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md")
            && let Ok(text) = fs::read_to_string(root.join(&path))
        {
            pages.insert(path, text);
        }
    }
}

/// Returns the error of a link of a page, if the link is within the repository.
fn complaint(
    page: &Path,
    target: &str,
    pages: &BTreeMap<PathBuf, String>,
    exists: &impl Fn(&Path) -> bool,
) -> Option<String> {
    if let Some(source) = target.strip_prefix(SOURCE) {
        let (name, path) = source.split_once("/latest/source/")?;
        let here = Path::new("crates").join(name).join(path);
        return (!exists(&here)).then(|| format!("{target}: no such file: {}", here.display()));
    } else if target.contains("://") || target.starts_with("mailto:") {
        return None;
    } else if is_of_a_crate(page) && !target.starts_with('#') {
        return Some(format!(
            "{target}: broken on crates.io; link to {SOURCE}NAME/latest/source/{target}"
        ));
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = match file {
        "" => page.to_owned(),
        _ => normal(&page.parent().unwrap_or(Path::new("")).join(file)),
    };
    if !exists(&to) {
        return Some(format!("{target}: no such file"));
    }
    let anchors = pages.get(&to).map(|text| anchors(text))?;
    (!anchor.is_empty() && !anchors.contains(anchor)).then(|| format!("{target}: no such heading"))
}

/// Whether crates.io shows this page.
fn is_of_a_crate(page: &Path) -> bool {
    page.starts_with("crates") && page.components().count() == 3 && page.ends_with("README.md")
}

/// Resolves `..` in the text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if normal.pop() => {}
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Returns the lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fence = None;
    text.lines().filter(move |line| {
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, None) => true,
            (None, mark) => {
                fence = mark;
                false
            }
            (open, mark) => {
                if open == mark {
                    fence = None;
                }
                false
            }
        }
    })
}

/// Returns the targets of `[text](target "title")` and of `[name]: target`, except those in code.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let text: Vec<&str> = prose(text).collect();
    for line in &text {
        if let Some((_, target)) = line
            .strip_prefix('[')
            .and_then(|line| line.split_once("]: "))
        {
            targets.extend(target.split_whitespace().next().map(Into::into));
        }
    }
    // A link can continue on the next line.
    let text = text.join("\n");
    let without_code = text
        .split('`')
        .enumerate()
        .map(|(at, part)| if at % 2 == 0 { part } else { "" });
    for link in without_code.collect::<String>().split("](").skip(1) {
        let target = link.split([')', ' ', '\n']).next().unwrap_or_default();
        targets.push(target.trim_matches(['<', '>']).into());
    }
    targets
}

/// Returns the anchors of a page, by GitHub's rule for headings.
fn anchors(text: &str) -> HashSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.strip_prefix(' '))?
    });
    headings
        .map(|heading| {
            let slug = slug(heading);
            let times = seen.entry(slug.clone()).or_default();
            *times += 1;
            match *times {
                1 => slug,
                times => format!("{slug}-{}", times - 1),
            }
        })
        .collect()
}

fn slug(heading: &str) -> String {
    // Of a link in a heading, only the text counts.
    let mut text = String::new();
    for (at, part) in heading.split("](").enumerate() {
        let part = match at {
            0 => part,
            _ => part.split_once(')').map_or("", |(_, rest)| rest),
        };
        text.push_str(part);
    }
    let kept = text.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_followed_to_its_file_and_heading() {
        let pages: BTreeMap<PathBuf, String> = [
            ("README.md", "# One\n"),
            ("docs/a.md", "# `rlm run`: how, and why\n## Two\n## Two\n"),
        ]
        .map(|(path, text)| (path.into(), text.into()))
        .into();
        let exists = |path: &Path| pages.contains_key(path) || path == Path::new("docs/run.json");
        let wrong =
            |target: &str| complaint(Path::new("docs/a.md"), target, &pages, &exists).is_some();
        for good in [
            "run.json",
            "../README.md#one",
            "#rlm-run-how-and-why",
            "./a.md#two-1",
            "https://example.org/x#y",
        ] {
            assert!(!wrong(good), "{good}");
        }
        for bad in ["gone.json", "../README.md#two", "#two-2", "../a.md"] {
            assert!(wrong(bad), "{bad}");
        }
    }

    #[test]
    fn the_page_of_a_crate_names_files_as_docs_rs_shows_them() {
        let page = Path::new("crates/one/README.md");
        let pages = [(page.to_owned(), "# One\n".to_owned())].into();
        let exists = |path: &Path| path == page || path == Path::new("crates/one/examples/a.rs");
        let wrong = |target: &str| complaint(page, target, &pages, &exists).is_some();
        assert!(!wrong("#one"));
        assert!(!wrong(
            "https://docs.rs/crate/one/latest/source/examples/a.rs"
        ));
        assert!(wrong(
            "https://docs.rs/crate/one/latest/source/examples/b.rs"
        ));
        assert!(wrong("examples/a.rs"));
    }

    #[test]
    fn code_spans_are_no_links() {
        let text = "[a](one.md \"t\") `[b](no.md)`\n```md\n[c](no.md)\n```\n[d\ne](two.md)\n[f]: three.md\n[![g](four.png)](five.md)";
        assert_eq!(
            targets(text),
            ["three.md", "one.md", "two.md", "four.png", "five.md"]
        );
    }
}
