//! The changes between two git trees: the changed files, and the patch of those that are small enough to be read.
//!
//! A file that is not text, or whose patch is too long, is summarised with its sizes. So one generated file doesn't hide the changes of the others.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Instant;

use rlm_text::bytes::show as size;

use super::run::{GitCall, GitText, Hooks, QUERY_TIMEOUT, run_up_to_limit};
use super::{Git, GitError, is_object_name};

/// The largest number of bytes of a patch, and of the part of one file in it.
const MAX_PATCH: usize = 192 << 10;
const MAX_FILE_PATCH: usize = 48 << 10;
/// The largest number of files that a text names.
const MAX_NAMED: usize = 100;
/// If git's patch of all files is too long, only the first 200 files with at most 500 changed lines get a patch.
const MAX_SHORT_FILES: usize = 200;
const MAX_SHORT_LINES: u64 = 500;
/// The largest number of calls of git for the patches of these files. After [`QUERY_TIMEOUT`], no further call begins.
const MAX_SHORT_CALLS: u32 = 8;
/// The options of each comparison: no program of the repository runs, and its settings don't count.
const DIFF: [&str; 7] = [
    "diff-tree",
    "-r",
    "--find-renames",
    "-l400",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
];
/// Git quotes only the names that contain control characters, quotes or backslashes.
const PLAIN_NAMES: [&str; 2] = ["-c", "core.quotePath=false"];

/// The changes between two states of a working tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changed files, sorted by path.
    pub files: Vec<FileChange>,
    /// The changes as a patch, without the files that have a summary.
    pub patch: String,
}

/// One changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The path, relative to the top of the working tree.
    pub path: String,
    /// The earlier path of a renamed file.
    pub from: Option<String>,
    /// The number of added and removed lines; `None` for a file that is not text.
    pub lines: Option<(u64, u64)>,
    /// The sizes of a file that the patch doesn't contain.
    pub summary: Option<FileSizes>,
}

/// The sizes of a file in bytes; `None` if it doesn't exist, or if git doesn't report its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSizes {
    /// The size before the change.
    pub before: Option<u64>,
    /// The size after the change.
    pub after: Option<u64>,
}

impl fmt::Display for FileSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.before, self.after) {
            (Some(before), Some(after)) => write!(f, "{} → {}", size(before), size(after)),
            (None, Some(after)) => write!(f, "new, {}", size(after)),
            (Some(before), None) => write!(f, "removed, {}", size(before)),
            (None, None) => f.write_str("size unknown"),
        }
    }
}

impl Changes {
    /// Returns the numbers of added and of removed lines of all files.
    #[must_use]
    pub fn lines(&self) -> (u64, u64) {
        let lines = self.files.iter().filter_map(|file| file.lines);
        lines.fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1))
    }
}

impl fmt::Display for Changes {
    /// Writes the files, one in a line, and the patch below them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in self.files.iter().take(MAX_NAMED) {
            writeln!(f, "{file}")?;
        }
        let more = self.files.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            writeln!(f, "… and {more} more")?;
        }
        match self.patch.is_empty() {
            true => Ok(()),
            false => write!(f, "\n{}", self.patch),
        }
    }
}

impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &str| path.replace(char::is_control, "?");
        if let Some(from) = &self.from {
            write!(f, "{} → ", name(from))?;
        }
        write!(f, "{}", name(&self.path))?;
        match (self.lines, self.summary) {
            (Some((added, removed)), None) => write!(f, " +{added} -{removed}"),
            (Some((added, removed)), Some(sizes)) => {
                write!(f, " +{added} -{removed} (the patch is too long; {sizes})")
            }
            (None, Some(sizes)) => write!(f, " (not text; {sizes})"),
            (None, None) => write!(f, " (not text)"),
        }
    }
}

