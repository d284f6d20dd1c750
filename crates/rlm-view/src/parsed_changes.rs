//! The text of the changes that a run records or git reports, split into files. A name in the text can look like any other part of it, so each part
//! counts only where the text has it.

use std::collections::HashMap;

use rlm_store::git::changes::parts_of;

/// The largest number of files.
const MAX_FILES: usize = 200;
/// The beginnings of a note.
const NOT_TEXT: &str = "not text";
const TOO_LONG: &str = "the patch is too long; ";

/// The text of some changes, split into files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedChanges<'a> {
    pub(crate) files: Vec<ParsedFile<'a>>,
    /// The number of further files.
    pub(crate) more: Option<u64>,
    /// Whether the text leaves out files, or patches of text.
    pub(crate) is_incomplete: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedFile<'a> {
    pub(crate) name: &'a str,
    /// The numbers of added and of removed lines.
    pub(crate) lines: Option<(u64, u64)>,
    /// Why the file has no patch.
    pub(crate) note: Option<&'a str>,
    /// The patch of the file; if the type of the file changed, the patches of its removal and of its creation.
    pub(crate) parts: Vec<&'a str>,
}

impl<'a> ParsedChanges<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let (list, patch) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut parts: HashMap<String, Vec<&str>> = HashMap::new();
        for part in parts_of(patch) {
            parts.entry(name_of_part(part)).or_default().push(part);
        }
        let mut lines: Vec<&str> = list.lines().filter(|line| !line.is_empty()).collect();
        let more = lines.last().and_then(|line| number_of_more(line));
        if more.is_some() {
            lines.pop();
        }
        let files: Vec<_> = { lines.iter().take(MAX_FILES) }
            .map(|line| {
                let mut file = ParsedFile::new(line);
                file.parts = take_parts(&mut parts, file.name);
                file
            })
            .collect();
        let is_incomplete = more.is_some()
            || lines.len() > MAX_FILES
            || files
                .iter()
                .any(|it| it.note.is_some_and(|it| it.starts_with(TOO_LONG)));
        Self {
            files,
            more,
            is_incomplete,
        }
    }
}

/// Parses a line such as `… and 12 more`.
fn number_of_more(line: &str) -> Option<u64> {
    let number = line.strip_prefix("… and ")?.strip_suffix(" more")?;
    parse_number(number)
}

fn parse_number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Takes the parts of a file from the parts of all files. The list has `old → new` for a renamed file, but a name can look like that too.
fn take_parts<'a>(parts: &mut HashMap<String, Vec<&'a str>>, name: &str) -> Vec<&'a str> {
    if let Some(own) = parts.remove(name) {
        return own;
    }
    for (at, arrow) in name.match_indices(" → ") {
        let (from, path) = (&name[..at], &name[at + arrow.len()..]);
        let is_renamed = |part: &&str| {
            let from_line = header(part).find_map(|line| line.strip_prefix("rename from "));
            from_line.is_some_and(|it| unquoted(it) == from)
        };
        if parts
            .get(path)
            .is_some_and(|of_path| of_path.iter().any(is_renamed))
        {
            return parts.remove(path).unwrap_or_default();
        }
    }
    Vec::new()
}

impl<'a> ParsedFile<'a> {
    /// Parses a line such as `src/a.rs +1 -2` or `old → new +0 -0 (the patch is too long; new, 3 MB)`.
    fn new(line: &'a str) -> Self {
        let noted = line.strip_suffix(')').and_then(|it| it.rsplit_once(" ("));
        let is_note = |note: &str| note.starts_with(NOT_TEXT) || note.starts_with(TOO_LONG);
        let (line, note) = match noted.filter(|(_, note)| is_note(note)) {
            Some((line, note)) => (line, Some(note)),
            None => (line, None),
        };
        let numbers = || {
            let (rest, removed) = line.rsplit_once(" -")?;
            let (name, added) = rest.rsplit_once(" +")?;
            Some((name, (parse_number(added)?, parse_number(removed)?)))
        };
        // The line of a file that is not text has no numbers, but its name can end like that.
        let is_text = note.is_none_or(|note| !note.starts_with(NOT_TEXT));
        let (name, lines) = match is_text.then(numbers).flatten() {
            Some((name, lines)) => (name, Some(lines)),
            None => (line, None),
        };
        Self {
            name,
            lines,
            note,
            parts: Vec::new(),
        }
    }
}

/// Returns the lines of a part before its first hunk.
fn header(part: &str) -> impl Iterator<Item = &str> {
    part.lines().take_while(|line| !line.starts_with("@@"))
}

