//! The tool `grep`: the lines of files that match a regular expression, in the order of their paths.

use std::path::{Path, PathBuf};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use tokio_util::sync::CancellationToken;

use super::arguments::Arguments;
use super::file_tool::{FileTool, Reader};
use super::files::{self, CancellableFile, OpenFile};
use super::output::{Output, push_note};
use super::walk::{PathPattern, Walk};
use super::{ToolContext, ToolOutput, WorkingDirectory};
use crate::json::JsonObject;

const EXAMPLE: &str = r#"{"pattern":"fn \\w+_test","path":"src","glob":"*.rs"}"#;
/// The maximum number of matching lines by default.
const LIMIT: u64 = 200;
/// The maximum number of matching lines.
const MAX_LIMIT: u64 = 2_000;
/// The maximum number of characters of a matching line.
const MAX_LINE: usize = 500;
/// The longest line that can be searched, in bytes.
const MAX_SEARCHED: usize = 8 << 20;
/// The largest compiled pattern, in bytes.
const MAX_PATTERN: usize = 10 << 20;
/// The maximum number of files that a note names.
const MAX_NAMED: usize = 3;
const HINT: &str = "give a narrower `pattern`, `path` or `glob`";

/// Searches files for a regular expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grep;

pub(super) struct Call {
    pattern: String,
    path: String,
    glob: Option<String>,
    ignore_case: bool,
    limit: usize,
}

impl FileTool for Grep {
    const NAME: &'static str = "grep";
    const DESCRIPTION: &'static str = "Searches the lines of files for a regular expression. It includes hidden files, and omits files that .gitignore names and binary files.";
    const SCHEMA: &'static str = r#"{"type":"object","properties":{"pattern":{"type":"string","description":"A regular expression, as in ripgrep"},"path":{"type":"string","description":"A directory or a file; by default the working directory"},"glob":{"type":"string","description":"Searches only files whose path matches, such as *.rs or src/**/*.ts"},"ignore_case":{"type":"boolean"},"limit":{"type":"integer","description":"The maximum number of matching lines; 200 by default"}},"required":["pattern"]}"#;
    const SUMMARY: &'static str = "pattern";

    type Call = Call;

    fn parse(arguments: &JsonObject) -> Result<Call, ToolOutput> {
        let mut arguments = Arguments::new(arguments, EXAMPLE);
        let path = arguments.optional_text("path")?;
        let limit = arguments.number("limit")?.unwrap_or(LIMIT);
        Ok(Call {
            pattern: arguments.text("pattern")?,
            path: path
                .filter(|path| !path.is_empty())
                .unwrap_or(".".to_owned()),
            glob: arguments.optional_text("glob")?.filter(|it| !it.is_empty()),
            ignore_case: arguments.flag("ignore_case")?,
            limit: limit.clamp(1, MAX_LIMIT) as usize,
        })
    }

    fn path(call: &Call) -> &str {
        &call.path
    }
}

impl Reader for Grep {
    fn read(
        call: &Call,
        root: &Path,
        context: &ToolContext,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolOutput> {
        let directory = &context.directory;
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(call.ignore_case)
            .size_limit(MAX_PATTERN)
            .line_terminator(Some(b'\n'))
            .build(&call.pattern)
            .map_err(|error| {
                ToolOutput::failed(format!("the pattern is no regular expression: {error}"))
            })?;
        let glob = call
            .glob
            .as_deref()
            .map(|glob| PathPattern::new(glob, root));
        let glob = glob.transpose()?;
        let mut matches = Matches::new(matcher, directory, cancel, call.limit);
        match root.is_dir() {
            // A file that is named is searched whatever the rules say.
            false => {
                let shown = directory.shown(root);
                if files::open(root, &shown)?.is_none() {
                    return Err(files::missing(root, directory));
                }
                matches.search(root);
            }
            true => {
                let mut walk = Walk::new(root, directory, cancel)?;
                for found in walk.by_ref() {
                    let is_wanted = glob.as_ref().is_none_or(|glob| glob.matches(&found.path));
                    if found.kind.is_file() && is_wanted {
                        matches.search(&found.path);
                    }
                    if matches.is_full() {
                        break;
                    }
                }
                matches.unlisted = walk.unreadable();
            }
        }
        match cancel.is_cancelled() {
            true => Err(files::interrupted()),
            false => Ok(matches.finish()),
        }
    }
}

/// The matches of a search.
#[derive(Debug)]
struct Matches<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    directory: &'a WorkingDirectory,
    cancel: &'a CancellationToken,
    limit: usize,
    lines: usize,
    output: Output,
    /// The files that could not be searched, and their number.
    failed: (Vec<PathBuf>, usize),
    binary: usize,
    unlisted: usize,
}

