//! Refuses a group of more than two modules that import each other, directly or through others: such modules can only be read, moved and tested
//! together.
//!
//! An import is a path to a name, in a `use`, in the code or in an attribute. It leads to the module that defines the name, also through a re-export
//! or a glob. Two modules may import each other (a parent and its child often do). The lint checks each target of a package separately. Imports of
//! test code don't count in a library or program; in a test target, everything counts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::lint::shipped;
use crate::workspace::{Root, Workspace};

/// The maximum number of re-exports on the way to a name.
const RE_EXPORTS: usize = 16;

/// The keywords before the name that they define.
const DEFINES: [&str; 9] = [
    "fn",
    "struct",
    "enum",
    "union",
    "trait",
    "type",
    "const",
    "static",
    "macro_rules",
];

/// The path of a module below the root of the target.
type ModulePath = Vec<String>;

/// Names the groups of each target: groups of files, and groups of top modules with their whole directories.
pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in &workspace.packages {
        for root in &package.roots {
            let file = root.file.strip_prefix(&workspace.root);
            let target = format!(
                "{} ({})",
                package.name,
                file.unwrap_or(&root.file).display()
            );
            let (house, unread) = TargetModules::read(root);
            wrong.extend(unread.iter().map(|why| format!("{target}: {why}")));
            let groups = [house.groups(), house.tops().groups()];
            for group in groups.iter().flatten() {
                wrong.push(format!("{target}: modules import each other in a cycle"));
                wrong.extend(group.lines());
            }
        }
    }
    wrong
}

/// The modules of a target and their imports.
#[derive(Debug, Default)]
struct TargetModules {
    /// For each module, the modules that it imports from, each with one of the names.
    imports: BTreeMap<String, BTreeMap<String, String>>,
}

/// Modules that import each other, directly or through others, and these imports.
#[derive(Debug)]
struct Group {
    modules: BTreeSet<String>,
    imports: Vec<String>,
}

impl Group {
    fn lines(&self) -> impl Iterator<Item = String> {
        let modules: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        let all = format!("  {} modules: {}", modules.len(), modules.join(", "));
        let imports = self.imports.iter().map(|line| format!("    {line}"));
        std::iter::once(all).chain(imports)
    }
}

impl TargetModules {
    /// Reads a target. Also returns an error for each module that it could not read.
    fn read(root: &Root) -> (Self, Vec<String>) {
        let mut reading = TargetSource {
            is_test: root.is_test,
            ..TargetSource::default()
        };
        let folder = root.file.parent().unwrap_or(&root.file);
        reading.module(&root.file, folder, &Vec::new());
        (Self::of(&reading.modules), reading.unread)
    }

    fn of(modules: &Modules) -> Self {
        let mut house = Self::default();
        for (path, module) in modules {
            let imports = house.imports.entry(named(path)).or_default();
            let mut note = |found: Option<PathTarget>| {
                if let Some(PathTarget::Name(of, name)) = found
                    && of != *path
                {
                    imports.entry(named(&of)).or_insert(name);
                }
            };
            for used in &module.used {
                note(find(modules, path, used, 0));
            }
            let own = |word: &str| {
                module.defined.contains(word)
                    || module.names.contains_key(word)
                    || module.children.contains_key(word)
            };
            for word in module.words.iter().filter(|word| !own(word)) {
                note(through_globs(modules, path, word, 0));
            }
        }
        house
    }

    /// Returns the same graph, with each top module and its whole directory as one node.
    fn tops(&self) -> Self {
        let top = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
        let mut tops = Self::default();
        for (from, imports) in &self.imports {
            let merged = tops.imports.entry(top(from)).or_default();
            for (to, name) in imports {
                if top(to) != top(from) {
                    let name = format!("{name} ({from} from {to})");
                    merged.entry(top(to)).or_insert(name);
                }
            }
        }
        tops
    }

    /// Returns the groups of more than two modules in which each module reaches each other one.
    fn groups(&self) -> Vec<Group> {
        let reach: BTreeMap<&str, BTreeSet<&str>> = self
            .imports
            .keys()
            .map(|module| (module.as_str(), self.reached_from(module)))
            .collect();
        let mut groups: Vec<Group> = Vec::new();
        for module in self.imports.keys() {
            if groups.iter().any(|group| group.modules.contains(module)) {
                continue;
            }
            let both = reach[module.as_str()].iter();
            let both = both.filter(|other| reach[**other].contains(module.as_str()));
            let modules: BTreeSet<String> = both.map(|name| (*name).to_owned()).collect();
            if modules.len() > 2 {
                let imports = self.within(&modules);
                groups.push(Group { modules, imports });
            }
        }
        groups
    }

