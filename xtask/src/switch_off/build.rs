//! Compiles the copy with its switches. A mutant can have a value that its function can't return; the diagnostics of the compiler name these, and the
//! next round compiles without them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs_err as fs;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::sources;
use crate::switch_off::switches::{Placed, Plan, Switch};
use crate::workspace::{array, text};

/// The largest number of rounds. Each crate needs about three, after the crates that it uses.
const ROUNDS: usize = 40;

/// The directories of the build.
#[derive(Debug)]
pub(super) struct Folders {
    /// The sources without switches.
    pub(super) original: PathBuf,
    pub(super) copy: PathBuf,
    pub(super) target: PathBuf,
    /// The file with the order for the processes.
    pub(super) order: PathBuf,
    /// The file in which the processes note the switches that they reach.
    pub(super) reached: PathBuf,
}

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TestProgram {
    pub(super) package: String,
    /// The directory of the package, where its tests run.
    pub(super) folder: PathBuf,
    pub(super) program: PathBuf,
}

/// Compiles all tests, and removes the switches that don't compile.
pub(super) fn build(
    folders: &Folders,
    cargo: &[&str],
    switches: &mut Vec<Switch>,
) -> Result<Vec<TestProgram>, String> {
    let all = switches.len();
    let plan = Plan::new(switches);
    let failed = |error: io::Error| error.to_string();
    sources::update(&folders.original, &folders.copy, |file| plan.contains(file))
        .map_err(failed)?;
    let unviable = Unviable::new(folders, switches);
    unviable.remove_known(switches);
    for round in 1..=ROUNDS {
        let files = [folders.order.as_path(), &folders.reached];
        let placed = plan
            .write(&folders.original, &folders.copy, switches, files)
            .map_err(failed)?;
        let known: BTreeSet<u32> = placed.values().flatten().map(|place| place.id).collect();
        switches.retain(|switch| known.contains(&switch.id));
        let report = compile(folders, cargo)?;
        if report.success {
            let count = switches.len();
            println!("switch-off: {count} of {all} switches compile, in {round} rounds");
            unviable.save(switches).map_err(failed)?;
            return Ok(report.programs);
        }
        let wrong = culprits(&report.errors, &placed);
        if wrong.is_empty() {
            let first = report.errors.first().map(|error| error.message.clone());
            let why = first.unwrap_or(report.log);
            return Err(format!("the copy doesn't compile: {}", why.trim()));
        }
        println!(
            "switch-off: round {round}: {} switches don't compile",
            wrong.len()
        );
        switches.retain(|switch| !wrong.contains(&switch.id));
    }
    Err(format!("the copy doesn't compile after {ROUNDS} rounds"))
}

/// The switches of an earlier build that didn't compile. If the list of cargo-mutants is the same, they don't compile now either, and cargo compiles
/// only the files that changed since.
struct Unviable {
    file: PathBuf,
    /// A hash of the ids and names of all switches.
    list: String,
    all: BTreeSet<u32>,
}

impl Unviable {
    fn new(folders: &Folders, switches: &[Switch]) -> Self {
        let mut hash = Sha256::new();
        for switch in switches {
            hash.update(format!("{} {}\n", switch.id, switch.name()));
        }
        let list = hash
            .finalize()
            .into_iter()
            .map(|byte| format!("{byte:02x}"));
        Self {
            file: folders.target.with_extension("unviable"),
            list: list.collect(),
            all: switches.iter().map(|switch| switch.id).collect(),
        }
    }

    fn remove_known(&self, switches: &mut Vec<Switch>) {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let mut lines = text.lines();
        if lines.next() == Some(&self.list) {
            let known: BTreeSet<u32> = lines.filter_map(|line| line.parse().ok()).collect();
            switches.retain(|switch| !known.contains(&switch.id));
        }
    }

    fn save(&self, viable: &[Switch]) -> io::Result<()> {
        let viable: BTreeSet<u32> = viable.iter().map(|switch| switch.id).collect();
        let unviable = self.all.difference(&viable).map(u32::to_string);
        let lines: Vec<String> = std::iter::once(self.list.clone()).chain(unviable).collect();
        fs::write(&self.file, lines.join("\n"))
    }
}

