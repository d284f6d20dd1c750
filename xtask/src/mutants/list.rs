//! The mutants of a core, as cargo-mutants lists them: it knows what is worth a change, and what `.cargo/mutants.toml` leaves out.

use std::ops::Range;
use std::str::FromStr;

use serde_json::Value;

use crate::command::{self, Show};
use crate::mutants::{Core, Place};
use crate::tools::Tool;
use crate::workspace::{array, text};

/// One change of one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mutant {
    /// By which it is chosen; from 1 on.
    pub(super) number: u32,
    /// `crates/a/src/b.rs:3:5: replace f -> bool with true`.
    pub(super) name: String,
    pub(super) file: String,
    /// What kind of change it is: `FnValue`, `BinaryOperator` …
    pub(super) genre: String,
    /// What is replaced, and by what.
    pub(super) span: Range<Position>,
    pub(super) replacement: String,
}

/// A place in a text: line and character, from 1 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A part of the mutants, such as 0/8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard {
    part: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((part, of)) if part < of => Ok(Self { part, of }),
            _ => Err("a shard is K/N, and K is less than N: 0/8 is the first of eight".into()),
        }
    }
}

impl Shard {
    /// Neighbours go to different parts, so that each takes about as long.
    pub(super) fn of<T>(self, all: Vec<T>) -> Vec<T> {
        let all = all.into_iter().enumerate();
        all.filter(|(index, _)| index % self.of == self.part)
            .map(|(_, one)| one)
            .collect()
    }
}

pub(super) fn mutants(place: &Place<'_>, core: &Core) -> Result<Vec<Mutant>, String> {
    let mut mutants = Tool::Mutants.command(place.workspace)?;
    place
        .prepare(&mut mutants)
        .args(["--list", "--json", "--package", core.package])
        .args(core.files.iter().flat_map(|file| ["--file", file]));
    let ended = command::finish(&mut mutants, Show::Never);
    if !ended.success {
        return Err(format!("they can't be listed: {}", ended.output.trim()));
    }
    read(&ended.stdout)
}

fn read(json: &str) -> Result<Vec<Mutant>, String> {
    let list: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let position = |value: &Value| Position {
        line: number(&value["line"]),
        column: number(&value["column"]),
    };
    let read = (1..).zip(array(&list)).map(|(number, it)| Mutant {
        number,
        name: text(&it["name"]),
        file: text(&it["file"]),
        genre: text(&it["genre"]),
        span: position(&it["span"]["start"])..position(&it["span"]["end"]),
        replacement: text(&it["replacement"]),
    });
    Ok(read.collect())
}

pub(super) fn number(value: &Value) -> usize {
    let number = value.as_u64().and_then(|it| usize::try_from(it).ok());
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_read_with_its_place() {
        let json = r#"[{ "name": "a.rs:3:5: replace < with > in f", "file": "a.rs", "genre": "BinaryOperator", "replacement": ">",
            "span": { "start": { "line": 3, "column": 5 }, "end": { "line": 3, "column": 6 } } }]"#;
        let [mutant] = read(json).unwrap().try_into().unwrap();
        assert_eq!((mutant.number, mutant.replacement.as_str()), (1, ">"));
        assert_eq!(mutant.span.end, Position { line: 3, column: 6 });
    }

    #[test]
    fn shards_have_each_mutant_once() {
        let parts = ["0/3", "1/3", "2/3"].map(|it| it.parse::<Shard>().unwrap());
        let mut all = parts.map(|part| part.of((0..10).collect())).concat();
        assert_eq!(all[..4], [0, 3, 6, 9]);
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..10));
        for wrong in ["3/3", "1", "a/2", "0/0", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