    /// Returns the imports between these modules.
    fn within(&self, modules: &BTreeSet<String>) -> Vec<String> {
        let mut lines = Vec::new();
        for from in modules {
            for (to, name) in self.imports.get(from).into_iter().flatten() {
                if modules.contains(to) {
                    lines.push(format!("{from} imports {name} from {to}"));
                }
            }
        }
        lines
    }

    fn next(&self, module: &str) -> impl Iterator<Item = &str> {
        let imports = self.imports.get(module).into_iter();
        imports.flat_map(|imports| imports.keys().map(String::as_str))
    }

    fn reached_from(&self, module: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = self.next(module).collect();
        while let Some(module) = open.pop() {
            if reached.insert(module) {
                open.extend(self.next(module));
            }
        }
        reached
    }
}

fn named(path: &[String]) -> String {
    if path.is_empty() {
        return "the crate root".into();
    }
    path.join("::")
}

type Modules = BTreeMap<ModulePath, Module>;

/// A file: its definitions, its imports, and its names for the imports.
#[derive(Debug, Default)]
struct Module {
    /// Whether test code counts.
    is_test: bool,
    /// The modules in other files, with the `#[path]` of each.
    children: BTreeMap<String, Option<String>>,
    /// The modules in other files that an inline `mod … { }` of this file declares.
    nested: BTreeSet<String>,
    defined: BTreeSet<String>,
    /// The single words, which a glob may have imported.
    words: BTreeSet<String>,
    /// The paths in the file.
    used: BTreeSet<ModulePath>,
    /// The full paths of the names that its `use` lines import.
    names: BTreeMap<String, ModulePath>,
    /// The modules and enums of its glob imports.
    globs: BTreeSet<ModulePath>,
}

/// The target of a path.
enum PathTarget {
    Module(ModulePath),
    /// A name, and the module that defines it.
    Name(ModulePath, String),
}

/// Follows a path in a module. Returns `None` for a path into another crate.
fn find(
    modules: &Modules,
    standing_in: &[String],
    path: &[String],
    re_exports: usize,
) -> Option<PathTarget> {
    let (first, mut rest) = path.split_first()?;
    let mut at = standing_in.to_vec();
    match first.as_str() {
        "crate" => at.clear(),
        "super" => drop(at.pop()?),
        "self" => {}
        name => {
            let here = modules.get(&at)?;
            if !here.children.contains_key(name) && !here.names.contains_key(name) {
                return match through_globs(modules, &at, name, re_exports)? {
                    PathTarget::Module(module) if !rest.is_empty() => {
                        let path = [&["self".to_owned()], rest].concat();
                        find(modules, &module, &path, re_exports + 1)
                    }
                    found => Some(found),
                };
            }
            rest = path;
        }
    }
    while let Some((name, further)) = rest.split_first() {
        if name == "super" {
            at.pop()?;
        } else if modules.get(&at)?.children.contains_key(name) {
            at.push(name.clone());
        } else {
            let renamed = modules[&at]
                .names
                .get(name)
                .filter(|_| re_exports < RE_EXPORTS);
            let found = match renamed {
                Some(path) => find(modules, &at, path, re_exports + 1),
                None => through_globs(modules, &at, name, re_exports),
            };
            match found {
                Some(PathTarget::Module(module)) => at = module,
                Some(name) => return Some(name),
                None => return Some(PathTarget::Name(at, name.clone())),
            }
        }
        rest = further;
    }
    Some(PathTarget::Module(at))
}

/// Finds a name that a module gets through a glob, and doesn't define itself.
fn through_globs(
    modules: &Modules,
    at: &[String],
    name: &str,
    re_exports: usize,
) -> Option<PathTarget> {
    let here = modules.get(at)?;
    if here.defined.contains(name) || re_exports >= RE_EXPORTS {
        return None;
    }
    here.globs.iter().find_map(|glob| {
        let PathTarget::Module(of) = find(modules, at, glob, re_exports + 1)? else {
            return None;
        };
        let module = modules.get(&of)?;
        if module.defined.contains(name) {
            return Some(PathTarget::Name(of, name.to_owned()));
        }
        if module.children.contains_key(name) || module.names.contains_key(name) {
            let path = ["self".to_owned(), name.to_owned()];
            return find(modules, &of, &path, re_exports + 1);
        }
        through_globs(modules, &of, name, re_exports + 1)
    })
}

