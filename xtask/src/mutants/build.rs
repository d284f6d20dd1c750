//! Builds a core with all of its mutants, and leaves out those that the compiler refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::list::{Mutant, number};
use super::rewrite::{self, Part, Rewritten};
use super::{Core, Place};
use crate::command::{self, Show};
use crate::workspace::{array, text};

/// The compiler looks at types, then at borrows, then at what follows from values: a round each, and some for what hid behind another error.
const ROUNDS: usize = 12;

/// What the environment says which mutant is chosen by.
pub(super) const CHOICE: &str = "XTASK_MUTANT";

/// What each condition asks, in the root of each crate that compiles the core. Not by way of the crate's own atomics: a model checker has others.
pub(super) const FUNCTION: &str = r#"
pub(crate) fn is_mutant(number: u32) -> bool {
    static CHOSEN: ::std::sync::OnceLock<u32> = ::std::sync::OnceLock::new();
    let chosen = || ::std::env::var("XTASK_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    *CHOSEN.get_or_init(chosen) == number
}
"#;

/// The conditions have parentheses that are rarely needed: megabytes of warnings.
const QUIET: &str = "#![allow(warnings)]\n";

/// Errors that a mutant makes by itself and not by where it stands: a trait that its type has not, or a name. Others can come from the condition around it,
/// as in a constant or of a type that has to be inferred, and say nothing of the mutant.
const ITS_OWN: [&str; 6] = ["E0277", "E0368", "E0369", "E0599", "E0600", "E0614"];

/// What became of the mutants.
#[derive(Debug, Default)]
pub(super) struct Built<'a> {
    /// In the build, and chosen by [`CHOICE`].
    pub(super) together: Vec<&'a Mutant>,
    /// Not in the build, though they may well compile where nothing else is changed.
    pub(super) alone: Vec<&'a Mutant>,
    /// Changes that are no program.
    pub(super) unviable: usize,
}

/// Files by their path in the workspace.
pub(super) type Files<T> = BTreeMap<String, T>;

/// Reads the files that a build changes, as they are.
pub(super) fn originals(
    place: &Place<'_>,
    core: &Core,
    mutants: &[Mutant],
) -> Result<Files<String>, String> {
    let roots = core.roots.iter().copied();
    let files: BTreeSet<&str> = { mutants.iter() }
        .map(|mutant| mutant.file.as_str())
        .chain(roots)
        .collect();
    let read = |file: &str| {
        let text = fs_err::read_to_string(place.copy.join(file));
        let text = text.map_err(|error| error.to_string())?;
        Ok::<_, String>((file.to_owned(), text))
    };
    files.into_iter().map(read).collect()
}

pub(super) fn write(place: &Place<'_>, files: &Files<String>) -> Result<(), String> {
    for (file, text) in files {
        fs_err::write(place.copy.join(file), text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Leaves the sources with the mutants in them, and their tests built.
pub(super) fn build<'a>(
    place: &Place<'_>,
    core: &Core,
    originals: &Files<String>,
    mutants: &'a [Mutant],
) -> Result<Built<'a>, String> {
    let mut refused = BTreeMap::new();
    for _ in 0..ROUNDS {
        let in_question = |mutant: &&Mutant| !refused.contains_key(&mutant.number);
        let files = rewritten(originals, mutants.iter().filter(in_question))?;
        write(place, &texts(core, originals, &files))?;
        let ended = command::finish(&mut cargo(place, core), Show::Never);
        if ended.success {
            return Ok(sorted(mutants, &files, &refused));
        }
        let more = refusals(&ended.stdout, &files)?;
        if more.is_empty() {
            return Err(format!("it can't be built: {}", ended.output.trim()));
        }
        println!(
            "mutants: {}: {} do not compile, once more without them",
            core.name,
            more.len()
        );
        refused.extend(more);
    }
    Err(format!("it can't be built in {ROUNDS} rounds"))
}

fn cargo(place: &Place<'_>, core: &Core) -> Command {
    let mut cargo = Command::new("cargo");
    place
        .prepare(&mut cargo)
        .args(["test", "--no-run", "--quiet", "--message-format=json"])
        .args(["--all-features", "--package", core.package])
        .args(core.targets);
    cargo
}

fn rewritten<'a>(
    originals: &Files<String>,
    mutants: impl Iterator<Item = &'a Mutant>,
) -> Result<Files<Rewritten>, String> {
    let mut by_file = Files::<Vec<&Mutant>>::new();
    for mutant in mutants {
        by_file.entry(mutant.file.clone()).or_default().push(mutant);
    }
    let rewrite = |(file, mutants): (String, Vec<&Mutant>)| {
        let rewritten = rewrite::rewrite(&originals[&file], &mutants);
        let rewritten = rewritten.map_err(|error| format!("{file}: {error}"))?;
        Ok::<_, String>((file, rewritten))
    };
    by_file.into_iter().map(rewrite).collect()
}

fn texts(core: &Core, originals: &Files<String>, files: &Files<Rewritten>) -> Files<String> {
    let mut texts = originals.clone();
    for (file, rewritten) in files {
        texts.insert(file.clone(), rewritten.text.clone());
    }
    for root in core.roots {
        if let Some(text) = texts.get_mut(*root) {
            *text = format!("{QUIET}{text}{FUNCTION}");
        }
    }
    texts
}

