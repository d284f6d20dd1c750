//! The tool `edit`: replaces one exact text in a file. It refuses a text that is missing or not unique, and says how to correct the call.

use std::fmt::Write as _;

use similar::TextDiff;

use super::arguments::Arguments;
use super::file_change::MAX_BYTES as MAX_RESULT;
use super::file_tool::{Changer, FileTool};
use super::files::{self, Target};
use super::output::push_note;
use super::{FileChange, ToolOutput, WorkingDirectory};
use crate::json::JsonObject;
use crate::text::{one_line, start};

const EXAMPLE: &str = r#"{"path":"src/main.rs","old":"let a = 1;","new":"let a = 2;"}"#;
/// The largest file that can be edited, in bytes.
const MAX_BYTES: u64 = 10 << 20;
/// The maximum number of occurrences whose lines a result names.
const MAX_NAMED: usize = 10;
/// The maximum number of occurrences that are counted one by one, because they can overlap.
const MAX_COUNTED: usize = 1_000;
/// The maximum number of lines of the difference in a result.
const MAX_DIFF: usize = 40;
/// The maximum number of occurrences in the difference.
const MAX_SHOWN: usize = 5;
/// The longest line in the difference, in bytes.
const MAX_LINE: usize = 400;

/// Replaces one exact text in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct EditFile;

#[derive(Debug)]
pub(super) struct Call {
    path: String,
    old: String,
    new: String,
    replace_all: bool,
}

impl FileTool for EditFile {
    const NAME: &'static str = "edit";
    const DESCRIPTION: &'static str = "Replaces one exact text in a file. `old` must be in the file once, with its white space; give more lines around it to make it unique, or set `replace_all`.";
    const SCHEMA: &'static str = r#"{"type":"object","properties":{"path":{"type":"string","description":"The file, relative to the working directory"},"old":{"type":"string","description":"The exact text to replace, without line numbers; it must be unique in the file"},"new":{"type":"string","description":"The text in its place"},"replace_all":{"type":"boolean","description":"Replaces each occurrence"}},"required":["path","old","new"]}"#;
    const SUMMARY: &'static str = "path";

    type Call = Call;

    fn parse(arguments: &JsonObject) -> Result<Call, ToolOutput> {
        let mut arguments = Arguments::new(arguments, EXAMPLE);
        let call = Call {
            path: arguments.text("path")?,
            old: arguments.text("old")?,
            new: arguments.text("new")?,
            replace_all: arguments.flag("replace_all")?,
        };
        if call.old.is_empty() {
            return Err(ToolOutput::failed(
                "`old` is empty; give the exact text to replace, or use `write` for a new file",
            ));
        }
        if call.old == call.new {
            return Err(ToolOutput::failed(
                "`old` and `new` are the same, so nothing would change",
            ));
        }
        Ok(call)
    }

    fn path(call: &Call) -> &str {
        &call.path
    }
}

impl Changer for EditFile {
    const MAX_BYTES: u64 = MAX_BYTES;

    fn change(
        call: Call,
        target: Target,
        directory: &WorkingDirectory,
    ) -> Result<FileChange, ToolOutput> {
        let (path, shown) = (target.path, target.shown);
        let Some(before) = target.before else {
            return Err(files::missing(&path, directory));
        };
        if before.contains(&0) {
            let reason = format!("`{shown}` is a binary file; `edit` changes text only");
            return Err(ToolOutput::failed(reason));
        }
        let Ok(text) = std::str::from_utf8(&before) else {
            let reason = format!("`{shown}` is not UTF-8; use `bash` to change it");
            return Err(ToolOutput::failed(reason));
        };
        let edited = replace(text, &call, &shown).map_err(ToolOutput::failed)?;
        Ok(FileChange::new(
            path,
            Some(&before),
            edited.text,
            edited.result,
        ))
    }
}

/// A text after an edit, and the result for the model.
#[derive(Debug)]
struct Edited {
    text: String,
    result: String,
}

/// Replaces the text of a call, or says why that is not possible.
fn replace(text: &str, call: &Call, shown: &str) -> Result<Edited, String> {
    let (old, new) = with_line_ends(text, call);
    let places = places(text, &old);
    match places[..] {
        [] => return Err(no_place(text, &call.old, shown)),
        [_] => {}
        _ if call.replace_all => {}
        _ => return Err(several_places(text, &places, shown)),
    }
    let count = match call.replace_all {
        true => text.matches(&*old).count(),
        false => 1,
    };
    let added = new.len().saturating_sub(old.len()) as u64;
    if text.len() as u64 + added.saturating_mul(count as u64) > MAX_RESULT {
        let max = MAX_RESULT >> 20;
        return Err(format!("`{shown}` would be larger than {max} MB"));
    }
    let edited = text.replacen(&*old, &new, count);
    let mut result = match count {
        1 => format!("changed `{shown}`\n"),
        _ => format!("changed `{shown}` in {count} places\n"),
    };
    push_difference(&mut result, text, &edited, (&old, &new));
    Ok(Edited {
        text: edited,
        result,
    })
}