/// The modules of a target read so far.
#[derive(Debug, Default)]
struct TargetSource {
    is_test: bool,
    modules: Modules,
    unread: Vec<String>,
}

impl TargetSource {
    /// Reads a file, and recursively the modules that it declares, which are in this directory.
    fn module(&mut self, file: &Path, folder: &Path, path: &[String]) {
        let module = fs::read_to_string(file)
            .ok()
            .and_then(|text| Module::of(&text, self.is_test));
        let Some(module) = module else {
            self.unread.push(format!("can't read {}", file.display()));
            return;
        };
        let nested = module.nested.iter();
        self.unread.extend(nested.map(|name| {
            format!("can't find `mod {name};` inside another module of {}: move that module to its own file", file.display())
        }));
        let children = module.children.clone();
        self.modules.insert(path.to_vec(), module);
        for (child, place) in children {
            let inner = folder.join(&child);
            let files: Vec<(PathBuf, PathBuf)> = match place {
                Some(place) => {
                    let file = file.parent().unwrap_or(folder).join(place);
                    let beside = file.parent().unwrap_or(folder).to_owned();
                    vec![(file, beside)]
                }
                None => vec![
                    (folder.join(format!("{child}.rs")), inner.clone()),
                    (inner.join("mod.rs"), inner),
                ],
            };
            match files.iter().find(|(file, _)| file.is_file()) {
                Some((file, folder)) => {
                    self.module(file, folder, &[path, &[child]].concat());
                }
                None => {
                    let why = format!("`mod {child};` of {} has no file", file.display());
                    self.unread.push(why);
                }
            }
        }
    }
}

impl Module {
    fn of(text: &str, is_test: bool) -> Option<Self> {
        let mut module = Self {
            is_test,
            ..Self::default()
        };
        let tokens: TokenStream = text.parse().ok()?;
        module.read(tokens, 0, true);
        Some(module)
    }

    /// Reads a part of a file that is `inside` this many inline modules. `at_top` states whether its items belong to the module of the file.
    fn read(&mut self, tokens: TokenStream, inside: usize, at_top: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        let mut place = None;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let inner = matches!(rest.first(), Some(token) if is_mark(token, '!'));
                    rest = &rest[usize::from(inner)..];
                    let Some((TokenTree::Group(group), after)) = rest.split_first() else {
                        continue;
                    };
                    rest = after;
                    match self.read_attribute(group.stream(), inside) {
                        Attribute::ForTests if inner => return,
                        Attribute::ForTests => rest = behind_item(rest),
                        Attribute::Path(path) => place = Some(path),
                        Attribute::Other => {}
                    }
                }
                TokenTree::Ident(word) if word == "mod" => {
                    rest = self.read_mod(rest, inside, place.take());
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = rest.iter().position(|token| is_mark(token, ';'));
                    let end = end.unwrap_or(rest.len());
                    self.read_use(&rest[..end], &Vec::new(), inside);
                    rest = &rest[end..];
                }
                TokenTree::Ident(word) if word == "in" => {
                    // `pub(in path)` imports nothing. In a `for` loop, the path still begins after the next token.
                    if let Some((TokenTree::Ident(next), _)) = rest.split_first()
                        && next == "crate"
                    {
                        rest = behind_path(rest).1;
                    }
                }
                TokenTree::Ident(word) => {
                    let (more, after) = behind_more(rest);
                    rest = after;
                    let word = word.to_string();
                    if !more.is_empty() {
                        self.take([vec![word], more].concat(), inside);
                    } else if inside == 0 {
                        if at_top && DEFINES.contains(&word.as_str()) {
                            let name = rest.iter().find_map(|token| match token {
                                TokenTree::Ident(name) => Some(name.to_string()),
                                _ => None,
                            });
                            self.defined.extend(name);
                        }
                        self.words.insert(word);
                    }
                }
                TokenTree::Group(group) => self.read(group.stream(), inside, false),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// Reads an attribute. It can contain paths, also in strings, as in `serde(with = "crate::a::b")`.
    fn read_attribute(&mut self, attribute: TokenStream, inside: usize) -> Attribute {
        let word = attribute.clone().into_iter().next();
        let word = word.map(|word| word.to_string()).unwrap_or_default();
        match word.as_str() {
            // These contain texts for people.
            "doc" | "expect" | "allow" | "error" => return Attribute::Other,
            "test" if !self.is_test => return Attribute::ForTests,
            "cfg" if !self.is_test && shipped::is_test(attribute.clone()) => {
                return Attribute::ForTests;
            }
            "path" => {
                let text = attribute.into_iter().nth(2);
                let text = text.map(|text| text.to_string()).unwrap_or_default();
                return Attribute::Path(text.trim_matches('"').to_owned());
            }
            _ => {}
        }
        for text in texts(attribute.clone()) {
            let is_path = |text: &str| {
                text.contains("::")
                    && text
                        .chars()
                        .all(|c| c == '_' || c == ':' || c.is_alphanumeric())
            };
            if is_path(&text)
                && let Ok(tokens) = text.parse()
            {
                self.read(tokens, inside, false);
            }
        }
        self.read(attribute, inside, false);
        Attribute::Other
    }

