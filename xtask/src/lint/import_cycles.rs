//! Refuses modules that import each other in a circle of more than two: such modules can only be read, moved and tested together.
//!
//! An import is a path to a name, in a `use` or in the code, and leads to the module that defines the name, also through a re-export. Two modules may
//! import each other (a parent and its child often do). What only tests import does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::workspace::{Package, Workspace};

/// How many re-exports a name may go through.
const RE_EXPORTS: usize = 16;

/// Where a module stands below the crate's root.
type ModulePath = Vec<String>;

/// Names the circles of each crate: of files, and of top modules, which have their whole folder in them.
pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let judged = workspace.packages.iter().flat_map(|package| {
        let house = House::read(package);
        let circles = [house.circles(), house.tops().circles()];
        let lines = circles.iter().flatten().flat_map(|circle| {
            let first = format!("{}: modules import each other in a circle", package.name);
            std::iter::once(first).chain(circle.lines())
        });
        lines.collect::<Vec<_>>()
    });
    judged.collect()
}

/// The modules of a crate and who imports whom.
#[derive(Debug, Default)]
struct House {
    /// For each module, the modules that it imports from, with one of the names.
    imports: BTreeMap<String, BTreeMap<String, String>>,
}

/// Modules that import each other, directly or through others.
#[derive(Debug)]
struct Circle {
    modules: BTreeSet<String>,
    /// One way round through three or more of them: each with the name that it imports from the next.
    way: Vec<(String, String)>,
}

impl Circle {
    fn lines(&self) -> impl Iterator<Item = String> {
        let modules: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        let all = format!("  {} modules: {}", modules.len(), modules.join(", "));
        let next = self.way.iter().skip(1).chain(self.way.first());
        let way = self.way.iter().zip(next);
        let way = way.map(|((from, name), (to, _))| format!("    {from} takes {name} from {to}"));
        std::iter::once(all).chain(way)
    }
}

impl House {
    fn read(package: &Package) -> Self {
        let roots = ["src/lib.rs", "src/main.rs"].map(|file| package.folder.join(file));
        let Some(root) = roots.into_iter().find(|file| file.is_file()) else {
            return Self::default();
        };
        let mut modules = BTreeMap::new();
        let folder = package.folder.join("src");
        read_module(&root, &folder, &Vec::new(), &mut modules);
        Self::of(&modules)
    }

    fn of(modules: &BTreeMap<ModulePath, Module>) -> Self {
        let mut house = Self::default();
        for (path, module) in modules {
            let imports = house.imports.entry(named(path)).or_default();
            for used in &module.used {
                let Some(Found::Name(of, name)) = find(modules, path, used, 0) else {
                    continue;
                };
                if of != *path {
                    imports.entry(named(&of)).or_insert(name);
                }
            }
        }
        house
    }

    /// The same with each top module and its whole folder as one.
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

    /// The groups in which there is a way round through three modules or more.
    fn circles(&self) -> Vec<Circle> {
        let reach: BTreeMap<&str, BTreeSet<&str>> = self
            .imports
            .keys()
            .map(|module| (module.as_str(), self.reached_from(module)))
            .collect();
        let mut circles: Vec<Circle> = Vec::new();
        for module in self.imports.keys() {
            if circles.iter().any(|circle| circle.modules.contains(module)) {
                continue;
            }
            let both = reach[module.as_str()].iter();
            let both = both.filter(|other| reach[**other].contains(module.as_str()));
            let modules: BTreeSet<String> = both.map(|name| (*name).to_owned()).collect();
            if let Some(way) = self.way_round(&modules) {
                circles.push(Circle { modules, way });
            }
        }
        circles
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

    /// The shortest way round through three or more of these modules: an import and the shortest way back that is not the import turned round.
    fn way_round(&self, modules: &BTreeSet<String>) -> Option<Vec<(String, String)>> {
        let mut shortest: Option<Vec<&str>> = None;
        for from in modules {
            for to in self.next(from).filter(|to| modules.contains(*to)) {
                let back = self.way_back(to, from, modules);
                if let Some(way) = back
                    && shortest.as_ref().is_none_or(|old| way.len() < old.len())
                {
                    shortest = Some(way);
                }
            }
        }
        let way = shortest?;
        let next = way.iter().skip(1).chain(way.first());
        let named = way.iter().zip(next);
        let named = named.map(|(from, to)| ((*from).to_owned(), self.imports[*from][*to].clone()));
        Some(named.collect())
    }

    /// Returns `to` and what leads from it to `from`, with `from` first, by way of at least one other module.
    fn way_back<'a>(
        &'a self,
        to: &'a str,
        from: &'a str,
        modules: &BTreeSet<String>,
    ) -> Option<Vec<&'a str>> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut open = std::collections::VecDeque::from([to]);
        while let Some(module) = open.pop_front() {
            for next in self.next(module).filter(|next| modules.contains(*next)) {
                if next == from && module != to {
                    let mut way = vec![module];
                    while let Some(earlier) = before.get(way[way.len() - 1]) {
                        way.push(earlier);
                    }
                    way.push(from);
                    way.reverse();
                    return Some(way);
                }
                if next != from && next != to && !before.contains_key(next) {
                    before.insert(next, module);
                    open.push_back(next);
                }
            }
        }
        None
    }
}