impl Git {
    /// Returns the changes of a commit since an earlier commit, or else since its first parent. Blocks for some seconds at most.
    ///
    /// # Errors
    ///
    /// An error if the repository is gone or doesn't have the commits, or if git doesn't respond in time.
    pub(crate) fn commit_changes(
        &self,
        before: Option<&str>,
        commit: &str,
    ) -> Result<Changes, GitError> {
        let top = self.top().ok_or_else(GitError::not_a_repository)?;
        if !is_object_name(commit) || !before.is_none_or(is_object_name) {
            return Err(GitError::Failed("that is not the name of a commit".into()));
        }
        let git = |arguments: &[&str]| {
            let call = GitCall {
                directory: top,
                arguments,
                environment: &[],
                hooks: Hooks::Off,
                timeout: QUERY_TIMEOUT,
            };
            run_up_to_limit(&call, self.processes())
        };
        let parent = || {
            let parent = format!("{commit}^1");
            git(&["rev-parse", "--verify", "--quiet", &parent])?.whole()
        };
        let before = match before.map_or_else(parent, |before| Ok(before.to_owned())) {
            Err(GitError::Failed(_)) => empty_tree(commit).to_owned(),
            before => before?,
        };
        compare(&git, &before, commit)
    }
}

/// Returns the name of the tree without files, which every repository has.
fn empty_tree(commit: &str) -> &'static str {
    match commit.len() {
        40 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        _ => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
    }
}

/// Compares two commits or trees. `git` runs a git command in the repository, and returns the beginning of an output that is too long.
///
/// # Errors
///
/// An error if git fails, or doesn't respond in time.
pub(super) fn compare(
    git: &dyn Fn(&[&str]) -> Result<GitText, GitError>,
    before: &str,
    after: &str,
) -> Result<Changes, GitError> {
    let until = Instant::now() + QUERY_TIMEOUT;
    let diff = |form: &[&str], paths: &[&str]| {
        let range = [before, after, "--"];
        git(&[&PLAIN_NAMES, &DIFF[..], form, &range, paths].concat())
    };
    let mut both = diff(&["--numstat", "--patch", "-z"], &[])?;
    // An empty entry separates the numbers from the patch.
    let mut files = match both.text.find("\0\0") {
        Some(at) => {
            let patch = both.text.split_off(at + 2);
            parse_numbers(&std::mem::replace(&mut both.text, patch))
        }
        None => {
            let files = match both.is_cut {
                true => diff(&["--numstat", "-z"], &[])?.whole()?,
                false => both.text,
            };
            both.text = String::new();
            parse_numbers(&files)
        }
    };
    let patch_of = |paths: &[&str]| diff(&["--patch"], paths);
    let patch = patches(&patch_of, &files, both, &|| Instant::now() < until)?;
    let patch = select(&mut files, &patch);
    add_sizes(git, &mut files, before, after);
    Ok(Changes { files, patch })
}

