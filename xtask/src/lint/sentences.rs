//! Refuses sentences without a concrete subject in comments, headings, documents, help and messages: a sentence names the doer, and does not open
//! with "Who", "What", "Nobody" or "One that". Questions may.

use std::str::FromStr as _;

use proc_macro2::{TokenStream, TokenTree};

use crate::sources::{self, Source};
use crate::workspace::Workspace;

/// The words that may not open a sentence, in lower case.
const OPENERS: [&[&str]; 7] = [
    &["who"],
    &["whoever"],
    &["what"],
    &["whatever"],
    &["nobody"],
    &["one", "that"],
    &["of", "what"],
];
/// A text with fewer words is a name, not a sentence.
const LEAST: usize = 3;

/// A piece of prose, with its first line.
#[derive(Debug, Clone)]
struct Passage {
    line: usize,
    text: String,
}

pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources::read(&workspace.root) {
        let mut passages = comments(&source.text);
        if source.path.starts_with("crates") && source.path.iter().any(|it| it == "src") {
            passages.extend(messages(&source.text));
        }
        wrong.extend(judge(&source, passages));
    }
    for source in sources::documents(&workspace.root) {
        wrong.extend(judge(&source, paragraphs(numbered(&source.text))));
    }
    wrong
}

fn judge(source: &Source, passages: Vec<Passage>) -> Vec<String> {
    let opened = passages.iter().flat_map(|passage| {
        let opened = sentences(&passage.text).filter(|it| opens_without_subject(it));
        opened.map(|it| (passage.line, it.chars().take(80).collect::<String>()))
    });
    let path = source.path.display();
    opened
        .map(|(line, text)| format!("{path}:{line}: name the doer first: {text}"))
        .collect()
}

fn opens_without_subject(sentence: &str) -> bool {
    // A placeholder stands for a value: its name is not a word of the sentence.
    if sentence.starts_with('{') {
        return false;
    }
    let words: Vec<String> = { sentence.split_whitespace() }
        .map(|it| {
            it.trim_matches(|c: char| !c.is_alphanumeric() && c != '\'')
                .to_lowercase()
        })
        .filter(|it| !it.is_empty())
        .collect();
    words.len() >= LEAST
        && !sentence
            .trim_end_matches(['"', '*', '_', ')'])
            .ends_with('?')
        && OPENERS
            .iter()
            .any(|it| it.iter().zip(&words).all(|(one, other)| one == other))
}

/// Splits at a full stop, a question mark or an exclamation mark before a space.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.trim().is_empty() {
            return None;
        }
        let end = { rest.match_indices(['.', '?', '!']) }
            .map(|(at, _)| at + 1)
            .find(|at| rest[*at..].starts_with(' '))
            .unwrap_or(rest.len());
        let (sentence, behind) = rest.split_at(end);
        rest = behind;
        Some(sentence.trim())
    })
}

/// Returns the prose of the comments of a source. Comments on consecutive lines are one text.
fn comments(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut block: Vec<(usize, &str)> = Vec::new();
    let mut marker = "";
    for (line, text) in numbered(text) {
        let found = { ["//!", "///", "//"].into_iter() }
            .find_map(|marker| Some((marker, text.trim_start().strip_prefix(marker)?)));
        match found {
            Some((its, said)) if its == marker => block.push((line, said)),
            Some((its, said)) => {
                passages.extend(paragraphs(block.drain(..)));
                (marker, block) = (its, vec![(line, said)]);
            }
            None => {
                passages.extend(paragraphs(block.drain(..)));
                marker = "";
            }
        }
    }
    passages.extend(paragraphs(block));
    passages
}

/// Returns the string literals of a source, except those of its doc comments.
fn messages(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    // A source that can't be parsed fails to compile, with a better error.
    if let Ok(tokens) = TokenStream::from_str(text) {
        literals(tokens, &mut passages);
    }
    passages
}

fn literals(tokens: TokenStream, passages: &mut Vec<Passage>) {
    let is_doc = |it: &TokenStream| matches!(it.clone().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc");
    for token in tokens {
        match token {
            TokenTree::Group(group) if !is_doc(&group.stream()) => {
                literals(group.stream(), passages);
            }
            TokenTree::Literal(literal) => {
                let line = literal.span().start().line;
                let text = literal.to_string();
                if text.starts_with(['"', 'r']) {
                    let text = text.trim_start_matches(['r', '#']).trim_matches(['"', '#']);
                    let lines = text.split("\\n").flat_map(str::lines);
                    passages.extend(lines.map(|it| Passage {
                        line,
                        text: it.to_owned(),
                    }));
                }
            }
            _ => {}
        }
    }
}

/// Returns the paragraphs, headings, list items and table cells of a Markdown text, without its code.
fn paragraphs<'a>(lines: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let (mut in_code, mut goes_on) = (false, false);
    for (line, text) in lines {
        let text = text.trim();
        if text.starts_with("```") {
            in_code = !in_code;
            goes_on = false;
            continue;
        }
        if in_code || text.is_empty() {
            goes_on = false;
            continue;
        }
        let cells = text.starts_with('|');
        let item = begins_item(text);
        match passages.last_mut() {
            Some(last) if goes_on && !cells && !item => {
                last.text.push(' ');
                last.text.push_str(text);
            }
            _ if cells => passages.extend(text.split('|').map(|cell| Passage {
                line,
                text: cell.trim().to_owned(),
            })),
            _ => passages.push(Passage {
                line,
                text: text.to_owned(),
            }),
        }
        goes_on = !cells && !text.starts_with('#');
    }
    passages
}

/// Whether a line begins a list item.
fn begins_item(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.starts_with("- ")
        || text.starts_with("* ")
        || (number.len() < text.len() && number.starts_with(". "))
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(file: &str, text: &str) -> usize {
        let source = Source {
            path: file.into(),
            text: text.into(),
        };
        let passages = match file.ends_with(".md") {
            true => paragraphs(numbered(text)),
            false => [comments(text), messages(text)].concat(),
        };
        judge(&source, passages).len()
    }

    #[test]
    fn sentence_without_concrete_subject_is_refused_everywhere() {
        for (file, text) in [
            ("a.rs", "/// Who takes no more gets no more.\nfn a() {}"),
            ("a.rs", "//! Reads a file. What is\n//! not known passes."),
            ("a.rs", "// One that hangs is ended.\n"),
            (
                "a.rs",
                "fn a() { print(\"who listens at {} does not answer\") }",
            ),
            ("a.rs", "#[error(\"nobody has the run\")]\nstruct A;"),
            ("a.md", "## What is kept\n"),
            ("a.md", "Text.\n\n- **Of what** is left, a list\n"),
            ("a.md", "| whoever stops it | `rlm stop` |\n"),
        ] {
            assert_eq!(count(file, text), 1, "{text}");
        }
    }

    #[test]
    fn lint_accepts_questions_names_code_and_words_inside_sentences() {
        for (file, text) in [
            ("a.rs", "/// Returns what the agent wrote, and who asked.\n"),
            ("a.rs", "fn a() { print(\"what shall the agent do?\") }"),
            ("a.rs", "fn a() { get(\"who\") }"),
            ("a.rs", "fn a() { format!(\"{what} is not a number\") }"),
            ("a.rs", "/// ```\n/// what is this\n/// ```\n"),
            ("a.md", "What is a checkpoint?\n"),
            ("a.md", "The run\nwhat follows is the same sentence.\n"),
        ] {
            assert_eq!(count(file, text), 0, "{text}");
        }
    }
}