    fn read_mod<'a>(
        &mut self,
        rest: &'a [TokenTree],
        inside: usize,
        place: Option<String>,
    ) -> &'a [TokenTree] {
        match rest {
            [TokenTree::Ident(name), TokenTree::Punct(_), after @ ..] => {
                if inside == 0 {
                    self.children.insert(name.to_string(), place);
                } else {
                    self.nested.insert(name.to_string());
                }
                after
            }
            [TokenTree::Ident(_), TokenTree::Group(body), after @ ..] => {
                self.read(body.stream(), inside + 1, false);
                after
            }
            _ => rest,
        }
    }

    fn read_use(&mut self, tokens: &[TokenTree], before: &ModulePath, inside: usize) {
        let mut path = before.clone();
        let mut name = None;
        let mut rest = tokens;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    name = after.first().map(ToString::to_string);
                    break;
                }
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in inner.split(|token| is_mark(token, ',')) {
                        if !part.is_empty() {
                            self.read_use(part, &path, inside);
                        }
                    }
                    return;
                }
                TokenTree::Punct(mark) if mark.as_char() == '*' => {
                    let of = seen_from_file(path.clone(), inside);
                    path.push("*".into());
                    self.take(path, inside);
                    self.globs.insert(of);
                    return;
                }
                _ => {}
            }
        }
        let name = name.or_else(|| path.last().cloned());
        if let Some(path) = self.take(path, inside)
            && let Some(name) = name
        {
            self.names.insert(name, path);
        }
    }

    /// Records a path, and returns it relative to the file's own module.
    fn take(&mut self, path: ModulePath, inside: usize) -> Option<ModulePath> {
        let path = seen_from_file(path, inside);
        self.used.insert(path.clone());
        // `use a;` of a child or a crate adds nothing.
        (path.len() > 1).then_some(path)
    }
}

/// The meaning of an attribute for this lint.
enum Attribute {
    /// It limits its item to tests.
    ForTests,
    /// The file of a module.
    Path(String),
    Other,
}

/// Converts a path that is `inside` this many inline modules to the view of the file's own module.
fn seen_from_file(path: ModulePath, inside: usize) -> ModulePath {
    let above = path.iter().take_while(|name| *name == "super").count();
    match (inside, above) {
        (0, _) | (_, 0) => path,
        (_, above) if above > inside => path[inside..].to_vec(),
        (_, above) => [&["self".to_owned()], &path[above..]].concat(),
    }
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

/// Returns the strings in an attribute, without their quotes.
fn texts(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Literal(text) => found.push(text.to_string().trim_matches('"').to_owned()),
            TokenTree::Group(group) => found.extend(texts(group.stream())),
            _ => {}
        }
    }
    found
}