/// Returns the path of a part, with `?` for control characters, as the list of the files has it.
fn name_of_part(part: &str) -> String {
    let after = |prefix: &str| header(part).find_map(|line| line.strip_prefix(prefix));
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TEXT: &str = "\
a b.txt +1 -1
gone +0 -1
old → new +0 -0
mode +0 -0
odd\"? +1 -0
big.json +9000 -0 (the patch is too long; new, 1.2 MB)
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
            let patch: usize = file.parts.iter().map(|part| part.lines().count()).sum();
            (
                file.name.to_owned(),
                file.lines.is_some(),
                file.note.is_some(),
                patch,
            )
        };
        let files: Vec<_> = parsed.files.iter().map(facts).collect();
        let expected = [
            ("a b.txt", true, false, 7),
            ("gone", true, false, 6),
            ("old → new", true, false, 4),
            ("mode", true, false, 3),
            ("odd\"?", true, false, 5),
            ("big.json", true, true, 0),
            ("pic (1).png", false, true, 0),
        ];
        assert_eq!(
            files,
            expected.map(|(name, a, b, c)| (name.to_owned(), a, b, c))
        );
        assert!(parsed.is_incomplete && parsed.more == Some(3));
    }

    fn part(name: &str, header: &str, line: &str) -> String {
        format!(
            "diff --git a/{name} b/{name}\n{header}--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n{line}\n"
        )
    }

    /// Returns the names, the numbers of lines and the numbers of parts of the files.
    fn facts<'a>(parsed: &ParsedChanges<'a>) -> Vec<(&'a str, bool, usize)> {
        let facts = |file: &ParsedFile<'a>| (file.name, file.lines.is_some(), file.parts.len());
        parsed.files.iter().map(facts).collect()
    }

    #[test]
    fn v7a_name_that_looks_like_a_rename_takes_no_other_patch() {
        let list = "A → src/main.rs +1 -0\nsrc/main.rs +1 -0\n";
        let both = [
            part("A → src/main.rs", "", "+one"),
            part("src/main.rs", "", "+two"),
        ];
        let text = format!("{list}\n{}", both.concat());
        let parsed = ParsedChanges::new(&text);
        let last = |at: usize| parsed.files[at].parts[0].lines().last();
        assert_eq!((last(0), last(1)), (Some("+one"), Some("+two")));
        // The patch of the first file is left out.
        let text = format!("{list}\n{}", both[1]);
        let parsed = ParsedChanges::new(&text);
        let expected = [("A → src/main.rs", true, 0), ("src/main.rs", true, 1)];
        assert_eq!(facts(&parsed), expected);
        let renamed = "diff --git a/A b/src/main.rs\nrename from A\nrename to src/main.rs\n";
        let text = format!("A → src/main.rs +0 -0\n\n{renamed}");
        let parsed = ParsedChanges::new(&text);
        assert_eq!(facts(&parsed), [("A → src/main.rs", true, 1)]);
    }

    #[test]
    fn v7a_only_the_last_line_is_the_number_of_further_files() {
        let parsed = ParsedChanges::new("… and 7 more\n… and x.sh +1 -0\nb +1 -0\n");
        assert_eq!((parsed.files.len(), parsed.more), (3, None));
        assert!(!parsed.is_incomplete);
        let parsed = ParsedChanges::new("a +1 -0\n… and 7 more\n");
        assert_eq!((parsed.files.len(), parsed.more), (1, Some(7)));
        assert!(parsed.is_incomplete);
        let parsed = ParsedChanges::new("… and x more\n");
        assert_eq!((parsed.files.len(), parsed.more), (1, None));
    }

    #[test]
    fn v7a_type_change_has_the_patches_of_both_types() {
        let text = [
            "link +1 -1\n\n".to_owned(),
            part("link", "deleted file mode 100644\n", "-text"),
            part("link", "new file mode 120000\n", "+target"),
        ]
        .concat();
        assert_eq!(facts(&ParsedChanges::new(&text)), [("link", true, 2)]);
    }

    #[test]
    fn v7a_name_that_ends_with_numbers_or_a_note_stays_whole() {
        let text = "a +1 -0 (not text; new, 3 KiB)\nb +1 -0 (not text)\nc (x) +1 -0\n";
        let parsed = ParsedChanges::new(text);
        let expected = [
            ("a +1 -0", false, 0),
            ("b +1 -0", false, 0),
            ("c (x)", true, 0),
        ];
        assert_eq!(facts(&parsed), expected);
        assert!(!parsed.is_incomplete);
    }
}
