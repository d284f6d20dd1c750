//! The page with the changes of one iteration: its files, and the patch of each.

use std::collections::HashMap;

use maud::{Markup, html};

use super::run::{Tab, attempt_links, attempt_title, crumbs, heading, tabs};
use crate::iteration_changes::{FoundChanges, ShownChanges};
use crate::row::RunRow;

/// The largest number of files, of lines of a file and of lines on the page, and the largest number of characters of a line.
const MAX_FILES: usize = 200;
const MAX_FILE_LINES: usize = 400;
const MAX_LINES: usize = 4000;
const MAX_LINE: usize = 1000;
/// The patches of a few files are open from the start.
const OPEN_LINES: usize = 400;

/// Returns the page. `command` is the call of the program for the project.
pub(crate) fn changes(row: &RunRow, command: &str, shown: Option<&ShownChanges>) -> Markup {
    html! {
        (crumbs(row, Tab::Changes))
        (heading(row))
        (tabs(row, Tab::Changes))
        @match shown {
            None => p class="empty" { "The run has no iteration yet." },
            Some(shown) => section aria-labelledby="attempt" {
                @let is_newest = shown.attempts.last() == Some(&shown.attempt);
                (attempt_links(row, Tab::Changes, shown.attempt, &shown.attempts, is_newest))
                (content(row, command, shown))
            },
        }
    }
}

fn content(row: &RunRow, command: &str, shown: &ShownChanges) -> Markup {
    match &shown.found {
        FoundChanges::Unknown(why) => {
            html! { p class="empty" { "No changes to show: " (why) "." } }
        }
        FoundChanges::Text(text) if text.trim().is_empty() => {
            html! { p class="empty" { "The iteration changed no file." } }
        }
        FoundChanges::Text(text) => {
            let parsed = ParsedChanges::new(text);
            html! {
                (sums(&parsed))
                (files(&parsed))
                (complete(row, command, shown, &parsed))
            }
        }
    }
}

/// Returns the numbers of files and lines of a change that the page shows as a whole.
fn sums(parsed: &ParsedChanges<'_>) -> Markup {
    let lines = parsed.files.iter().filter_map(|file| file.lines);
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let (added, removed) = lines.fold((0u64, 0u64), |sum, (added, removed)| {
        (
            sum.0.saturating_add(number(added)),
            sum.1.saturating_add(number(removed)),
        )
    });
    html! {
        @if parsed.more.is_none() {
            p class="counts" {
                b { (parsed.files.len()) } @if parsed.files.len() == 1 { " file " } @else { " files " }
                span class="good" { "+" (added) } " " span class="bad" { "−" (removed) }
            }
        }
    }
}

/// Returns how to see the parts that are not on the page.
fn complete(
    row: &RunRow,
    command: &str,
    shown: &ShownChanges,
    parsed: &ParsedChanges<'_>,
) -> Markup {
    let (iteration, _) = shown.attempt;
    let logs = format!("{command} logs {} --iteration {iteration}", row.run);
    let git = shown.commits.as_ref().map(|commits| {
        let directory = &shown.directory;
        match &commits.before {
            Some(before) => format!("git -C '{directory}' diff {before} {}", commits.after),
            None => format!("git -C '{directory}' show {}", commits.after),
        }
    });
    html! {
        p class="note" { "The same in a terminal:" }
        pre class="command" { "\n" (logs) @if let Some(git) = &git { "\n" (git) } }
        @if parsed.is_incomplete && git.is_none() {
            p class="note" {
                "The run recorded only the beginning of a long patch. A run with --commit keeps all of it in its commits."
            }
        }
    }
}

/// The text of a run's record, split into files.
#[derive(Debug, PartialEq, Eq)]
struct ParsedChanges<'a> {
    files: Vec<ParsedFile<'a>>,
    /// A line such as `… and 12 more`.
    more: Option<&'a str>,
    is_incomplete: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct ParsedFile<'a> {
    name: &'a str,
    lines: Option<(&'a str, &'a str)>,
    /// Why the file has no patch.
    note: Option<&'a str>,
    /// The hunks of the file.
    patch: Option<&'a str>,
}

impl<'a> ParsedChanges<'a> {
    fn new(text: &'a str) -> Self {
        let (list, patch) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut parts: HashMap<String, &str> = parts_of(patch)
            .map(|part| (name_of_part(part), part))
            .collect();
        let lines = || list.lines().filter(|line| !line.is_empty());
        let more = lines().find(|line| line.starts_with("… and "));
        let files: Vec<_> = lines()
            .filter(|line| !line.starts_with("… and "))
            .take(MAX_FILES)
            .map(|line| {
                let mut file = ParsedFile::new(line);
                let path = file
                    .name
                    .rsplit_once(" → ")
                    .map_or(file.name, |(_, path)| path);
                file.patch = parts.remove(path);
                file
            })
            .collect();
        let is_incomplete = files
            .iter()
            .any(|file| file.lines.is_some() && file.note.is_some());
        Self {
            files,
            more,
            is_incomplete,
        }
    }
}