/// Returns the patches of the files that are short enough to be shown. `begun` is git's patch of all files. If it is cut, `patch_of` reads the patches
/// of the next files with few changed lines, as long as `has_time`. A file with few changed lines can have a long patch too, because a line can be long.
fn patches(
    patch_of: &dyn Fn(&[&str]) -> Result<GitText, GitError>,
    files: &[FileChange],
    begun: GitText,
    has_time: &dyn Fn() -> bool,
) -> Result<String, GitError> {
    let short =
        { files.iter() }.filter(|file| file.lines.is_some_and(|it| it.0 + it.1 <= MAX_SHORT_LINES));
    let mut left: Vec<&FileChange> = short.take(MAX_SHORT_FILES).collect();
    let (mut patch, mut text, mut calls) = (String::new(), begun, 0);
    loop {
        let mut parts: Vec<&str> = parts_of(&text.text).collect();
        // A file whose part is cut is read again, unless its part is too long already.
        let mut known: HashSet<&str> = parts.iter().map(|part| head(part)).collect();
        if let Some(cut) = parts.pop_if(|_| text.is_cut) {
            // If the type of the file changed, the part before this one belongs to it too.
            parts.retain(|part| head(part) != head(cut));
            if cut.len() <= MAX_FILE_PATCH {
                known.remove(head(cut));
            }
        }
        left.retain(|file| !known.contains(header(file).as_str()));
        for part in parts.iter().filter(|part| part.len() <= MAX_FILE_PATCH) {
            patch.push_str(part);
            if !patch.ends_with('\n') {
                patch.push('\n');
            }
        }
        let is_enough = !text.is_cut || left.is_empty() || patch.len() > MAX_PATCH;
        if is_enough || calls == MAX_SHORT_CALLS || !has_time() {
            return Ok(patch);
        }
        calls += 1;
        let paths: Vec<String> = left.iter().flat_map(|file| pathspecs(file)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        text = match patch_of(&paths) {
            Err(GitError::Stopped) => return Err(GitError::Stopped),
            // The patches that are known already are better than none.
            Err(_) => return Ok(patch),
            Ok(text) => text,
        };
    }
}

/// Returns the first line of a part.
fn head(part: &str) -> &str {
    part.lines().next().unwrap_or_default()
}

/// Parses the output of `git diff-tree --numstat -z`.
fn parse_numbers(text: &str) -> Vec<FileChange> {
    let mut fields = text.split('\0');
    let mut files = Vec::new();
    while let Some(entry) = fields.next() {
        let mut numbers = entry.splitn(3, '\t');
        let (Some(added), Some(removed), Some(path)) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            continue;
        };
        // The two paths of a renamed file follow in entries of their own.
        let (from, path) = match path {
            "" => (fields.next(), fields.next().unwrap_or_default()),
            path => (None, path),
        };
        files.push(FileChange {
            path: path.to_owned(),
            from: from.map(str::to_owned),
            lines: added.parse().ok().zip(removed.parse().ok()),
            summary: None,
        });
    }
    files
}

/// Returns the arguments that select a file, and its earlier path.
fn pathspecs(file: &FileChange) -> impl Iterator<Item = String> {
    let paths = [Some(&file.path), file.from.as_ref()];
    let paths = paths.into_iter().flatten();
    paths.map(|path| format!(":(top,literal){path}"))
}

/// Returns the parts of a patch that are short enough, and gives the other files a summary.
fn select(files: &mut [FileChange], patch: &str) -> String {
    let mut parts: HashMap<&str, Vec<&str>> = HashMap::new();
    for part in parts_of(patch) {
        parts.entry(head(part)).or_default().push(part);
    }
    let mut selected = String::new();
    for file in files {
        let part = { parts.remove(header(file).as_str()) }.map(|parts| parts.concat());
        let part = part.filter(|part| {
            file.lines.is_some()
                && part.len() <= MAX_FILE_PATCH
                && selected.len() + part.len() <= MAX_PATCH
        });
        match part {
            Some(part) => {
                selected.push_str(&part);
                if !selected.ends_with('\n') {
                    selected.push('\n');
                }
            }
            None => file.summary = Some(FileSizes::default()),
        }
    }
    selected.truncate(selected.trim_end_matches('\n').len());
    selected
}

/// Returns the first line of the part of a file.
fn header(file: &FileChange) -> String {
    let from = file.from.as_ref().unwrap_or(&file.path);
    format!(
        "diff --git {} {}",
        quoted("a/", from),
        quoted("b/", &file.path)
    )
}