/// The messages of one build.
#[derive(Debug, Default)]
struct Report {
    success: bool,
    errors: Vec<CompileError>,
    programs: Vec<TestProgram>,
    /// The messages of cargo itself.
    log: String,
}

/// An error of the compiler.
#[derive(Debug, Default, PartialEq, Eq)]
struct CompileError {
    message: String,
    /// The places that it names, in bytes of a file: its own first, then those that explain it.
    spans: Vec<(PathBuf, usize, usize)>,
}

fn compile(folders: &Folders, arguments: &[&str]) -> Result<Report, String> {
    // The messages of a first round are larger than the outputs that `command::finish` keeps.
    let messages = folders.target.with_extension("json");
    let others = folders.target.with_extension("log");
    let create = |file| File::create(file).map_err(|error| error.to_string());
    let mut cargo = Command::new("cargo");
    cargo
        .arg("build")
        .args(arguments)
        .args(["--quiet", "--keep-going", "--message-format=json"])
        .current_dir(&folders.copy)
        .env("CARGO_TARGET_DIR", &folders.target)
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null())
        .stdout(create(&messages)?)
        // It names each crate with an error again, in every round.
        .stderr(create(&others)?);
    let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
    let mut report = Report::default();
    let file = File::open(&messages).map_err(|error| error.to_string())?;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|error| error.to_string())?;
        if let Ok(message) = serde_json::from_str(&line) {
            report.read(&message, &folders.copy);
        }
    }
    report.programs.sort();
    report.log = fs::read_to_string(&others).unwrap_or_default();
    report.success = status.success();
    Ok(report)
}

impl Report {
    fn read(&mut self, message: &Value, copy: &Path) {
        match message["reason"].as_str() {
            Some("compiler-artifact") if message["profile"]["test"] == true => {
                let program = text(&message["executable"]);
                let manifest = PathBuf::from(text(&message["manifest_path"]));
                let package = package_of(&text(&message["package_id"]));
                let known = self.programs.iter();
                let mut known = known.map(|known| known.program.as_path());
                if !program.is_empty() && !known.any(|known| known == Path::new(&program)) {
                    self.programs.push(TestProgram {
                        package,
                        folder: manifest.parent().unwrap_or(copy).to_owned(),
                        program: program.into(),
                    });
                }
            }
            Some("compiler-message") if message["message"]["level"] == "error" => {
                self.errors.push(CompileError::read(&message["message"]));
            }
            _ => {}
        }
    }
}

/// Returns `rlm-tests` for `path+file:///copy/tests#rlm-tests@0.0.0`, and `lib` for `path+file:///copy/lib#0.1.0`.
fn package_of(id: &str) -> String {
    let (path, version) = id.split_once('#').unwrap_or((id, ""));
    let name = version.split_once('@').map(|(name, _)| name);
    name.unwrap_or_else(|| path.rsplit('/').next().unwrap_or_default())
        .into()
}

impl CompileError {
    fn read(message: &Value) -> Self {
        let mut spans = Vec::new();
        let own = |is_primary: bool| {
            let spans = array(&message["spans"]);
            spans.filter(move |span| span["is_primary"] == is_primary)
        };
        let helps = array(&message["children"]).flat_map(|child| array(&child["spans"]));
        for span in own(true).chain(own(false)).chain(helps) {
            let mut span = span;
            // The place of a macro call follows the place in the macro.
            while span.is_object() {
                let byte = |name: &str| {
                    let value = span[name].as_u64();
                    value.and_then(|value| usize::try_from(value).ok())
                };
                if let Some((start, end)) = byte("byte_start").zip(byte("byte_end")) {
                    spans.push((text(&span["file_name"]).into(), start, end));
                }
                span = &span["expansion"]["span"];
            }
        }
        Self {
            message: text(&message["message"]),
            spans,
        }
    }
}

