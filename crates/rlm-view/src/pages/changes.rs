//! The page with the changes of one iteration: its files, and the patch of each.

use maud::{Markup, html};

use super::run::{Tab, attempt_links, attempt_title, crumbs, heading, tabs};
use crate::iteration_changes::{FoundChanges, ShownChanges};
use crate::parsed_changes::{ParsedChanges, ParsedFile};
use crate::row::RunRow;

/// The largest number of lines of a file and of lines on the page, and the largest number of characters of a line.
const MAX_FILE_LINES: usize = 400;
const MAX_LINES: usize = 4000;
const MAX_LINE: usize = 1000;
/// The patches of a few files are open from the start.
const OPEN_LINES: usize = 400;

/// Returns the page. `command` is the call of the program for the project.
pub(crate) fn view(row: &RunRow, command: &str, shown: Option<&ShownChanges>) -> Markup {
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
                (complete(row, command, shown))
                @if parsed.is_incomplete && shown.commits.is_none() {
                    p class="note" {
                        "The run recorded only a part of these changes. A run with --commit keeps all of them in its commits."
                    }
                }
            }
        }
        FoundChanges::Shortened(text) => html! {
            p class="note" {
                "This is only the beginning of the changes: the run shortened their record because of max-transcripts."
            }
            (files(&ParsedChanges::new(text)))
            (complete(row, command, shown))
        },
    }
}

/// Returns the numbers of files and lines of a change that the page shows as a whole.
fn sums(parsed: &ParsedChanges<'_>) -> Markup {
    let lines = parsed.files.iter().filter_map(|file| file.lines);
    let (added, removed) = lines.fold((0u64, 0u64), |sum, (added, removed)| {
        (sum.0.saturating_add(added), sum.1.saturating_add(removed))
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

/// Returns the commands that show the same, and the parts that are not on the page.
fn complete(row: &RunRow, command: &str, shown: &ShownChanges) -> Markup {
    let (iteration, _) = shown.attempt;
    let logs = format!("{command} logs {} --iteration {iteration}", row.run);
    html! {
        p class="note" { "The same in a terminal:" }
        pre class="command" { "\n" (logs) @if let Some(git) = git_command(shown) { "\n" (git) } }
    }
}

/// Returns the command of git that shows the commits. It starts no program that the repository configures for its files.
fn git_command(shown: &ShownChanges) -> Option<String> {
    let commits = shown.commits.as_ref()?;
    let what = match &commits.before {
        Some(before) => format!("diff --no-ext-diff --no-textconv {before}"),
        None => "show --no-ext-diff --no-textconv".into(),
    };
    Some(format!(
        "git -C {} {what} {}",
        shown.directory, commits.after
    ))
}

fn files(parsed: &ParsedChanges<'_>) -> Markup {
    let all: usize = { parsed.files.iter() }
        .flat_map(|file| &file.parts)
        .map(|part| part.lines().count())
        .sum();
    let mut left = MAX_LINES;
    html! {
        div class="files" {
            @for file in &parsed.files {
                @if file.parts.is_empty() {
                    div class="file" { (file_line(file)) }
                } @else {
                    details class="file" open[all <= OPEN_LINES] {
                        summary { (file_line(file)) }
                        @for part in &file.parts { (diff(part, &mut left)) }
                    }
                }
            }
        }
        @if let Some(more) = parsed.more { p class="left" { "… and " (more) " more files" } }
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
    use crate::iteration_changes::CommitRange;
    use crate::parsed_changes::tests::TEXT;

    #[test]
    fn text_of_a_record_is_escaped() {
        let parsed = ParsedChanges::new(TEXT);
        let html = files_html(&parsed);
        assert!(
            html.contains("&lt;script&gt;") && !html.contains("<script"),
            "{html}"
        );
        assert!(html.contains("<span class=\"add\">+one\n</span>"), "{html}");
    }

    #[test]
    fn v7c_git_command_has_a_quoted_directory_and_starts_no_program() {
        let commits = |before: Option<&str>| ShownChanges {
            attempt: (1, 1),
            attempts: vec![(1, 1)],
            found: FoundChanges::Text(String::new()),
            commits: Some(CommitRange {
                before: before.map(str::to_owned),
                after: "bb".into(),
            }),
            directory: r"'/it'\''s'".into(),
        };
        let command = |before| git_command(&commits(before)).unwrap();
        let options = "--no-ext-diff --no-textconv";
        assert_eq!(
            command(Some("aa")),
            format!(r"git -C '/it'\''s' diff {options} aa bb")
        );
        assert_eq!(
            command(None),
            format!(r"git -C '/it'\''s' show {options} bb")
        );
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
        fn v9_any_record_is_rendered_as_text(text in "(([a-z+\"&' ()→-]|<b>|<script>|</pre>|\n|\t|diff --git |@@ |\\+\\+\\+ b/){0,12}\n){0,20}") {
            let tags = |text: &str| files_html(&ParsedChanges::new(text)).matches('<').count();
            // The same text without the characters of a tag.
            let plain = text.replace(['<', '>'], "x");
            proptest::prop_assert_eq!(tags(&text), tags(&plain));
        }
    }
}