/// Splits a patch into the parts of its files.
pub fn parts_of(patch: &str) -> impl Iterator<Item = &str> {
    let starts = memchr::memmem::find_iter(patch.as_bytes(), "\ndiff --git ").map(|at| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(starts).collect();
    let ends: Vec<usize> = { starts.iter().skip(1).copied() }
        .chain([patch.len()])
        .collect();
    let parts = starts.into_iter().zip(ends);
    parts
        .map(|(start, end)| &patch[start..end])
        .filter(|part| !part.is_empty())
}

/// Returns a path as the header of a patch has it.
fn quoted(prefix: &str, path: &str) -> String {
    let is_plain = |c: char| !c.is_ascii_control() && c != '"' && c != '\\';
    if path.chars().all(is_plain) {
        return format!("{prefix}{path}");
    }
    let mut text = format!("\"{prefix}");
    for c in path.chars() {
        match c {
            '\x07' => text.push_str("\\a"),
            '\x08' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\x0b' => text.push_str("\\v"),
            '\x0c' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_ascii_control() => text.push_str(&format!("\\{:03o}", c as u32)),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// Finds the sizes of the files that the patch doesn't contain. Without them, the summary has no size.
fn add_sizes(
    git: &dyn Fn(&[&str]) -> Result<GitText, GitError>,
    files: &mut [FileChange],
    before: &str,
    after: &str,
) {
    let named = files.iter_mut().take(MAX_NAMED);
    let mut summarised: Vec<&mut FileChange> =
        named.filter(|file| file.summary.is_some()).collect();
    if summarised.is_empty() {
        return;
    }
    let paths: Vec<String> = { summarised.iter() }
        .flat_map(|file| pathspecs(file))
        .collect();
    let sizes_in = |tree: &str| -> HashMap<String, u64> {
        let list = ["ls-tree", "-r", "-l", "-z", "--full-tree", tree, "--"];
        let paths = paths.iter().map(String::as_str);
        let list = git(&list.into_iter().chain(paths).collect::<Vec<_>>());
        let list = list.and_then(GitText::whole);
        let list = list.unwrap_or_default();
        let sizes = list.split('\0').filter_map(|entry| {
            let (facts, path) = entry.split_once('\t')?;
            let size = facts.split_whitespace().next_back()?.parse().ok()?;
            Some((path.to_owned(), size))
        });
        sizes.collect()
    };
    let (before, after) = (sizes_in(before), sizes_in(after));
    for file in &mut summarised {
        let from = file.from.as_ref().unwrap_or(&file.path);
        file.summary = Some(FileSizes {
            before: before.get(from).copied(),
            after: after.get(&file.path).copied(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::git::run::MAX_STDOUT;

    fn file(n: u64) -> FileChange {
        FileChange {
            path: format!("f{n}"),
            from: None,
            lines: Some((n, 0)),
            summary: None,
        }
    }

    #[test]
    fn text_names_a_limited_number_of_files() {
        let changes = Changes {
            files: (0..102).map(file).collect(),
            patch: String::new(),
        };
        let text = changes.to_string();
        assert!(text.ends_with("f99 +99 -0\n… and 2 more\n"), "{text}");
        assert_eq!(changes.lines(), (5151, 0));
    }

    #[test]
    fn line_of_a_file_has_its_earlier_name_and_its_sizes() {
        let mut renamed = file(1);
        renamed.from = Some("old\nname".into());
        assert_eq!(renamed.to_string(), "old?name → f1 +1 -0");
        let sizes = [
            (None, Some(2000)),
            (Some(10), None),
            (Some(1), Some(2 << 20)),
        ];
        let lines = sizes.map(|(before, after)| {
            let summary = Some(FileSizes { before, after });
            let lines = None;
            let text = FileChange {
                summary,
                lines,
                ..file(1)
            };
            text.to_string()
        });
        assert_eq!(
            lines,
            [
                "f1 (not text; new, 2 kB)",
                "f1 (not text; removed, 10 bytes)",
                "f1 (not text; 1 byte → 2.1 MB)",
            ]
        );
    }

    #[test]
    fn long_part_of_a_patch_is_left_out_and_the_others_stay() {
        let part = |name: &str, text: &str| {
            format!(
                "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n+{text}\n"
            )
        };
        let long = "x".repeat(MAX_FILE_PATCH);
        let patch = [
            part("f1", "one"),
            part("f2", &long),
            // A line of a file that looks like a header.
            part("f3", "diff --git a/f1 b/f1"),
        ]
        .concat();
        let mut files = [file(1), file(2), file(3)];
        let selected = select(&mut files, &patch);
        assert_eq!(
            selected,
            [part("f1", "one"), part("f3", "diff --git a/f1 b/f1")]
                .concat()
                .trim_end()
        );
        assert_eq!(
            files.map(|file| file.summary.is_some()),
            [false, true, false]
        );
    }

    /// Returns the numbers of patches and of calls of git. `length` returns the length of the patch of a file.
    fn patches_of_all(length: impl Fn(&str) -> usize, calls: u32) -> (usize, u32) {
        let files: Vec<FileChange> = (0..MAX_SHORT_FILES as u64).map(file).collect();
        let git = |files: &mut dyn Iterator<Item = String>| {
            let mut text = String::new();
            for path in files {
                text += &format!(
                    "diff --git a/{path} b/{path}\n+{}\n",
                    "x".repeat(length(&path))
                );
            }
            let is_cut = text.len() > MAX_STDOUT as usize;
            text.truncate(MAX_STDOUT as usize);
            GitText { text, is_cut }
        };
        let made = Cell::new(0);
        let patch_of = |paths: &[&str]| {
            made.set(made.get() + 1);
            let paths = paths
                .iter()
                .map(|it| it.strip_prefix(":(top,literal)").unwrap());
            Ok(git(&mut paths.map(str::to_owned)))
        };
        let begun = git(&mut files.iter().map(|file| file.path.clone()));
        let patch = patches(&patch_of, &files, begun, &|| made.get() < calls).unwrap();
        (parts_of(&patch).count(), made.get())
    }

    #[test]
    fn v7a_file_with_a_long_line_hides_no_other_patch() {
        let (long, short) = (2 * MAX_STDOUT as usize, 10);
        let with = |long_files: &'static [&str]| {
            move |path: &str| match long_files.contains(&path) {
                true => long,
                false => short,
            }
        };
        assert_eq!(patches_of_all(with(&[]), 99), (200, 0));
        assert_eq!(patches_of_all(with(&["f77"]), 99), (199, 1));
        assert_eq!(patches_of_all(with(&["f0", "f1", "f199"]), 99), (197, 2));
        // The part of `f1` is cut, and is short.
        let first = MAX_STDOUT as usize - 100;
        let cut = |path: &str| if path == "f0" { first } else { 200 };
        assert_eq!(patches_of_all(cut, 99), (199, 1));
    }

    #[test]
    fn v7a_calls_of_git_for_the_patches_are_bounded() {
        let long = 2 * MAX_STDOUT as usize;
        assert_eq!(patches_of_all(|_| long, 99), (0, MAX_SHORT_CALLS));
        assert_eq!(patches_of_all(|_| long, 3), (0, 3));
        // The patches that fit are there after the first call.
        let (patches, calls) = patches_of_all(|_| MAX_FILE_PATCH - 100, 99);
        assert!(
            patches * MAX_FILE_PATCH > MAX_PATCH && calls == 0,
            "{patches} {calls}"
        );
    }

    #[test]
    fn cut_patch_of_a_file_with_two_parts_is_read_again() {
        let files = [file(1), file(2)];
        let part = |name: &str| format!("diff --git a/{name} b/{name}\n");
        let cut = |text: String| GitText { text, is_cut: true };
        let begun = cut([part("f1"), part("f2"), part("f2")].concat());
        let git = |paths: &[&str]| {
            assert_eq!(paths, [":(top,literal)f2"]);
            let text = part("f2") + "whole\n" + &part("f2");
            Ok(GitText {
                text,
                is_cut: false,
            })
        };
        let patch = patches(&git, &files, begun, &|| true).unwrap();
        assert_eq!(patch, part("f1") + &part("f2") + "whole\n" + &part("f2"));
    }

    #[test]
    fn only_a_stop_loses_the_patches_that_are_known() {
        let files = [file(1), file(2)];
        let begun = || GitText {
            text: String::new(),
            is_cut: true,
        };
        let stopped = |_: &[&str]| Err(GitError::Stopped);
        assert!(patches(&stopped, &files, begun(), &|| true).is_err());
        for end in [
            || GitError::TimedOut(Default::default()),
            || GitError::Failed("no".into()),
        ] {
            let known = patches(&|_| Err(end()), &files, begun(), &|| true);
            assert_eq!(known.unwrap(), "");
        }
    }

    #[test]
    fn names_in_a_header_are_quoted_as_git_does() {
        assert_eq!(quoted("a/", "é x"), "a/é x");
        assert_eq!(
            quoted("b/", "a\"\\\n\u{1b}x"),
            r#""b/a\"\\\n\033x""#.to_owned()
        );
    }
}