/// Returns the switches to remove: for each error the switch in one of its places. If there is none, all switches of the innermost function in which
/// the error is; if there is no such function, all of the file.
fn culprits(errors: &[CompileError], placed: &BTreeMap<PathBuf, Vec<Placed>>) -> BTreeSet<u32> {
    let mut wrong = BTreeSet::new();
    for error in errors {
        let spans = error.spans.iter().filter_map(|(file, start, end)| {
            let places = placed.get(file)?;
            (!places.is_empty()).then_some((places, *start, *end))
        });
        let spans: Vec<(&Vec<Placed>, usize, usize)> = spans.collect();
        let inside = spans.iter().find_map(|(places, start, end)| {
            let place = places
                .iter()
                .find(|place| place.inserted.start <= *start && *end <= place.inserted.end);
            place.map(|place| vec![place.id])
        });
        let around = || {
            spans.iter().find_map(|(places, start, end)| {
                let around = places
                    .iter()
                    .filter(|place| place.function.start <= *start && *end <= place.function.end);
                let inner = around
                    .map(|place| &place.function)
                    .min_by_key(|it| it.len())?;
                let same = places.iter().filter(|place| place.function == *inner);
                Some(same.map(|place| place.id).collect())
            })
        };
        let file = || {
            let (places, ..) = spans.first()?;
            Some(places.iter().map(|place| place.id).collect())
        };
        let found: Option<Vec<u32>> = inside.or_else(around).or_else(file);
        wrong.extend(found.unwrap_or_default());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn placed() -> BTreeMap<PathBuf, Vec<Placed>> {
        let place = |id, inserted, function| Placed {
            id,
            inserted,
            function,
        };
        let places = vec![
            place(1, 10..20, 0..100),
            place(2, 20..30, 0..100),
            place(3, 50..60, 40..70),
        ];
        BTreeMap::from([("a.rs".into(), places), ("b.rs".into(), vec![])])
    }

    fn culprits_at(spans: &[(&str, usize, usize)]) -> Vec<u32> {
        let spans = spans
            .iter()
            .map(|(file, start, end)| (PathBuf::from(file), *start, *end));
        let error = CompileError {
            spans: spans.collect(),
            ..CompileError::default()
        };
        culprits(&[error], &placed()).into_iter().collect()
    }

    #[test]
    fn error_in_a_switch_removes_only_this_switch() {
        assert_eq!(culprits_at(&[("a.rs", 22, 25)]), [2]);
        // The second place of the error is in a switch.
        assert_eq!(culprits_at(&[("a.rs", 80, 90), ("a.rs", 12, 15)]), [1]);
    }

    #[test]
    fn error_elsewhere_removes_the_switches_of_its_function() {
        assert_eq!(culprits_at(&[("a.rs", 62, 65)]), [3]);
        assert_eq!(culprits_at(&[("a.rs", 80, 90)]), [1, 2]);
        assert_eq!(culprits_at(&[("a.rs", 180, 190)]), [1, 2, 3]);
        assert!(culprits_at(&[("b.rs", 1, 2), ("c.rs", 1, 2)]).is_empty());
    }

    #[test]
    fn places_of_an_error_include_macro_calls_and_help() {
        let span = |start: usize, is_primary: bool| json!({"file_name": "a.rs", "byte_start": start, "byte_end": start + 1, "is_primary": is_primary});
        let mut in_macro = span(3, true);
        in_macro["expansion"] = json!({"span": span(4, false)});
        let error = CompileError::read(&json!({
            "message": "mismatched types",
            "spans": [span(1, false), in_macro],
            "children": [{"spans": [span(2, true)]}],
        }));
        let starts: Vec<usize> = error.spans.iter().map(|(_, start, _)| *start).collect();
        assert_eq!(starts, [3, 4, 1, 2]);
    }

    #[test]
    fn test_programs_are_read_with_their_packages() {
        let mut report = Report::default();
        let artifact = |id: &str, program: Value| {
            json!({
                "reason": "compiler-artifact",
                "package_id": id,
                "manifest_path": "/w/tests/Cargo.toml",
                "profile": {"test": true},
                "executable": program,
            })
        };
        let copy = Path::new("/w");
        let id = "path+file:///w/tests#rlm-tests@0.0.0";
        report.read(&artifact(id, "/t/e2e-1".into()), copy);
        report.read(&artifact(id, "/t/e2e-1".into()), copy);
        report.read(&artifact(id, Value::Null), copy);
        report.read(&artifact("path+file:///w/k#0.1.0", "/t/k-1".into()), copy);
        let names = report.programs.iter();
        let names: Vec<_> = names
            .map(|program| (program.package.as_str(), program.folder.as_path()))
            .collect();
        let folder = Path::new("/w/tests");
        assert_eq!(names, [("rlm-tests", folder), ("k", folder)]);
    }
}