fn sorted<'a>(
    mutants: &'a [Mutant],
    files: &Files<Rewritten>,
    refused: &BTreeMap<u32, bool>,
) -> Built<'a> {
    let unplaced = files.values().flat_map(|file| &file.unplaced);
    let unplaced: BTreeSet<u32> = unplaced.copied().collect();
    let mut built = Built::default();
    for mutant in mutants {
        match refused.get(&mutant.number) {
            Some(true) => built.unviable += 1,
            Some(false) => built.alone.push(mutant),
            None if unplaced.contains(&mutant.number) => built.alone.push(mutant),
            None => built.together.push(mutant),
        }
    }
    built
}

/// Reads from the compiler's messages which mutants it refuses, and whether each by itself; an error elsewhere is one that no mutant can be left out for.
fn refusals(messages: &str, files: &Files<Rewritten>) -> Result<BTreeMap<u32, bool>, String> {
    let mut refused = BTreeMap::new();
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let is_error = |message: &Value| {
        message["message"]["level"] == "error"
            && array(&message["message"]["spans"]).next().is_some()
    };
    for message in messages.filter(is_error) {
        let message = &message["message"];
        let is_its_own = ITS_OWN.contains(&text(&message["code"]["code"]).as_str());
        let (main, others): (Vec<_>, Vec<_>) =
            array(&message["spans"]).partition(|span| span["is_primary"] == true);
        let spans = main.into_iter().chain(others);
        let Some(part) = { spans }.find_map(|span| part_at(span, files)) else {
            return Err(format!("it can't be built: {}", text(&message["rendered"])));
        };
        for number in &part.mutants {
            // A second error of another kind leaves it open which of them is the reason.
            let known = refused.entry(*number).or_insert(true);
            *known &= is_its_own && part.is_own;
        }
    }
    Ok(refused)
}

/// The mutants at a place, or at the one where the macro was called that it lies in.
fn part_at<'a>(span: &Value, files: &'a Files<Rewritten>) -> Option<&'a Part> {
    let mut spans = std::iter::successors(Some(span), |span| {
        Some(&span["expansion"]["span"]).filter(|it| it.is_object())
    });
    spans.find_map(|span| {
        let place = number(&span["byte_start"])..number(&span["byte_end"]);
        let file = files.get(&plain(&text(&span["file_name"])))?;
        file.part_at(&place)
    })
}

/// `a/c.rs` for `a/b/../c.rs`, as a module's `path` makes it.
fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::rewrite::tests::mutant;

    const SOURCE: &str = "fn f(a: u8) -> bool {\n    a < 2 && a != 1\n}\n";

    fn files() -> Files<Rewritten> {
        let mutants = [
            mutant(1, SOURCE, "FnValue", "a < 2 && a != 1", "true"),
            mutant(2, SOURCE, "BinaryOperator", "&&", "||"),
            mutant(3, SOURCE, "BinaryOperator", "!=", "=="),
        ];
        let text = rewrite::rewrite(SOURCE, &Vec::from_iter(&mutants)).unwrap();
        Files::from([("a/src/b.rs".to_owned(), text)])
    }

    fn error(code: &str, files: &Files<Rewritten>, file: &str, words: &str) -> String {
        let at = files["a/src/b.rs"].text.find(words).unwrap();
        let span = serde_json::json!({
            "file_name": file, "byte_start": at, "byte_end": at + words.len(), "is_primary": true,
        });
        let message = serde_json::json!({
            "reason": "compiler-message",
            "message": { "level": "error", "code": { "code": code }, "rendered": "it is wrong", "spans": [span] },
        });
        format!("{message}\n")
    }

    #[test]
    fn an_error_names_the_mutant_whose_words_it_is_in() {
        let files = files();
        let missing = error("E0277", &files, "a/src/b.rs", "return true");
        let constant = error("E0015", &files, "a/tests/../src/b.rs", "a < 2 || a != 1");
        let refused = refusals(&(missing.clone() + &constant), &files).unwrap();
        assert_eq!(refused, BTreeMap::from([(1, true), (2, false)]));
        let both = error("E0308", &files, "a/src/b.rs", "return true");
        assert_eq!(
            refusals(&(missing + &both), &files).unwrap(),
            BTreeMap::from([(1, false)])
        );
    }

    #[test]
    fn an_error_beside_them_is_one_of_all_that_stand_there() {
        let files = files();
        let original = error("E0277", &files, "a/src/b.rs", "{ (a < 2 && a != 1) }");
        assert_eq!(
            refusals(&original, &files).unwrap(),
            BTreeMap::from([(2, false), (3, false)])
        );
        let elsewhere = error("E0277", &files, "a/src/c.rs", "return true");
        assert!(refusals(&elsewhere, &files).unwrap_err().contains("wrong"));
    }

    #[test]
    fn what_the_condition_reads_is_what_is_set() {
        assert!(FUNCTION.contains(&format!("{CHOICE:?}")) && FUNCTION.contains("is_mutant"));
    }
}