fn named(path: &[String]) -> String {
    if path.is_empty() {
        return "the crate's root".into();
    }
    path.join("::")
}

/// A file: what it imports and what it calls so.
#[derive(Debug, Default)]
struct Module {
    children: BTreeSet<String>,
    /// The paths that stand in it.
    used: BTreeSet<ModulePath>,
    /// What its `use` lines make of a name.
    names: BTreeMap<String, ModulePath>,
}

/// To what a path leads.
enum Found {
    Module(ModulePath),
    /// A name, and the module that defines it.
    Name(ModulePath, String),
}

/// Follows a path that stands in a module; nothing is found of another crate.
fn find(
    modules: &BTreeMap<ModulePath, Module>,
    standing_in: &[String],
    path: &[String],
    re_exports: usize,
) -> Option<Found> {
    let (first, mut rest) = path.split_first()?;
    let mut at = standing_in.to_vec();
    match first.as_str() {
        "crate" => at.clear(),
        "super" => drop(at.pop()?),
        "self" => {}
        name => {
            let here = modules.get(&at)?;
            if !here.children.contains(name) && !here.names.contains_key(name) {
                return None;
            }
            rest = path;
        }
    }
    while let Some((name, further)) = rest.split_first() {
        if name == "super" {
            at.pop()?;
        } else if modules.get(&at)?.children.contains(name) {
            at.push(name.clone());
        } else {
            let renamed = modules[&at]
                .names
                .get(name)
                .filter(|_| re_exports < RE_EXPORTS);
            let found = renamed.and_then(|path| find(modules, &at, path, re_exports + 1));
            match found {
                Some(Found::Module(module)) => at = module,
                Some(name) => return Some(name),
                None => return Some(Found::Name(at, name.clone())),
            }
        }
        rest = further;
    }
    Some(Found::Module(at))
}

fn read_module(
    file: &Path,
    folder: &Path,
    path: &[String],
    modules: &mut BTreeMap<ModulePath, Module>,
) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut module = Module::default();
    if let Ok(tokens) = text.parse::<TokenStream>() {
        module.read(&tokens.into_iter().collect::<Vec<_>>(), 0);
    }
    let children = module.children.clone();
    modules.insert(path.to_vec(), module);
    for child in children {
        let inner = folder.join(&child);
        let files: [PathBuf; 2] = [folder.join(format!("{child}.rs")), inner.join("mod.rs")];
        if let Some(file) = files.iter().find(|file| file.is_file()) {
            let path = [path, &[child]].concat();
            read_module(file, &inner, &path, modules);
        }
    }
}

impl Module {
    /// Reads the tokens of a file, or of a part of it that stands `inside` so many modules of the same file.
    fn read(&mut self, tokens: &[TokenTree], inside: usize) {
        let mut rest = tokens;
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let Some((TokenTree::Group(group), after)) = rest.split_first() else {
                        continue;
                    };
                    rest = after;
                    if is_for_tests(&group.stream()) {
                        rest = behind_item(rest);
                    }
                }
                TokenTree::Ident(word) if word == "mod" => {
                    rest = self.read_mod(rest, inside);
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = rest.iter().position(|token| is_mark(token, ';'));
                    let end = end.unwrap_or(rest.len());
                    self.read_use(&rest[..end], &Vec::new(), inside);
                    rest = &rest[end..];
                }
                TokenTree::Ident(word) if word == "in" => {
                    // `pub(in path)` imports nothing; of a `for` loop, the path begins behind the next token all the same.
                    if let Some((TokenTree::Ident(next), _)) = rest.split_first()
                        && next == "crate"
                    {
                        rest = behind_path(rest).1;
                    }
                }
                TokenTree::Ident(_) => {
                    let (path, after) = behind_path(std::slice::from_ref(token));
                    debug_assert!(after.is_empty());
                    let (more, after) = behind_more(rest);
                    rest = after;
                    if !more.is_empty() {
                        self.take([path, more].concat(), inside);
                    }
                }
                TokenTree::Group(group) => {
                    self.read(&group.stream().into_iter().collect::<Vec<_>>(), inside);
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn read_mod<'a>(&mut self, rest: &'a [TokenTree], inside: usize) -> &'a [TokenTree] {
        match rest {
            [TokenTree::Ident(name), TokenTree::Punct(_), after @ ..] => {
                self.children.insert(name.to_string());
                after
            }
            [TokenTree::Ident(_), TokenTree::Group(body), after @ ..] => {
                self.read(&body.stream().into_iter().collect::<Vec<_>>(), inside + 1);
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
                    path.push("*".into());
                    self.take(path, inside);
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

    /// Notes a path, and returns it as seen from the file's own module.
    fn take(&mut self, path: ModulePath, inside: usize) -> Option<ModulePath> {
        let above = path.iter().take_while(|name| *name == "super").count();
        let path = match (inside, above) {
            (0, _) | (_, 0) => path,
            (_, above) if above > inside => path[inside..].to_vec(),
            (_, above) => [&["self".to_owned()], &path[above..]].concat(),
        };
        self.used.insert(path.clone());
        // `use a;` of a child or a crate says nothing new.
        (path.len() > 1).then_some(path)
    }
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

/// Whether an attribute leaves its item to tests.
fn is_for_tests(attribute: &TokenStream) -> bool {
    let words: Vec<String> = words(attribute.clone());
    words.first().is_some_and(|word| word == "cfg")
        && !words.iter().any(|word| word == "not")
        && words.iter().any(|word| word == "test" || word == "doctest")
        || words.first().is_some_and(|word| word == "test")
}

fn words(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => found.push(word.to_string()),
            TokenTree::Group(group) => found.extend(words(group.stream())),
            _ => {}
        }
    }
    found
}

/// What follows an item: it ends with its body or a semicolon.
fn behind_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let is_use = tokens
        .iter()
        .take_while(|token| !is_mark(token, ';'))
        .any(|token| matches!(token, TokenTree::Ident(word) if word == "use"));
    let end = tokens.iter().position(|token| match token {
        TokenTree::Group(group) => !is_use && group.delimiter() == Delimiter::Brace,
        token => is_mark(token, ';'),
    });
    end.map_or(&[], |end| &tokens[end + 1..])
}