impl<'a> ParsedFile<'a> {
    /// Parses a line such as `src/a.rs +1 -2` or `old → new +0 -0 (the patch is too long; new, 3 MiB)`.
    fn new(line: &'a str) -> Self {
        let (line, note) = match line
            .strip_suffix(')')
            .and_then(|line| line.rsplit_once(" ("))
        {
            Some((line, note)) => (line, Some(note)),
            None => (line, None),
        };
        let numbers = || {
            let (rest, removed) = line.rsplit_once(" -")?;
            let (name, added) = rest.rsplit_once(" +")?;
            let is_number =
                |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
            (is_number(added) && is_number(removed)).then_some((name, (added, removed)))
        };
        let (name, lines) = match numbers() {
            Some((name, lines)) => (name, Some(lines)),
            None => (line, None),
        };
        Self {
            name,
            lines,
            note,
            patch: None,
        }
    }
}

/// Splits a patch into the parts of its files.
fn parts_of(patch: &str) -> impl Iterator<Item = &str> {
    let mut rest = patch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find("\ndiff --git ").map_or(rest.len(), |at| at + 1);
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}

/// Returns the path of a part, with `?` for control characters, as the list of the files has it.
fn name_of_part(part: &str) -> String {
    let head = || part.lines().take_while(|line| !line.starts_with("@@"));
    let after = |prefix: &str| head().find_map(|line| line.strip_prefix(prefix));
    // Git ends a name that has a space with a tab.
    let name = |text: &str| unquoted(text.strip_suffix('\t').unwrap_or(text));
    let side = |line: &str, side: &str| name(line).strip_prefix(side).map(str::to_owned);
    let named = after("+++ ").filter(|it| *it != "/dev/null");
    if let Some(path) = named.and_then(|line| side(line, "b/")) {
        return path;
    }
    if let Some(path) = after("--- ").and_then(|line| side(line, "a/")) {
        return path;
    }
    if let Some(path) = after("rename to ") {
        return name(path);
    }
    // An empty file, or a change of the mode: both sides have the same name.
    let both = after("diff --git ").unwrap_or_default();
    match both.strip_prefix('"') {
        Some(quoted) => {
            let end = quoted.find("\" \"").map_or(quoted.len(), |at| at + 1);
            side(&format!("\"{}", &quoted[..end]), "a/").unwrap_or_default()
        }
        None => {
            let half = both.len().saturating_sub(1) / 2;
            let first = both.get(..half).unwrap_or_default();
            side(first, "a/").unwrap_or_default()
        }
    }
}

/// Returns a name without git's quotes; each escaped character is `?`, except quotes and backslashes.
fn unquoted(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    let Some(inner) = inner else {
        return text.to_owned();
    };
    let mut name = String::new();
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        match (c, rest.as_str().chars().next()) {
            ('\\', Some(escaped @ ('"' | '\\'))) => {
                name.push(escaped);
                rest.next();
            }
            ('\\', Some('0'..='7')) => {
                name.push('?');
                rest.by_ref().take(3).for_each(drop);
            }
            ('\\', Some(_)) => {
                name.push('?');
                rest.next();
            }
            _ => name.push(c),
        }
    }
    name
}

fn files(parsed: &ParsedChanges<'_>) -> Markup {
    let all: usize = { parsed.files.iter() }
        .filter_map(|file| file.patch)
        .map(|patch| patch.lines().count())
        .sum();
    let mut left = MAX_LINES;
    html! {
        div class="files" {
            @for file in &parsed.files {
                @match file.patch {
                    Some(patch) => details class="file" open[all <= OPEN_LINES] {
                        summary { (file_line(file)) }
                        (diff(patch, &mut left))
                    },
                    None => div class="file" { (file_line(file)) },
                }
            }
        }
        @if let Some(more) = parsed.more { p class="left" { (more) " files" } }
    }
}

fn file_line(file: &ParsedFile<'_>) -> Markup {
    html! {
        bdi class="path" { (file.name) }
        @if let Some((added, removed)) = file.lines {
            " " span class="good" { "+" (added) } " " span class="bad" { "−" (removed) }
        }
        @if let Some(note) = file.note { " " span class="sub" { (note) } }
    }
}