/// Returns the old and the new text with the line ends of the file. The model sees and writes LF only.
fn with_line_ends(text: &str, call: &Call) -> (String, String) {
    let (old, new) = (call.old.clone(), call.new.clone());
    let breaks = text.matches('\n').count();
    let is_crlf = 2 * text.matches("\r\n").count() > breaks;
    if old.contains('\r') || new.contains('\r') {
        return (old, new);
    }
    let crlf = |text: &str| text.replace('\n', "\r\n");
    match old.contains('\n') {
        false if is_crlf => (old, crlf(&new)),
        true if !text.contains(&old) && text.contains(&crlf(&old)) => (crlf(&old), crlf(&new)),
        _ => (old, new),
    }
}

/// Returns where a text begins, also where it overlaps itself.
fn places(text: &str, old: &str) -> Vec<usize> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..]
        .find(old)
        .filter(|_| places.len() < MAX_COUNTED)
    {
        places.push(from + at);
        from += at + step;
    }
    places
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

fn several_places(text: &str, places: &[usize], shown: &str) -> String {
    let lines: Vec<String> = { places.iter().take(MAX_NAMED) }
        .map(|at| line_of(text, *at).to_string())
        .collect();
    let more = match places.len() {
        count if count > MAX_NAMED => ", …",
        _ => "",
    };
    let count = match places.len() {
        MAX_COUNTED => format!("at least {MAX_COUNTED}"),
        count => count.to_string(),
    };
    format!(
        "`old` is in `{shown}` {count} times, in lines {}{more}; give more of the text around it, or set `replace_all`",
        lines.join(", ")
    )
}

/// Explains that a text is missing, and shows the lines that differ from it in their white space only.
fn no_place(text: &str, old: &str, shown: &str) -> String {
    let wanted: Vec<&str> = old.lines().map(str::trim).collect();
    let lines: Vec<&str> = text.lines().collect();
    let block = { lines.windows(wanted.len().max(1)) }.position(|window| {
        window
            .iter()
            .map(|line| line.trim())
            .eq(wanted.iter().copied())
    });
    let first = || {
        let wanted = wanted.iter().find(|line| !line.is_empty())?;
        lines.iter().position(|line| line.trim() == *wanted)
    };
    let mut reason = format!("`old` is not in `{shown}`");
    if let Some(at) = block.filter(|_| !old.trim().is_empty()).or_else(first) {
        let _infallible = write!(
            reason,
            "; line {} has the same text with other white space or other lines around it: {}",
            at + 1,
            one_line(&format!("{:?}", start(lines[at], MAX_LINE)), MAX_LINE)
        );
    }
    reason.push_str("; read the file again and copy the exact text");
    reason
}

/// Appends the difference of the first places, as a short unified diff.
fn push_difference(result: &mut String, before: &str, after: &str, (old, new): (&str, &str)) {
    let lines = old.matches('\n').count().max(new.matches('\n').count());
    if lines > 10 * MAX_DIFF {
        let note = format!("the difference of {lines} lines is not shown");
        return push_note(result, &note);
    }
    // The difference of a whole large file would take long, and only its start is shown.
    let shown = before.match_indices(old).take(MAX_SHOWN);
    let (shown, end_before) = shown.fold((0, 0), |(n, _), (at, _)| (n + 1, at + old.len()));
    let end_after = end_before + shown * new.len() - shown * old.len();
    let diff = TextDiff::from_lines(
        through_context(before, end_before),
        through_context(after, end_after),
    );
    let diff = diff.unified_diff().context_radius(3).to_string();
    for line in diff.lines().take(MAX_DIFF) {
        let line = line.trim_end_matches('\r');
        let cut = start(line, MAX_LINE);
        let more = if cut.len() < line.len() { "…" } else { "" };
        let _infallible = writeln!(result, "{cut}{more}");
    }
    if diff.lines().nth(MAX_DIFF).is_some()
        || before[end_before..].contains(old) && after != before.replacen(old, new, shown)
    {
        push_note(result, "the rest of the difference is not shown");
    }
}