/// Returns the tokens after an item, a field or a statement with its attributes.
fn behind_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let is_word = |token: &TokenTree, words: &[&str]| matches!(token, TokenTree::Ident(word) if words.iter().any(|known| word == known));
    let mut rest = tokens;
    loop {
        match rest {
            [mark, TokenTree::Group(_), after @ ..] if is_mark(mark, '#') => rest = after,
            [word, TokenTree::Group(_), after @ ..] if is_word(word, &["pub"]) => rest = after,
            [word, after @ ..] if is_word(word, &["pub"]) => rest = after,
            _ => break,
        }
    }
    let is_use = rest.first().is_some_and(|first| is_word(first, &["use"]));
    let (mut angles, mut before) = (0_i32, ' ');
    for (at, token) in rest.iter().enumerate() {
        let mark = match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => {
                return &rest[at + 1..];
            }
            TokenTree::Punct(mark) => mark.as_char(),
            _ => ' ',
        };
        match mark {
            ';' => return &rest[at + 1..],
            ',' if angles <= 0 => return &rest[at + 1..],
            '<' => angles += 1,
            '>' if before != '-' && before != '=' => angles -= 1,
            _ => {}
        }
        before = mark;
    }
    &[]
}

/// Splits a path of words joined by `::` from the following tokens.
fn behind_path(tokens: &[TokenTree]) -> (ModulePath, &[TokenTree]) {
    match tokens.split_first() {
        Some((TokenTree::Ident(word), rest)) => {
            let (more, rest) = behind_more(rest);
            ([vec![word.to_string()], more].concat(), rest)
        }
        _ => (Vec::new(), tokens),
    }
}