/// A word, the words behind it that `::` ties to it, and what follows.
fn behind_path(tokens: &[TokenTree]) -> (ModulePath, &[TokenTree]) {
    match tokens.split_first() {
        Some((TokenTree::Ident(word), rest)) => {
            let (more, rest) = behind_more(rest);
            ([vec![word.to_string()], more].concat(), rest)
        }
        _ => (Vec::new(), tokens),
    }
}

/// The words that follow, each behind a `::`.
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

    /// Reads modules, each with its path and its text.
    fn house(files: &[(&str, &str)]) -> House {
        let read = |(path, text): &(&str, &str)| {
            let mut module = Module::default();
            let tokens: TokenStream = text.parse().unwrap();
            module.read(&tokens.into_iter().collect::<Vec<_>>(), 0);
            let path = path.split("::").filter(|name| !name.is_empty());
            (path.map(Into::into).collect::<ModulePath>(), module)
        };
        House::of(&files.iter().map(read).collect())
    }

    fn imports(house: &House, module: &str) -> Vec<String> {
        house.imports[module].keys().cloned().collect()
    }

    #[test]
    fn a_path_leads_to_the_module_that_defines_the_name() {
        let house = house(&[
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
        assert_eq!(imports(&house, "the crate's root"), ["a::inner", "b"]);
        assert_eq!(imports(&house, "a"), ["a::inner", "b"]);
        assert_eq!(imports(&house, "a::inner"), ["c"]);
        assert_eq!(imports(&house, "b"), ["a::inner"]);
        assert_eq!(imports(&house, "c"), ["a::inner"]);
    }

    #[test]
    fn what_only_tests_import_does_not_count() {
        let house = house(&[
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
    fn two_that_import_each_other_are_no_circle_and_three_are() {
        let pair = house(&[
            ("", "mod a; mod b;"),
            ("a", "mod x; mod y; use x::X; use y::Y;"),
            ("a::x", "use super::A;"),
            ("a::y", "use super::A;"),
            ("b", "use crate::a::A;"),
        ]);
        assert!(pair.circles().is_empty());
        let three = house(&[
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C; use crate::d::D;"),
            ("c", "use crate::a::A;"),
            ("d", "use crate::b::B;"),
        ]);
        let circles = three.circles();
        assert_eq!(circles.len(), 1);
        let lines: Vec<String> = circles[0].lines().collect();
        assert_eq!(
            lines,
            [
                "  4 modules: a, b, c, d",
                "    a takes B from b",
                "    b takes C from c",
                "    c takes A from a"
            ]
        );
        let siblings = house(&[
            ("", "mod a;"),
            ("a", "mod x; mod y; use x::X; use y::Y;"),
            ("a::x", "use super::y::Y;"),
            ("a::y", "use super::A;"),
        ]);
        assert_eq!(siblings.circles().len(), 1, "a, x, y and a again");
    }

    #[test]
    fn top_modules_are_looked_at_with_their_folders() {
        let house = house(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "pub mod x; pub mod y;"),
            ("a::x", "use crate::b::B;"),
            ("a::y", ""),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::y::Y;"),
        ]);
        assert!(house.circles().is_empty());
        let tops = house.tops().circles();
        assert_eq!(tops.len(), 1);
        assert_eq!(tops[0].modules.len(), 3);
    }
}
