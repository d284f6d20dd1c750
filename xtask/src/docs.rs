//! Checks the documentation: it builds without a warning, the examples of the READMEs run, links have targets, and the tests and files that it names
//! exist.

mod links;
mod names;

use std::process::Command;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Builds the documentation, and checks the texts.
pub(crate) fn run(workspace: &Workspace) -> Tally {
    // `--document-private-items` also checks links in private items. rustdoc still reports a public page that links to a private item.
    let mut cargo = Command::new("cargo");
    cargo
        .args(["doc", "--quiet", "--workspace", "--no-deps", "--keep-going"])
        .args(["--all-features", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .arg("--lib")
        .args(workspace.programs().flat_map(|program| ["--bin", program]));
    let mut tally = match command::finish(&mut cargo, Show::OnFailure).success {
        true => Tally::passed(1),
        false => Tally::failed("docs: warnings"),
    };
    tally += check_texts(workspace);
    tally
}

/// Checks the texts without a compiler. The stage `doctests` builds the public documentation of the published libraries.
pub(crate) fn check_texts(workspace: &Workspace) -> Tally {
    let mut tally = judge("examples of the READMEs", unread(workspace));
    tally += judge("links", links::broken(&workspace.root));
    tally += judge("names", names::unknown(&workspace.root));
    tally
}

fn judge(what: &str, wrong: Vec<String>) -> Tally {
    wrong.iter().for_each(|line| println!("    {line}"));
    if wrong.is_empty() {
        return Tally::passed(1);
    }
    Tally::failed(format!("docs: {what}"))
}

/// Names the published crates whose README is not in their doctests.
fn unread(workspace: &Workspace) -> Vec<String> {
    let published = workspace.published();
    let unread = published.filter(|package| {
        let library = fs_err::read_to_string(package.folder.join("src/lib.rs"));
        !library.is_ok_and(|text| runs_readme(&text))
    });
    unread
        .map(|package| format!("{}: the README is not in the doctests", package.name))
        .collect()
}

/// Whether a library has an item, only for doctests, whose documentation is the README.
fn runs_readme(library: &str) -> bool {
    let lines: Vec<&str> = library.lines().map(str::trim).collect();
    lines.windows(3).any(|lines| {
        lines[0].starts_with("#[cfg(")
            && lines[0].contains("doctest")
            && lines[1] == r#"#[doc = include_str!("../README.md")]"#
            && lines[2] == "struct ReadmeDoctests;"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_with_item_doc_runs_as_doctest() {
        let library = "mod a;\n\n#[cfg(doctest)]\n#[doc = include_str!(\"../README.md\")]\nstruct ReadmeDoctests;\n";
        assert!(runs_readme(library));
        assert!(!runs_readme(
            &library.replace("README.md\")]", "OTHER.md\")]")
        ));
        assert!(!runs_readme("// struct ReadmeDoctests;"));
    }
}