/// Returns the words that follow, each after a `::`.
fn behind_more(mut tokens: &[TokenTree]) -> (ModulePath, &[TokenTree]) {
    let mut path = Vec::new();
    while let [colon, other, TokenTree::Ident(word), rest @ ..] = tokens
        && is_mark(colon, ':')
        && is_mark(other, ':')
    {
        path.push(word.to_string());
        tokens = rest;
    }
    (path, tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds the graph of modules, each with its path and its text.
    fn graph_of(files: &[(&str, &str)]) -> TargetModules {
        let read = |(path, text): &(&str, &str)| {
            let module = Module::of(text, false).unwrap();
            let path = path.split("::").filter(|name| !name.is_empty());
            (path.map(Into::into).collect::<ModulePath>(), module)
        };
        TargetModules::of(&files.iter().map(read).collect())
    }

    fn imports(house: &TargetModules, module: &str) -> Vec<String> {
        house.imports[module].keys().cloned().collect()
    }

    #[test]
    fn a_path_leads_to_the_module_that_defines_the_name() {
        let house = graph_of(&[
            ("", "mod a; mod b; mod c; pub use a::inner::Deep; use b::B;"),
            (
                "a",
                "pub mod inner; use super::b; fn f() { b::g(); inner::h() }",
            ),
            (
                "a::inner",
                "pub struct Deep; use crate::c::{self, C as Other}; fn h() { Other::new(); c::two() }",
            ),
            (
                "b",
                "use crate::Deep; use std::fmt; impl fmt::Debug for Deep {}",
            ),
            (
                "c",
                "pub(in crate::b) struct C; mod part { use super::super::a::inner as i; fn x() { i::Deep; } }",
            ),
        ]);
        assert_eq!(imports(&house, "the crate root"), ["a::inner", "b"]);
        assert_eq!(imports(&house, "a"), ["a::inner", "b"]);
        assert_eq!(imports(&house, "a::inner"), ["c"]);
        assert_eq!(imports(&house, "b"), ["a::inner"]);
        assert_eq!(imports(&house, "c"), ["a::inner"]);
    }

    #[test]
    fn imports_of_tests_do_not_count() {
        let house = graph_of(&[
            ("", "mod a; mod b;"),
            (
                "a",
                "#[cfg(test)] use crate::b::{B, C}; #[cfg(test)] mod tests { use crate::b::B; } #[test] fn t() { crate::b::f() } #[cfg(not(test))] fn real() {}",
            ),
            ("b", "use crate::a::A;"),
        ]);
        assert!(imports(&house, "a").is_empty());
        assert_eq!(imports(&house, "b"), ["a"]);
    }

    #[test]
    fn a_condition_that_also_holds_outside_of_tests_counts() {
        let house = graph_of(&[
            ("", "mod a; mod b;"),
            (
                "a",
                r#"#[cfg(any(test, feature = "test-util"))] use crate::b::B;"#,
            ),
            (
                "b",
                r#"#[cfg(all(test, feature = "test-util"))] use crate::a::A;"#,
            ),
        ]);
        assert_eq!(imports(&house, "a"), ["b"]);
        assert!(imports(&house, "b").is_empty());
    }

    #[test]
    fn import_after_test_only_item_counts() {
        for text in [
            "#[cfg(test)] mod t { } use crate::b::B;",
            "#[cfg(test)] pub(crate) fn f<A, B>(a: A) -> HashMap<A, B> { } use crate::b::B;",
            "#[cfg(test)] #[expect(x)] use crate::c::{C, D}; use crate::b::B;",
            "struct A { #[cfg(test)] c: HashMap<crate::c::C, u8>, b: crate::b::B }",
        ] {
            let house = graph_of(&[("", "mod a; mod b; mod c;"), ("a", text), ("b", "")]);
            assert_eq!(imports(&house, "a"), ["b"], "{text}");
        }
    }

    #[test]
    fn path_in_an_attribute_is_an_import_and_prose_is_not() {
        let house = graph_of(&[
            ("", "mod a; mod b; mod c;"),
            (
                "a",
                r#"struct A { #[serde(with = "crate::b::ids")] #[expect(x, reason = "crate::c::C")] a: u8 }
                #[doc = "crate::c::C"] #[derive(crate::b::Make)] #[arg(help = "see crate::c::C")] struct B;"#,
            ),
            ("b", ""),
            ("c", ""),
        ]);
        assert_eq!(imports(&house, "a"), ["b"]);
    }

    #[test]
    fn glob_resolves_to_the_modules_that_define_its_names() {
        let house = graph_of(&[
            ("", "mod a; mod b; mod c; mod d; mod e;"),
            ("a", "use crate::b::*; fn f(one: C, two: D) { d::g() }"),
            (
                "b",
                "pub use crate::c::C; pub use crate::d::*; pub use crate::d; pub use crate::e::E;",
            ),
            ("c", "pub struct C;"),
            ("d", "pub struct D; pub fn g() {}"),
            ("e", "use crate::b::*; struct C; fn f() -> C { E }"),
        ]);
        assert_eq!(imports(&house, "a"), ["b", "c", "d"]);
        assert_eq!(imports(&house, "e"), ["b"], "its own C hides the C of b");
    }

    #[test]
    fn each_root_is_read_and_missing_module_file_is_named() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = place.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(
            "it/main.rs",
            "mod a; mod b; #[path = \"../other/c.rs\"] mod c;",
        );
        write("it/a.rs", "#[test] fn t() { crate::b::f() }");
        write("it/b.rs", "use crate::c::C; mod gone; mod x { mod inner; }");
        write("other/c.rs", "use crate::a::A;");
        let read = |is_test| {
            let file = place.path().join("it/main.rs");
            TargetModules::read(&Root { file, is_test })
        };
        let (house, unread) = read(true);
        assert_eq!(house.groups().len(), 1);
        assert_eq!(unread.len(), 2, "{unread:?}");
        assert!(unread[0].contains("`mod inner;`") && unread[1].contains("`mod gone;`"));
        assert!(
            read(false).0.groups().is_empty(),
            "the test counts only in a test"
        );
    }

    #[test]
    fn two_modules_that_import_each_other_pass_and_three_do_not() {
        let pair = graph_of(&[
            ("", "mod a; mod b;"),
            ("a", "mod x; use x::X;"),
            ("a::x", "use super::A;"),
            ("b", "use crate::a::A;"),
        ]);
        assert!(pair.groups().is_empty());
        let ring = graph_of(&[
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C; use crate::d::D;"),
            ("c", "use crate::a::A;"),
            ("d", ""),
        ]);
        let groups = ring.groups();
        assert_eq!(groups.len(), 1);
        let lines: Vec<String> = groups[0].lines().collect();
        assert_eq!(
            lines,
            [
                "  3 modules: a, b, c",
                "    a imports B from b",
                "    b imports C from c",
                "    c imports A from a"
            ]
        );
        let star = graph_of(&[
            ("", "mod a;"),
            ("a", "mod x; mod y; use x::X; use y::Y;"),
            ("a::x", "use super::A;"),
            ("a::y", "use super::A;"),
        ]);
        assert_eq!(star.groups().len(), 1, "x and y, each by way of a");
    }

    #[test]
    fn top_modules_include_their_directories() {
        let house = graph_of(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "pub mod x; pub mod y;"),
            ("a::x", "use crate::b::B;"),
            ("a::y", ""),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::y::Y;"),
        ]);
        assert!(house.groups().is_empty());
        let tops = house.tops().groups();
        assert_eq!(tops.len(), 1);
        assert_eq!(tops[0].modules.len(), 3);
    }
}