/// Returns the start of a text through the third line after `at`.
fn through_context(text: &str, at: usize) -> &str {
    match text[at..].match_indices('\n').nth(3) {
        Some((end, _)) => &text[..=at + end],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(text: &str, old: &str, new: &str, replace_all: bool) -> Result<Edited, String> {
        let call = Call {
            path: String::new(),
            old: old.to_owned(),
            new: new.to_owned(),
            replace_all,
        };
        replace(text, &call, "a.rs")
    }

    fn edited(text: &str, old: &str, new: &str) -> String {
        edit(text, old, new, false).unwrap().text
    }

    #[test]
    fn a12_result_of_an_edit_is_a_short_difference() {
        let text: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let one = edit(&text, "line 10\n", "line ten\nand more\n", false).unwrap();
        insta::assert_snapshot!(one.result, @r"
        changed `a.rs`
        @@ -7,7 +7,8 @@
         line 7
         line 8
         line 9
        -line 10
        +line ten
        +and more
         line 11
         line 12
         line 13
        ");
        let all = edit(&text, "line", "row", true).unwrap();
        assert!(all.result.starts_with("changed `a.rs` in 20 places\n"));
        let end = "[the rest of the difference is not shown]";
        assert!(all.result.ends_with(end), "{}", all.result);
        assert!(all.result.lines().count() <= MAX_DIFF + 2);
        let long = edit("short", "short", &"x\n".repeat(5_000), false).unwrap();
        let end = "[the difference of 5000 lines is not shown]";
        assert!(long.result.ends_with(end), "{}", long.result);
        let wide = edit("short", "short", &"é".repeat(5_000), false).unwrap();
        assert!(wide.result.len() < 3 * MAX_LINE);
    }

    #[test]
    fn a12_absent_or_repeated_text_is_explained() {
        let text = "fn a() {\n\tlet x = 1;\n}\nfn b() {\n\tlet x = 1;\n}\n";
        let refused = |old: &str| edit(text, old, "new", false).unwrap_err();
        insta::assert_snapshot!(
            [
                refused("let x = 1;"),
                refused("    let x = 1;\n}\nfn b"),
                refused("fn b() {\n  let x = 1;\n}"),
                refused("let y"),
                refused("\n \n"),
            ]
            .join("\n"),
            @r#"
        `old` is in `a.rs` 2 times, in lines 2, 5; give more of the text around it, or set `replace_all`
        `old` is not in `a.rs`; line 2 has the same text with other white space or other lines around it: "\tlet x = 1;"; read the file again and copy the exact text
        `old` is not in `a.rs`; line 4 has the same text with other white space or other lines around it: "fn b() {"; read the file again and copy the exact text
        `old` is not in `a.rs`; read the file again and copy the exact text
        `old` is not in `a.rs`; read the file again and copy the exact text
        "#
        );
        let overlapping = edit("aaa", "aa", "b", false).unwrap_err();
        assert!(overlapping.contains("2 times"), "{overlapping}");
        assert_eq!(edit("aaaa", "aa", "b", true).unwrap().text, "bb");
        assert!(edit("", "a", "b", false).is_err());
    }

    #[test]
    fn a12_edit_keeps_the_line_ends_of_the_file() {
        let crlf = "one\r\ntwo\r\nthree\r\n";
        assert_eq!(edited(crlf, "one\ntwo", "1\n2"), "1\r\n2\r\nthree\r\n");
        assert_eq!(edited(crlf, "two", "2\n2"), "one\r\n2\r\n2\r\nthree\r\n");
        assert_eq!(edited(crlf, "two\r\n", "2\n"), "one\r\n2\nthree\r\n");
        assert_eq!(edited("one\ntwo\n", "one\ntwo", "1\n2"), "1\n2\n");
        assert_eq!(edited("one\ntwo\r\n", "one\ntwo", "1\n2"), "1\n2\r\n");
    }

    #[test]
    fn a12_result_that_would_be_huge_is_refused_before_it_is_made() {
        let text = "a".repeat(1 << 20);
        let refused = edit(&text, "a", &"b".repeat(1 << 20), true).unwrap_err();
        assert_eq!(refused, "`a.rs` would be larger than 32 MB");
    }

    #[test]
    fn a12_wrong_calls_are_refused() {
        let refused = |arguments: &str| {
            EditFile::parse(&JsonObject::parse(arguments).unwrap())
                .unwrap_err()
                .text
        };
        let empty = refused(r#"{"path":"a","old":"","new":"b"}"#);
        assert!(empty.starts_with("`old` is empty"), "{empty}");
        let same = refused(r#"{"path":"a","old":"b","new":"b"}"#);
        assert!(same.contains("are the same"), "{same}");
        let missing = refused(r#"{"path":"a","old":"b"}"#);
        assert!(missing.starts_with("`new` is missing"), "{missing}");
    }

    proptest! {
        #[test]
        fn a12_edit_replaces_exactly_one_place_or_none(
            text in "[ab\né]{0,30}", old in "[ab\né]{1,3}", new in "[ab\né]{0,3}", all: bool,
        ) {
            let count = places(&text, &old).len();
            match edit(&text, &old, &new, all) {
                Ok(edited) if all => prop_assert_eq!(edited.text, text.replace(&old, &new)),
                Ok(edited) => {
                    prop_assert_eq!(count, 1);
                    prop_assert_eq!(edited.text, text.replacen(&old, &new, 1));
                }
                Err(_) => prop_assert_eq!(count == 0 || !all, true),
            }
        }
    }
}
