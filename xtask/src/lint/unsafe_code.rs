//! Checks the unsafe code: `docs/unsafe.md` lists all of it with its safety argument, and at most one module per published crate may contain any.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::changes;
use crate::sources::{self, Source};
use crate::workspace::Workspace;

const LIST: &str = "docs/unsafe.md";

/// The unsafe code of a file.
#[derive(Debug, PartialEq, Eq)]
struct AuditedUnsafe {
    /// The reason of the `expect` attribute.
    reason: String,
    /// The function or type around each unsafe block, and its safety comment.
    proofs: Vec<(String, String)>,
}

/// Names unsafe code that differs from the list, and crates with more than one module of it.
pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let files = files(workspace);
    let mut wrong = Vec::new();
    for (path, audited) in &files {
        let unproven = audited.proofs.iter().filter(|(_, proof)| proof.is_empty());
        wrong.extend(unproven.map(|(name, _)| format!("{path}: {name}: no `// SAFETY:` above it")));
    }
    for package in workspace.published() {
        let folder = package.folder.join("src");
        let folder = folder.strip_prefix(&workspace.root).unwrap_or(&folder);
        let modules: Vec<_> = files
            .keys()
            .filter(|path| Path::new(path).starts_with(folder))
            .map(String::as_str)
            .collect();
        if modules.len() > 1 {
            wrong.push(format!(
                "{}: unsafe code in more than one module: {}",
                package.name,
                modules.join(", ")
            ));
        }
    }
    let listed = fs_err::read_to_string(workspace.root.join(LIST)).unwrap_or_default();
    let now = page(&files);
    if listed != now {
        let changes = changes::of(&listed, &now).into_iter();
        wrong.extend(changes.map(|line| format!("{LIST}: {line}")));
        wrong.push("review it, then run `cargo xtask lint --update`".into());
    }
    wrong
}

/// Writes the current list.
pub(super) fn update(workspace: &Workspace) -> std::io::Result<()> {
    fs_err::write(workspace.root.join(LIST), page(&files(workspace)))
}

fn files(workspace: &Workspace) -> BTreeMap<String, AuditedUnsafe> {
    let sources = sources::read(&workspace.root);
    let files = sources
        .iter()
        .filter_map(|source| Some((source.path.display().to_string(), audit(source)?)));
    files.collect()
}

fn audit(source: &Source) -> Option<AuditedUnsafe> {
    let lines: Vec<&str> = source.text.lines().collect();
    let places: Vec<usize> = (0..lines.len())
        .filter(|at| is_unsafe(lines[*at]))
        .collect();
    if places.is_empty() {
        return None;
    }
    Some(AuditedUnsafe {
        reason: reason(&source.text).unwrap_or_default(),
        proofs: places
            .into_iter()
            .map(|at| (around(&lines, at), proof(&lines, at)))
            .collect(),
    })
}

/// Whether the line is a block, an implementation or an attribute. An `unsafe fn` alone needs no safety comment.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let in_text = before.matches('"').count() % 2 == 1;
        let starts = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let kinds = [" {", " impl", " extern", "("];
        starts && !in_text && kinds.iter().any(|kind| after.starts_with(kind))
    })
}

/// Returns the reason of the first `#[expect(unsafe_code, reason = "…")]`.
fn reason(text: &str) -> Option<String> {
    let (_, after) = text.split_once("unsafe_code,")?;
    let (_, reason) = after.split_once("reason = \"")?;
    Some(reason.split_once('"')?.0.to_owned())
}

/// Returns the function or the implementation that contains a line.
fn around(lines: &[&str], at: usize) -> String {
    let name = |line: &&str| {
        let line = line.trim_start();
        if line.starts_with("//") {
            return None;
        }
        if let Some((_, rest)) = line.split_once("fn ") {
            return rest
                .split(['(', '<'])
                .next()
                .map(|name| format!("`{name}`"));
        }
        let (_, rest) = line.split_once("unsafe impl ")?;
        Some(format!("`{}`", rest.split(" {").next().unwrap_or(rest)))
    };
    lines[..=at]
        .iter()
        .rev()
        .find_map(name)
        .unwrap_or_else(|| "the module".into())
}

/// Returns the comment that begins with `SAFETY:`, at most a few lines above. A statement can begin in between.
fn proof(lines: &[&str], at: usize) -> String {
    const FAR: usize = 12;
    let marked = |line: &&str| line.trim_start().starts_with("// SAFETY:");
    let above = &lines[at.saturating_sub(FAR)..at];
    let Some(begin) = above.iter().rposition(marked) else {
        return String::new();
    };
    let comment = above[begin..]
        .iter()
        .map_while(|line| line.trim_start().strip_prefix("//"));
    let words: Vec<&str> = comment.flat_map(str::split_whitespace).skip(1).collect();
    words.join(" ")
}

fn page(files: &BTreeMap<String, AuditedUnsafe>) -> String {
    let mut page = String::from(
        "# Unsafe code\n\nThis page lists all unsafe code, each piece with its safety comment. `cargo xtask lint --update` writes this page, and \
         `lint` fails when it is out of date,\nso that a reviewer sees new unsafe code. A published crate has at most one module with unsafe code.\n",
    );
    for (path, AuditedUnsafe { reason, proofs }) in files {
        let _infallible = write!(page, "\n## {path}\n\nBecause {reason}.\n\n");
        for (name, proof) in proofs {
            let _infallible = writeln!(page, "- {name}: {proof}");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    // `UNSAFE` is replaced later, since this lint also reads this file.
    const MODULE: &str = r#"#![expect(
    unsafe_code,
    reason = "there is no other way"
)]

/// Not an UNSAFE { thing }.
fn stop(code: u8) -> ! {
    // SAFETY: it has no
    // preconditions.
    let gone =
        UNSAFE { libc::_exit(code.into()) };
    let text = "UNSAFE { }";
}

// SAFETY: only constants.
UNSAFE impl Send for Pointers {}
"#;

    #[test]
    fn p52b_each_unsafe_block_is_found_with_its_function_and_safety_comment() {
        let source = Source {
            path: "crates/a/src/sys.rs".into(),
            text: MODULE.replace("UNSAFE", "unsafe"),
        };
        let audited = audit(&source).unwrap();
        assert_eq!(audited.reason, "there is no other way");
        let pair = |name: &str, proof: &str| (name.to_owned(), proof.to_owned());
        assert_eq!(
            audited.proofs,
            [
                pair("`stop`", "it has no preconditions."),
                pair("`Send for Pointers`", "only constants.")
            ]
        );
    }

    #[test]
    fn p52b_unsafe_in_a_string_or_name_is_not_code() {
        for line in [
            "// WORD { }",
            "let x = \"WORD { }\";",
            "WORD_code,",
            "'WORD-inline'",
            "WORD fn alloc()",
        ] {
            assert!(!is_unsafe(&line.replace("WORD", "unsafe")), "{line}");
        }
        for line in [
            "WORD {",
            "#[WORD(no_mangle)]",
            "f(WORD { x })",
            "WORD extern \"C\" {",
        ] {
            assert!(is_unsafe(&line.replace("WORD", "unsafe")), "{line}");
        }
    }
}
