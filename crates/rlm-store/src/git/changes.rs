//! The changes between two git trees: the changed files, and the patch of those that are small enough to be read.
//!
//! A file that is not text, or whose patch is too long, is summarised with its sizes. So one generated file doesn't hide the changes of the others.

use std::collections::HashMap;
use std::fmt;

use super::run::{QUERY_TIMEOUT, run};
use super::{Git, GitError, is_object_name};

/// The largest number of bytes of a patch, and of the part of one file in it.
const MAX_PATCH: usize = 192 << 10;
const MAX_FILE_PATCH: usize = 48 << 10;
/// The largest number of files that a text names.
const MAX_NAMED: usize = 100;
/// If git's patch of all files is too long, only the first 200 files with at most 500 changed lines get a patch.
const MAX_SHORT_FILES: usize = 200;
const MAX_SHORT_LINES: u64 = 500;
/// The largest number of calls of git for the patches of these files.
const MAX_SHORT_CALLS: u32 = 32;
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

fn size(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".into(),
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
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
        let git = |arguments: &[&str]| run(top, arguments, QUERY_TIMEOUT, self.processes());
        let parent = || {
            let parent = format!("{commit}^1");
            git(&["rev-parse", "--verify", "--quiet", &parent])
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

/// Compares two commits or trees. `git` runs a git command in the repository.
///
/// # Errors
///
/// An error if git fails, or doesn't respond in time.
pub(super) fn compare(
    git: &dyn Fn(&[&str]) -> Result<String, GitError>,
    before: &str,
    after: &str,
) -> Result<Changes, GitError> {
    let diff = |form: &[&str], paths: &[&str]| {
        let range = [before, after, "--"];
        git(&[&PLAIN_NAMES, &DIFF[..], form, &range, paths].concat())
    };
    let (mut files, patch) = match diff(&["--numstat", "--patch", "-z"], &[]) {
        // An empty entry separates the numbers from the patch.
        Ok(both) => match both.split_once("\0\0") {
            Some((files, patch)) => (parse_numbers(files), patch.to_owned()),
            None => (parse_numbers(&both), String::new()),
        },
        Err(e @ (GitError::TimedOut(_) | GitError::Stopped)) => return Err(e),
        // Most likely, the patch is too long.
        Err(_) => {
            let files = parse_numbers(&diff(&["--numstat", "-z"], &[])?);
            let short = { files.iter() }
                .filter(|file| file.lines.is_some_and(|it| it.0 + it.1 <= MAX_SHORT_LINES));
            let short: Vec<&FileChange> = short.take(MAX_SHORT_FILES).collect();
            let patch_of = |paths: &[&str]| diff(&["--patch"], paths);
            let mut calls = MAX_SHORT_CALLS;
            let patch = short_patches(&patch_of, &short, &mut calls)?;
            (files, patch)
        }
    };
    let patch = select(&mut files, &patch);
    add_sizes(git, &mut files, before, after);
    Ok(Changes { files, patch })
}

/// Returns the patches of these files. A file with few changed lines can have a long patch too, because a line can be long: if git fails for several
/// files, each half of them gets a call of its own. `calls` is the number of calls that are left; without one, the files have no patch.
fn short_patches(
    patch_of: &dyn Fn(&[&str]) -> Result<String, GitError>,
    files: &[&FileChange],
    calls: &mut u32,
) -> Result<String, GitError> {
    if files.is_empty() || *calls == 0 {
        return Ok(String::new());
    }
    *calls -= 1;
    let paths: Vec<String> = files.iter().flat_map(|file| pathspecs(file)).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    match patch_of(&paths) {
        Err(e @ (GitError::TimedOut(_) | GitError::Stopped)) => Err(e),
        Err(_) if files.len() == 1 => Ok(String::new()),
        Err(_) => {
            let (first, second) = files.split_at(files.len() / 2);
            let first = short_patches(patch_of, first, calls)?;
            let second = short_patches(patch_of, second, calls)?;
            Ok(format!("{first}\n{second}"))
        }
        patch => patch,
    }
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
        let header = part.lines().next().unwrap_or_default();
        parts.entry(header).or_default().push(part);
    }
    let mut selected = String::new();
    for file in files {
        let from = file.from.as_ref().unwrap_or(&file.path);
        let header = format!(
            "diff --git {} {}",
            quoted("a/", from),
            quoted("b/", &file.path)
        );
        let part = parts.remove(header.as_str()).map(|parts| parts.concat());
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
    git: &dyn Fn(&[&str]) -> Result<String, GitError>,
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
    use super::*;

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
                "f1 (not text; new, 2 KiB)",
                "f1 (not text; removed, 10 bytes)",
                "f1 (not text; 1 byte → 2.0 MiB)",
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

    #[test]
    fn v7a_file_with_a_long_line_hides_no_other_patch() {
        let files: Vec<FileChange> = (0..MAX_SHORT_FILES as u64).map(file).collect();
        let files: Vec<&FileChange> = files.iter().collect();
        let patches = |long: &[&str], calls: u32| {
            let mut left = calls;
            let git = |paths: &[&str]| match paths.iter().any(|path| long.contains(path)) {
                true => Err(GitError::Failed("too long".into())),
                false => Ok(format!("diff --git {}", paths.join("\ndiff --git "))),
            };
            let patch = short_patches(&git, &files, &mut left).unwrap();
            (parts_of(patch.trim_start()).count(), calls - left)
        };
        assert_eq!(patches(&[], MAX_SHORT_CALLS), (200, 1));
        assert_eq!(patches(&[":(top,literal)f77"], MAX_SHORT_CALLS).0, 199);
        let all: Vec<String> = files.iter().flat_map(|file| pathspecs(file)).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(patches(&all, MAX_SHORT_CALLS), (0, MAX_SHORT_CALLS));
    }

    #[test]
    fn stop_and_time_limit_of_git_end_the_search_for_patches() {
        let files = [file(1), file(2)];
        let files: Vec<&FileChange> = files.iter().collect();
        for end in [
            || GitError::Stopped,
            || GitError::TimedOut(Default::default()),
        ] {
            let mut calls = MAX_SHORT_CALLS;
            let error = short_patches(&|_| Err(end()), &files, &mut calls).unwrap_err();
            assert_eq!(error.to_string(), end().to_string());
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
