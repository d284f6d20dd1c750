//! Reads the paths, methods and imports of a source outside of its test code. Comments are no tokens, and a string is one token. Arguments of macros
//! are tokens like others.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec::IntoIter;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

type Tokens = Peekable<IntoIter<TokenTree>>;

/// The names in a source outside of its test code.
#[derive(Debug, Default)]
pub(crate) struct ShippedNames {
    /// Each path as written, with its line.
    pub(crate) paths: Vec<(Vec<String>, usize)>,
    /// Each called function, with its arguments without spaces, and its line.
    pub(crate) calls: Vec<(Vec<String>, String, usize)>,
    /// Each called method, with its line.
    pub(crate) methods: Vec<(String, usize)>,
    /// The full paths that a name may have by a `use`.
    pub(crate) imports: BTreeMap<String, Vec<Vec<String>>>,
    /// The modules in other files that exist only for tests.
    pub(crate) test_modules: Vec<Module>,
}

/// `mod NAME;`, with its `#[path = "…"]`.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) path: Option<String>,
}

pub(crate) fn seen(tokens: TokenStream) -> ShippedNames {
    let mut seen = ShippedNames::default();
    seen.read(tokens);
    seen
}

impl ShippedNames {
    fn read(&mut self, tokens: TokenStream) {
        let mut tokens = peekable(tokens);
        let mut after_dot = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(ref mark) if mark.as_char() == '#' => {
                    let inner = take_mark(&mut tokens, '!');
                    let Some(TokenTree::Group(group)) = tokens.peek() else {
                        continue;
                    };
                    let is_test = is_test(group.stream());
                    match (is_test, inner) {
                        (true, true) => return,
                        (true, false) => self.skip_item(&mut tokens),
                        (false, _) => drop(tokens.next()),
                    }
                }
                TokenTree::Ident(ref name) if name == "use" && !at_mark(&mut tokens, '<') => {
                    let is_end =
                        |it: &TokenTree| matches!(it, TokenTree::Punct(p) if p.as_char() == ';');
                    let tree: Vec<_> =
                        std::iter::from_fn(|| tokens.next_if(|it| !is_end(it))).collect();
                    self.import(&mut tree.into_iter().peekable(), Vec::new());
                }
                TokenTree::Ident(name) => {
                    let line = name.span().start().line;
                    let mut path = vec![name.to_string()];
                    while let Some(next) = take_segment(&mut tokens) {
                        path.push(next);
                    }
                    if let Some(TokenTree::Group(group)) = tokens.peek()
                        && !after_dot
                        && group.delimiter() == Delimiter::Parenthesis
                    {
                        let with = group.stream().to_string();
                        let with = with.split_whitespace().collect();
                        self.calls.push((path.clone(), with, line));
                    }
                    let is_call = matches!(tokens.peek(), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis);
                    match after_dot {
                        true if is_call => self.methods.push((path.remove(0), line)),
                        true => {}
                        false => self.paths.push((path, line)),
                    }
                    after_dot = false;
                    continue;
                }
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Punct(mark) if mark.as_char() == '.' => {
                    // Not the second dot of a range.
                    after_dot = !at_mark(&mut tokens, '.') && !after_dot;
                    continue;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            after_dot = false;
        }
    }

    /// Skips the other attributes and the item, field or statement below `#[cfg(test)]`.
    fn skip_item(&mut self, tokens: &mut Tokens) {
        let (mut path, mut name, mut is_module) = (None, None, false);
        let mut angles = 0_i32;
        let mut before = ' ';
        for token in tokens.by_ref() {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
                TokenTree::Group(group) if before == '#' => path = path.or(path_of(group.stream())),
                TokenTree::Ident(word) if word == "mod" => is_module = true,
                TokenTree::Ident(word) if is_module => name = Some(word.to_string()),
                TokenTree::Punct(mark) => {
                    match mark.as_char() {
                        ';' => break,
                        ',' if angles <= 0 => break,
                        '<' => angles += 1,
                        '>' if before != '-' && before != '=' => angles -= 1,
                        _ => {}
                    }
                    before = mark.as_char();
                    continue;
                }
                _ => {}
            }
            before = ' ';
        }
        if let Some(name) = name {
            self.test_modules.push(Module { name, path });
        }
    }

    /// Reads the part after `use`, or one part of its braces.
    fn import(&mut self, tree: &mut Tokens, prefix: Vec<String>) {
        let mut path = prefix.clone();
        let mut renamed = None;
        while let Some(token) = tree.next() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    renamed = tree.next().map(|it| it.to_string());
                }
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) => {
                    self.import(&mut peekable(group.stream()), path.clone());
                    path.clear();
                }
                TokenTree::Punct(mark) if mark.as_char() == ',' => {
                    self.imported(std::mem::replace(&mut path, prefix.clone()), renamed.take());
                }
                TokenTree::Punct(mark) if mark.as_char() == '*' => {
                    path.push("*".into());
                    // The names of a glob import are unknown, so the path counts as used.
                    self.paths.push((path.clone(), mark.span().start().line));
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if path != prefix || prefix.is_empty() {
            self.imported(path, renamed);
        }
    }

    fn imported(&mut self, path: Vec<String>, renamed: Option<String>) {
        if let Some(name) = renamed.or_else(|| path.last().cloned()) {
            self.imports.entry(name).or_default().push(path);
        }
    }
}

fn peekable(tokens: TokenStream) -> Tokens {
    tokens
        .into_iter()
        .collect::<Vec<_>>()
        .into_iter()
        .peekable()
}

fn at_mark(tokens: &mut Tokens, mark: char) -> bool {
    matches!(tokens.peek(), Some(TokenTree::Punct(it)) if it.as_char() == mark)
}

fn take_mark(tokens: &mut Tokens, mark: char) -> bool {
    let taken = at_mark(tokens, mark);
    if taken {
        tokens.next();
    }
    taken
}

/// Consumes `::` and the name after it.
fn take_segment(tokens: &mut Tokens) -> Option<String> {
    let mut ahead = tokens.clone();
    let found = take_mark(&mut ahead, ':') && take_mark(&mut ahead, ':');
    match ahead.next() {
        Some(TokenTree::Ident(name)) if found => {
            *tokens = ahead;
            Some(name.to_string())
        }
        _ => None,
    }
}

/// Whether an attribute limits its item to tests: `cfg(test)`, or `cfg(all(test, …))`.
pub(crate) fn is_test(attribute: TokenStream) -> bool {
    let mut tokens = peekable(attribute);
    let is_cfg = matches!(tokens.next(), Some(TokenTree::Ident(it)) if it == "cfg");
    matches!(tokens.next(), Some(TokenTree::Group(it)) if is_cfg && needs_test(it.stream()))
}

fn needs_test(condition: TokenStream) -> bool {
    let mut tokens = peekable(condition);
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(it) if it == "test" => return true,
            TokenTree::Ident(it) if it == "all" => {}
            // `any(…)` and `not(…)` also hold outside of tests.
            TokenTree::Ident(_) => drop(tokens.next_if(|it| matches!(it, TokenTree::Group(_)))),
            TokenTree::Group(group) if needs_test(group.stream()) => return true,
            _ => {}
        }
    }
    false
}

/// Returns the text of `#[path = "…"]`.
fn path_of(attribute: TokenStream) -> Option<String> {
    let mut tokens = peekable(attribute);
    let is_path = matches!(tokens.next(), Some(TokenTree::Ident(it)) if it == "path");
    match tokens.nth(1) {
        Some(TokenTree::Literal(text)) if is_path => {
            Some(text.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}
