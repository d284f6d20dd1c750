//! Mutants that can't be built with others, as those in constants: cargo-mutants compiles and judges each by itself.

use std::collections::BTreeSet;

use super::list::Mutant;
use super::{Core, Outcome, Place};
use crate::command::{self, Show};
use crate::tools::Tool;
use crate::workspace;

pub(super) fn judge(
    place: &Place<'_>,
    core: &Core,
    mutants: &[&Mutant],
) -> Result<Outcome, String> {
    if mutants.is_empty() {
        return Ok(Outcome::default());
    }
    // Where its lists are, and the log of each mutant.
    let out = place.folder.join(core.name);
    let afresh = workspace::remove(&out).and_then(|()| fs_err::create_dir_all(&out));
    afresh.map_err(|error| error.to_string())?;
    let files: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    let mut cargo = Tool::Mutants.command(place.workspace)?;
    place
        .prepare(&mut cargo)
        // The first red test is enough, and nobody reads how it fails.
        .env("NEXTEST_PROFILE", "mutants")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        // In place is one at a time: a machine that is busy makes time-outs, which count as caught.
        .args(["--in-place", "--test-tool", "nextest"])
        .args(["--minimum-test-timeout", "60", "--package", core.package])
        .arg("--output")
        .arg(&out)
        .args(files.into_iter().flat_map(|file| ["--file", file]))
        .args(
            mutants
                .iter()
                .flat_map(|it| ["--re".to_owned(), pattern(&it.name)]),
        );
    // Before the `--`, so that what is built is what is run.
    let targets = core.targets.iter();
    cargo
        .arg("--all-features")
        .args(targets.map(|target| format!("--cargo-arg={target}")))
        .args(["--", "-E", core.tests]);
    let ended = command::finish(&mut cargo, Show::AsItComes);
    let list = |verdict: &str| {
        let file = out.join("mutants.out").join(format!("{verdict}.txt"));
        fs_err::read_to_string(file).unwrap_or_default()
    };
    let names: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
    let outcome = read(&names, list);
    let judged = outcome.missed.len() + outcome.caught + outcome.timed_out + outcome.unviable;
    match judged == names.len() {
        true => Ok(outcome),
        false => Err(format!(
            "cargo-mutants did not come to its end: {}",
            ended.output.lines().last().unwrap_or_default()
        )),
    }
}

/// Reads the lists of verdicts. They may have more names than were asked for: a field that is left out is tried whatever the patterns say.
fn read(names: &BTreeSet<&str>, list: impl Fn(&str) -> String) -> Outcome {
    let of = |verdict: &str| {
        let list = list(verdict);
        let asked = list.lines().filter(|name| names.contains(name));
        asked.map(str::to_owned).collect::<Vec<String>>()
    };
    Outcome {
        missed: of("missed"),
        caught: of("caught").len(),
        timed_out: of("timeout").len(),
        unviable: of("unviable").len(),
    }
}

/// A pattern that only this name fits. `<` and `>` stay as they are: with a backslash they would be the bounds of a word.
fn pattern(name: &str) -> String {
    let mut pattern = String::from("^");
    for character in name.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern + "$"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_pattern() {
        assert_eq!(
            pattern("a.rs:3:5: replace <A as B>::f -> Option<u8> with Some(1)"),
            r"^a\.rs:3:5: replace <A as B>::f \-> Option<u8> with Some\(1\)$"
        );
    }

    #[test]
    fn verdicts_on_others_do_not_count() {
        let names = BTreeSet::from(["one", "two", "three"]);
        let outcome = read(&names, |verdict| match verdict {
            "missed" => "one\nother\n".into(),
            "caught" => "two\nthree\nmore\n".into(),
            _ => String::new(),
        });
        assert_eq!(outcome.missed, ["one"]);
        assert_eq!((outcome.caught, outcome.unviable), (2, 0));
    }
}
