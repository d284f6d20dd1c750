//! The table of times in the guide against the constants in the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Constants of these folders are in the table, or in [`OTHER`].
const COMPLETE: [&str; 6] = [
    "agent-drivers/src",
    "agent-duplex/src/actor",
    "agent-subprocess/src",
    "interrupt-stack/src",
    "loop-runner/src/runner",
    "loop-state/src/times",
];

/// Constants of those folders that bound no wait of a stop: how often something is looked at, starts, and what has no bound.
const OTHER: &[(&str, &str)] = &[
    ("acp/protocol.rs", "QUIET"),
    ("acting.rs", "LINGER"),
    ("actor/hand.rs", "AGAIN"),
    ("actor/start.rs", "GLANCE"),
    ("actor/start.rs", "RELEASE"),
    ("adopt.rs", "ROUND"),
    ("catch.rs", "UNWOKEN"),
    ("claude/connection.rs", "FIRST_WORD"),
    ("cleaning.rs", "LOOK"),
    ("codex/connection.rs", "OPEN"),
    ("converse/stopping.rs", "LONGEST"),
    ("group.rs", "LOOK"),
    ("guard/tree.rs", "ROUND"),
    ("guarded.rs", "ANSWER"),
    ("init.rs", "FOREVER"),
    ("perform.rs", "SEEN"),
    ("state.rs", "LATE"),
    ("state.rs", "NEWS"),
    ("stop.rs", "LONGEST"),
    ("time.rs", "LONGEST_WAIT"),
    ("waiting.rs", "TELL"),
    ("writer.rs", "LOOK"),
];

struct Constant {
    path: PathBuf,
    name: String,
    times: Vec<Duration>,
}

impl Constant {
    fn is(&self, file: &str, name: &str) -> bool {
        self.name == name && self.path.ends_with(file)
    }
}

/// Returns the constants of a file whose values are times.
fn constants(path: &Path, text: &str) -> Vec<Constant> {
    let shipped = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let declared = shipped.split("const ").skip(1);
    let found = declared.filter_map(|rest| {
        let (name, rest) = rest.split_once(": ")?;
        let (kind, value) = rest.split_once(" = ")?;
        let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        // An array has times and a bound in its type, which `=` and `;` do not end.
        let value = value.split_once(";\n").map_or(value, |(value, _)| value);
        (is_name && kind.contains("Duration") && kind.len() < 40).then(|| Constant {
            path: path.to_owned(),
            name: name.to_owned(),
            times: times(value),
        })
    });
    found.collect()
}

/// Returns the times in the value of a constant.
fn times(value: &str) -> Vec<Duration> {
    let calls = value.split("Duration::from_").skip(1);
    let time = |call: &str| {
        let (unit, rest) = call.split_once('(')?;
        let number = rest.split_once(')')?.0.replace('_', "").parse().ok()?;
        match unit {
            "secs" => Some(Duration::from_secs(number)),
            "millis" => Some(Duration::from_millis(number)),
            _ => None,
        }
    };
    calls.filter_map(time).collect()
}

/// Returns a time as the guide writes it.
fn written(times: &[Duration]) -> String {
    let time = |time: &Duration| match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    };
    let times: Vec<String> = times.iter().map(time).collect();
    times.join(", ")
}

/// Returns file, name and value of each row in the guide.
fn rows(page: &str) -> Vec<(&str, &str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let parts: Vec<&str> = line.split('`').collect();
        let value = line.split(" | ").nth(1).unwrap_or_default();
        (parts[1], parts[3], value)
    })
    .collect()
}

fn read(folder: &Path, found: &mut Vec<Constant>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let is_test = { path.file_stem() }.is_some_and(|stem| {
            let stem = stem.to_string_lossy();
            stem == "contract" || stem.ends_with("tests")
        });
        if is_test {
            continue;
        } else if path.is_dir() {
            read(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.extend(constants(&path, &std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn the_guide_has_each_time_of_a_stop_as_the_code_has_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(page) = std::fs::read_to_string(root.join("docs/guide/times.md")) else {
        println!("skipped: the guide is not here");
        return;
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            read(&sources, &mut found);
        }
    }
    let mut wrong = BTreeSet::new();
    let rows = rows(&page);
    for (file, name, value) in &rows {
        let mut same = found.iter().filter(|it| it.is(file, name));
        match (same.next(), same.next()) {
            (Some(constant), None) if written(&constant.times) == *value => {}
            (Some(constant), None) => {
                let is = written(&constant.times);
                wrong.insert(format!(
                    "{file} {name}: the guide has {value}, the code {is}"
                ));
            }
            (None, _) => drop(wrong.insert(format!("{file} {name}: no such constant"))),
            (Some(_), Some(_)) => drop(wrong.insert(format!("{file} {name}: several"))),
        }
    }
    let is_known = |constant: &&Constant| {
        let in_guide = rows.iter().any(|(file, name, _)| constant.is(file, name));
        in_guide || OTHER.iter().any(|(file, name)| constant.is(file, name))
    };
    let is_of = |constant: &&Constant| {
        let path = constant.path.to_string_lossy();
        COMPLETE.iter().any(|folder| path.contains(folder))
    };
    for constant in found.iter().filter(is_of).filter(|it| !is_known(it)) {
        let path = constant.path.display();
        wrong.insert(format!("{path} {}: not in the guide", constant.name));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
