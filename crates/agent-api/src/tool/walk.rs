//! The files below a directory, in the order of their paths. The walk follows no link, and omits what `.gitignore` names. It reads `.gitignore`
//! itself, because a hostile project can put a FIFO or a huge file in its place.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;
use tokio_util::sync::CancellationToken;

use super::files::is_closed;
use super::{ToolOutput, WorkingDirectory, no_links, plain_file};

/// The longest `.gitignore` that is read, in bytes.
const MAX_RULES: u64 = 1 << 20;

/// A file or a link that a walk found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) kind: FileType,
}

/// The walk through a directory.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    directory: &'a WorkingDirectory,
    cancel: &'a CancellationToken,
    /// The rules of the directories above the root.
    above: Vec<Gitignore>,
    open: Vec<OpenDirectory>,
    /// The directories that can't be listed.
    unreadable: usize,
}

/// A directory whose entries are visited.
#[derive(Debug)]
struct OpenDirectory {
    path: PathBuf,
    rules: Option<Gitignore>,
    /// The other entries, the last one first.
    entries: Vec<(OsString, FileType)>,
}

impl<'a> Walk<'a> {
    /// Begins a walk at `root`, which is an existing directory.
    ///
    /// # Errors
    ///
    /// The result of the call, if the root can't be searched.
    pub(super) fn new(
        root: &Path,
        directory: &'a WorkingDirectory,
        cancel: &'a CancellationToken,
    ) -> Result<Self, ToolOutput> {
        let shown = directory.shown(root);
        if is_closed(root, directory) {
            return Err(ToolOutput::failed(format!(
                "`{shown}` is never searched; use `read` for one file of it"
            )));
        }
        let first = OpenDirectory::list(root).map_err(|error| {
            ToolOutput::failed(match error.kind() {
                io::ErrorKind::NotFound => format!("`{shown}` doesn't exist"),
                io::ErrorKind::NotADirectory => {
                    format!("`{shown}` is no directory, or has a link in its path now")
                }
                _ => format!("`{shown}` can't be listed: {error}"),
            })
        })?;
        Ok(Self {
            directory,
            cancel,
            above: rules_above(root, directory),
            open: vec![first],
            unreadable: 0,
        })
    }

    /// Returns the number of directories that could not be listed.
    pub(super) fn unreadable(&self) -> usize {
        self.unreadable
    }

    fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
        let open = { self.open.iter().rev() }.filter_map(|open| open.rules.as_ref());
        for rules in open.chain(self.above.iter()) {
            match rules.matched(path, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        while !self.cancel.is_cancelled() {
            let open = self.open.last_mut()?;
            let Some((name, kind)) = open.entries.pop() else {
                self.open.pop();
                continue;
            };
            let path = open.path.join(name);
            if is_closed(&path, self.directory) || self.is_ignored(&path, kind.is_dir()) {
                continue;
            }
            if !kind.is_dir() {
                return Some(Found { path, kind });
            }
            match OpenDirectory::list(&path) {
                Ok(open) => self.open.push(open),
                Err(_) => self.unreadable += 1,
            }
        }
        None
    }
}

impl OpenDirectory {
    fn list(path: &Path) -> io::Result<Self> {
        let mut entries = no_links::list(path)?;
        entries.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        let has_rules = entries.iter().any(|(name, _)| name == ".gitignore");
        Ok(Self {
            rules: has_rules
                .then(|| rules(path, Path::new(".gitignore")))
                .flatten(),
            path: path.to_owned(),
            entries,
        })
    }
}

/// Returns the rules of the directories above the root: up to the repository, or up to the working directory.
fn rules_above(root: &Path, directory: &WorkingDirectory) -> Vec<Gitignore> {
    let mut found = Vec::new();
    for path in root.ancestors() {
        if path != root {
            found.extend(rules(path, Path::new(".gitignore")));
        }
        if path.join(".git").exists() {
            found.extend(rules(path, Path::new(".git/info/exclude")));
            return found;
        }
    }
    // Without a repository, rules outside of the working directory don't apply.
    found.retain(|rules| rules.path().starts_with(directory.path()));
    found
}

/// Reads the rules of a directory; `None` if there is no usable file. A line that is no rule is omitted.
fn rules(directory: &Path, file: &Path) -> Option<Gitignore> {
    let file = plain_file::open(&directory.join(file)).ok()??;
    let mut bytes = Vec::new();
    file.take(MAX_RULES).read_to_end(&mut bytes).ok()?;
    let mut builder = GitignoreBuilder::new(directory);
    for line in String::from_utf8_lossy(&bytes).lines() {
        let _unusable = builder.add_line(None, line);
    }
    builder.build().ok()
}

/// The longest pattern, in bytes. A very long one would not compile.
const MAX_PATTERN: usize = 1_000;

/// A pattern for paths, relative to the root of a search.
#[derive(Debug)]
pub(super) struct PathPattern {
    matcher: GlobMatcher,
    /// Whether the pattern has no `/`, so it is for the name of a file in any directory.
    is_name: bool,
    root: PathBuf,
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// The result of the call, if it is no pattern.
    pub(super) fn new(pattern: &str, root: &Path) -> Result<Self, ToolOutput> {
        let pattern = pattern.trim_start_matches("./");
        if pattern.is_empty() || pattern.starts_with('/') {
            return Err(ToolOutput::failed(format!(
                "the pattern `{pattern}` must be relative; give its directory as `path`"
            )));
        }
        if pattern.len() > MAX_PATTERN {
            return Err(ToolOutput::failed(format!(
                "the pattern has more than {MAX_PATTERN} bytes; use a shorter one"
            )));
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        match glob {
            Ok(glob) => Ok(Self {
                matcher: glob.compile_matcher(),
                is_name: !pattern.contains('/'),
                root: root.to_owned(),
            }),
            Err(error) => Err(ToolOutput::failed(format!(
                "the pattern is no glob: {error}"
            ))),
        }
    }

    pub(super) fn matches(&self, path: &Path) -> bool {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        match self.is_name {
            true => self
                .matcher
                .is_match(below.file_name().unwrap_or(OsStr::new(""))),
            false => self.matcher.is_match(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(root: &Path, directory: &WorkingDirectory) -> Vec<String> {
        let cancel = CancellationToken::new();
        let walk = Walk::new(root, directory, &cancel).unwrap();
        walk.map(|found| directory.shown(&found.path)).collect()
    }

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a12_walk_is_sorted_and_leaves_out_what_git_ignores() {
        let dir = tempfile::tempdir().unwrap();
        let directory = WorkingDirectory::new(dir.path()).unwrap();
        let root = directory.path();
        for path in [
            "b.rs",
            "a.rs",
            "a/z",
            "a/.hidden",
            "a/kept.log",
            "x.log",
            "target/debug/x",
            "sub/only/x",
            "sub/only/deep/y",
            ".git/config",
            ".rlm/state",
            "a/.git/config",
        ] {
            write(&root.join(path), "");
        }
        write(
            &root.join(".gitignore"),
            "*.log\n/target/\nsub/only/deep\n[\n",
        );
        write(&root.join("a/.gitignore"), "!kept.log\n");
        write(&root.join(".git/info/exclude"), "b.rs\n");
        std::os::unix::fs::symlink(root, root.join("a/loop")).unwrap();
        assert_eq!(
            walked(root, &directory),
            [
                ".gitignore",
                "a/.gitignore",
                "a/.hidden",
                "a/kept.log",
                "a/loop",
                "a/z",
                "a.rs",
                "sub/only/x",
            ]
        );
        assert_eq!(
            walked(&root.join("sub/only"), &directory),
            ["sub/only/x"],
            "rules above apply"
        );

        for closed in [".git", ".rlm", "a/.git"] {
            let cancel = CancellationToken::new();
            let refused = Walk::new(&root.join(closed), &directory, &cancel);
            assert!(refused.unwrap_err().text.contains("never searched"));
        }
        let cancel = CancellationToken::new();
        let mut walk = Walk::new(root, &directory, &cancel).unwrap();
        assert!(walk.next().is_some());
        cancel.cancel();
        assert!(walk.next().is_none());
    }

    #[test]
    fn a12_gitignore_that_is_a_fifo_or_a_link_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let directory = WorkingDirectory::new(dir.path()).unwrap();
        let root = directory.path();
        write(&root.join("rules"), "*\n");
        write(&root.join("sub/file"), "");
        std::os::unix::fs::symlink("rules", root.join(".gitignore")).unwrap();
        let fifo = root.join("sub/.gitignore");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        assert_eq!(
            walked(root, &directory),
            [".gitignore", "rules", "sub/.gitignore", "sub/file"]
        );
    }

    #[test]
    fn a12_pattern_without_a_slash_is_for_names() {
        let root = Path::new("/work");
        let matches = |pattern: &str, path: &str| {
            PathPattern::new(pattern, root)
                .unwrap()
                .matches(&root.join(path))
        };
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("./src/**/*.rs", "src/deep/a.rs", true),
            ("**/*.{rs,toml}", "Cargo.toml", true),
            ("ünï*", "ünïcode ✓", true),
            ("*", ".hidden", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        for pattern in ["", "/etc/*", "["] {
            assert!(PathPattern::new(pattern, root).is_err(), "{pattern}");
        }
    }
}