/// Renders the hunks of a file. Takes the number of its lines from `left`.
fn diff(patch: &str, left: &mut usize) -> Markup {
    // The lines before the first hunk repeat the name.
    let begins = |line: &&str| line.starts_with("@@");
    let hunks = || patch.lines().skip_while(|line| !begins(line));
    let count = hunks().count();
    let shown = count.min(MAX_FILE_LINES).min(*left);
    *left -= shown;
    let class = |line: &str| match line.as_bytes().first() {
        Some(b'+') => "add",
        Some(b'-') => "del",
        Some(b'@') => "hunk",
        _ => "same",
    };
    let facts = || patch.lines().skip(1).take_while(|line| !begins(line));
    let facts = facts().filter(|line| {
        [
            "new file",
            "deleted file",
            "old mode",
            "new mode",
            "similarity",
            "rename",
        ]
        .iter()
        .any(|it| line.starts_with(it))
    });
    html! {
        pre class="diff" {
            "\n"
            @for line in facts { span class="fact" { (line) "\n" } }
            @for line in hunks().take(shown) { span class=(class(line)) { (shortened(line)) "\n" } }
        }
        @if shown < count { p class="left" { (count - shown) " more lines" } }
    }
}

fn shortened(line: &str) -> Markup {
    match line.char_indices().nth(MAX_LINE) {
        Some((at, _)) => html! {
            (line[..at]) span class="left" { "… " (rlm_text::bytes::show((line.len() - at) as u64)) " left out" }
        },
        None => html! { (line) },
    }
}

/// Returns the title of an attempt, for a page about it.
pub(crate) fn title(row: &RunRow, shown: Option<&ShownChanges>) -> String {
    let name = row.title.as_deref().unwrap_or(row.run.as_str());
    match shown {
        Some(shown) => format!("Changes of {}: {name}", attempt_title(shown.attempt)),
        None => format!("Changes: {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
a b.txt +1 -1
gone +0 -1
old → new +0 -0
mode +0 -0
odd\"? +1 -0
big.json +9000 -0 (the patch is too long; new, 1.2 MiB)
pic (1).png (not text; 10 bytes → 2 KiB)
… and 3 more

diff --git a/a b.txt b/a b.txt
index 1..2 100644
--- a/a b.txt\t
+++ b/a b.txt\t
@@ -1 +1 @@
-x
+diff --git a/gone b/gone
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-<script>
diff --git a/old b/new
similarity index 100%
rename from old
rename to new
diff --git a/mode b/mode
old mode 100644
new mode 100755
diff --git \"a/odd\\\"\\n\" \"b/odd\\\"\\n\"
--- /dev/null
+++ \"b/odd\\\"\\n\"
@@ -0,0 +1 @@
+one";

    #[test]
    fn v7a_each_file_of_a_record_has_its_own_patch() {
        let parsed = ParsedChanges::new(TEXT);
        let facts = |file: &ParsedFile<'_>| {
            let patch = file.patch.map(|patch| patch.lines().count());
            (
                file.name.to_owned(),
                file.lines.is_some(),
                file.note.is_some(),
                patch,
            )
        };
        let files: Vec<_> = parsed.files.iter().map(facts).collect();
        let expected = [
            ("a b.txt", true, false, Some(7)),
            ("gone", true, false, Some(6)),
            ("old → new", true, false, Some(4)),
            ("mode", true, false, Some(3)),
            ("odd\"?", true, false, Some(5)),
            ("big.json", true, true, None),
            ("pic (1).png", false, true, None),
        ];
        assert_eq!(
            files,
            expected.map(|(name, a, b, c)| (name.to_owned(), a, b, c))
        );
        assert!(parsed.is_incomplete && parsed.more.is_some());
        let html = files_html(&parsed);
        assert!(
            html.contains("&lt;script&gt;") && !html.contains("<script"),
            "{html}"
        );
        assert!(html.contains("<span class=\"add\">+one\n</span>"), "{html}");
    }

    fn files_html(parsed: &ParsedChanges<'_>) -> String {
        super::files(parsed).into_string()
    }

    #[test]
    fn v7a_huge_patch_is_shown_up_to_the_limits() {
        let mut text = String::from("a +90000 -0\nb +1 -0\n\n");
        text += "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +90000 @@\n";
        text += &"+x\n".repeat(90_000);
        text += &format!(
            "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -0,0 +1 @@\n+{}",
            "é".repeat(90_000)
        );
        let html = files_html(&ParsedChanges::new(&text));
        assert!(
            html.contains("89601 more lines") && html.contains("left out"),
            "{}",
            html.len()
        );
        assert!(html.len() < 50_000, "{}", html.len());
    }

    proptest::proptest! {
        #[test]
        fn v9_any_record_is_rendered_as_text(text in "(([a-z+<>\"&' ()→-]|\n|\t|diff --git |@@ |\\+\\+\\+ b/){0,12}\n){0,20}") {
            let html = files_html(&ParsedChanges::new(&text));
            proptest::prop_assert!(!html.contains("<b") || html.contains("<bdi"));
            proptest::prop_assert!(!html.contains("<script"));
        }
    }
}
