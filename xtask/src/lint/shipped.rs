//! The shipped code, for the rules that check it: the sources of the published crates without test code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use proc_macro2::TokenStream;

use crate::sources::{self, Source};
use crate::workspace::Workspace;

mod tokens;

pub(super) use tokens::{ShippedNames, is_test, seen};

/// Returns the sources of the published crates.
pub(super) fn sources(workspace: &Workspace) -> Vec<Source> {
    let crates: Vec<PathBuf> = { workspace.published() }
        .filter_map(|package| package.folder.strip_prefix(&workspace.root).ok())
        .map(|folder| folder.join("src"))
        .collect();
    let mut sources = sources::read(&workspace.root);
    sources.retain(|source| crates.iter().any(|it| source.path.starts_with(it)));
    sources
}

/// Parses the sources, except modules that exist only for tests. Also returns an error for each file that can't be parsed.
pub(super) fn read<'a>(sources: &[&'a Source]) -> (BTreeMap<&'a Path, ShippedNames>, Vec<String>) {
    let (mut found, mut of_tests, mut unread) = (BTreeMap::new(), Vec::new(), Vec::new());
    for source in sources {
        let Ok(tokens) = TokenStream::from_str(&source.text) else {
            unread.push(format!("can't parse {}", source.path.display()));
            continue;
        };
        let seen = seen(tokens);
        of_tests.extend(seen.test_modules.iter().map(|it| folder(&source.path, it)));
        found.insert(source.path.as_path(), seen);
    }
    let is_test = |path: &Path| {
        let mut tests = of_tests.iter();
        tests.any(|it| path.starts_with(it) || path == it.with_extension("rs"))
    };
    found.retain(|path, _| !is_test(path));
    (found, unread)
}

/// Returns the directory with the files of the child modules of a module that `file` declares by `mod NAME;`, possibly with a `#[path = "…"]`.
fn folder(file: &Path, module: &tokens::Module) -> PathBuf {
    let beside = file.parent().unwrap_or(file);
    match &module.path {
        Some(path) => beside.join(path).with_extension(""),
        None if ["lib.rs", "main.rs", "mod.rs"]
            .iter()
            .any(|it| file.ends_with(it)) =>
        {
            beside.join(&module.name)
        }
        None => file.with_extension("").join(&module.name),
    }
}