impl<'a> Matches<'a> {
    fn new(
        matcher: RegexMatcher,
        directory: &'a WorkingDirectory,
        cancel: &'a CancellationToken,
        limit: usize,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_SEARCHED))
            .line_number(true)
            .build();
        Self {
            matcher,
            searcher,
            directory,
            cancel,
            limit,
            lines: 0,
            output: Output::default(),
            failed: (Vec::new(), 0),
            binary: 0,
            unlisted: 0,
        }
    }

    /// Returns whether there are more matches than the limit.
    fn is_full(&self) -> bool {
        self.lines > self.limit
    }

    fn search(&mut self, path: &Path) {
        let shown = self.directory.shown(path);
        let Ok(Some(OpenFile { file, .. })) = files::open(path, &shown) else {
            return self.record_failed(path);
        };
        let (file, mut found) = (
            CancellableFile {
                file,
                cancel: self.cancel,
            },
            FileMatches::default(),
        );
        found.room = self.limit + 1 - self.lines;
        match self.searcher.search_reader(&self.matcher, file, &mut found) {
            Err(_) => self.record_failed(path),
            Ok(()) if found.is_binary => self.binary += 1,
            Ok(()) => {
                for (number, line) in found.lines {
                    self.lines += 1;
                    if self.lines <= self.limit {
                        self.output.push_str(&format!("{shown}:{number}: {line}\n"));
                    }
                }
            }
        }
    }

    fn record_failed(&mut self, path: &Path) {
        if self.failed.0.len() < MAX_NAMED {
            self.failed.0.push(path.to_owned());
        }
        self.failed.1 += 1;
    }

    fn finish(self) -> ToolOutput {
        let mut notes = Vec::new();
        if self.is_full() {
            notes.push(format!(
                "only the first {} matching lines are shown; {HINT}, or a larger `limit` up to {MAX_LIMIT}",
                self.limit
            ));
        }
        if self.failed.1 > 0 {
            let named = { self.failed.0.iter() }.map(|path| self.directory.shown(path));
            notes.push(format!(
                "{} files can't be searched, such as {}",
                self.failed.1,
                named.collect::<Vec<_>>().join(", ")
            ));
        }
        if self.unlisted > 0 {
            notes.push(format!("{} directories can't be listed", self.unlisted));
        }
        if self.lines == 0 && self.binary > 0 {
            notes.push(format!("{} binary files were omitted", self.binary));
        }
        let mut text = match self.output.is_empty() {
            true => "no line matches\n".to_owned(),
            false => self.output.finish(HINT),
        };
        notes.iter().for_each(|note| push_note(&mut text, note));
        ToolOutput::ok(text)
    }
}

/// The matches in one file.
#[derive(Debug, Default)]
struct FileMatches {
    lines: Vec<(u64, String)>,
    /// The maximum number of lines that are wanted.
    room: usize,
    is_binary: bool,
}

impl Sink for FileMatches {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        let line = String::from_utf8_lossy(found.bytes());
        let line = line.trim_end_matches(['\r', '\n']);
        let cut = line.char_indices().nth(MAX_LINE).map(|(at, _)| at);
        let line = match cut {
            Some(at) => format!("{}…", &line[..at]),
            None => line.to_owned(),
        };
        self.lines.push((found.line_number().unwrap_or(0), line));
        Ok(self.lines.len() < self.room)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, Self::Error> {
        self.is_binary = true;
        Ok(false)
    }
}
