//! Inserts the switches: each returns a fixed value at the start of a function, as a mutant of cargo-mutants does. So one build has all mutants, and
//! a file chooses the active one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value;

use crate::switch_off::module;
use crate::workspace::{array, text};

/// The largest number of switches in a function.
const IN_A_FUNCTION: usize = 2;

/// The files without switches, with the reason of each.
const LEFT_OUT: [(&str, &str); 13] = [
    // The lint for unsafe code allows one module per crate.
    ("agent-subprocess/src/sys.rs", "unsafe code"),
    ("interrupt-stack/src/sys.rs", "unsafe code"),
    (
        "agent-subprocess/src/exec_image.rs",
        "runs between clone and exec",
    ),
    ("interrupt-stack/src/atomic.rs", "runs in signal handlers"),
    (
        "interrupt-stack/src/press_word.rs",
        "runs in signal handlers",
    ),
    (
        "interrupt-stack/src/signal_catcher.rs",
        "runs in signal handlers",
    ),
    ("agent-drivers/src/acp/protocol/replay.rs", "helps tests"),
    ("agent-drivers/src/claude/protocol/replay.rs", "helps tests"),
    ("agent-drivers/src/codex/protocol/replay.rs", "helps tests"),
    ("agent-drivers/src/recorded.rs", "helps tests"),
    ("agent-duplex/src/contract", "helps tests"),
    ("agent-duplex/src/scripted", "helps tests"),
    ("checkpoint-store/src/sabotage.rs", "helps tests"),
];

/// A position in a source file, as cargo-mutants counts: lines and characters from one.
pub(super) type Position = (usize, usize);

/// A switch at the start of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) id: u32,
    /// The folder of its crate below `crates`.
    krate: String,
    pub(super) file: PathBuf,
    /// The function with its namespaces.
    pub(super) function: String,
    function_start: Position,
    function_end: Position,
    body_start: Position,
    /// The value that the function returns.
    pub(super) value: String,
}

/// The place of an inserted switch, in bytes of the changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) id: u32,
    pub(super) inserted: Range<usize>,
    pub(super) function: Range<usize>,
}

impl Switch {
    /// Returns `crates/rlm-view/src/login.rs: is_known returns false`.
    pub(super) fn name(&self) -> String {
        let Self {
            file,
            function,
            value,
            ..
        } = self;
        format!("{}: {function} returns {value}", file.display())
    }

    fn code(&self) -> String {
        let Self { id, value, .. } = self;
        let module = module::NAME;
        format!("if crate::{module}::is_off({id}) {{ return {value}; }} ")
    }
}

/// Reads the list of cargo-mutants, and returns the mutants that replace a whole function.
pub(super) fn read(mutants: &Value) -> Vec<Switch> {
    let mut switches: Vec<Switch> = array(mutants).filter_map(of_mutant).collect();
    // The switches of a crate get adjacent ids. The sort keeps the order of the mutants of a function.
    switches.sort_by(|one, other| one.place().cmp(&other.place()));
    let mut last = None;
    let mut count = 0;
    switches.retain(|switch| {
        let place = Some((switch.file.clone(), switch.body_start));
        count = if last == place { count + 1 } else { 1 };
        last = place;
        count <= IN_A_FUNCTION
    });
    for (id, switch) in (1..).zip(&mut switches) {
        switch.id = id;
    }
    switches
}

impl Switch {
    /// Returns the place of its function.
    pub(super) fn place(&self) -> (&str, &Path, Position) {
        (&self.krate, &self.file, self.body_start)
    }
}

fn of_mutant(mutant: &Value) -> Option<Switch> {
    let file = text(&mutant["file"]);
    let in_crates = file.strip_prefix("crates/")?;
    let (krate, inside) = in_crates.split_once('/')?;
    // A program gets no switches of its own: all it does is in its library.
    let is_library = inside.starts_with("src/")
        && !inside.starts_with("src/bin/")
        && inside != "src/main.rs"
        && !inside
            .split(['/', '_', '.'])
            .any(|word| matches!(word, "test" | "tests"));
    let is_left_out = LEFT_OUT
        .iter()
        .any(|(place, _)| in_crates.starts_with(place));
    let function = text(&mutant["function"]["function_name"]);
    let value = text(&mutant["replacement"]);
    // Two types that implement a trait are no single `impl Trait`. A changed debug output shows nothing.
    let is_useless = value.contains("::std::iter::") || function.contains("impl Debug for");
    if mutant["genre"] != "FnValue" || !is_library || is_left_out || is_useless {
        return None;
    }
    let position = |value: &Value| -> Option<Position> {
        let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
        Some((number(&value["line"])?, number(&value["column"])?))
    };
    let span = &mutant["function"]["span"];
    Some(Switch {
        id: 0,
        krate: krate.into(),
        function,
        function_start: position(&span["start"])?,
        function_end: position(&span["end"])?,
        body_start: position(&mutant["span"]["start"])?,
        file: file.into(),
        value,
    })
}

/// The files that change.
#[derive(Debug)]
pub(super) struct Plan {
    files: BTreeSet<PathBuf>,
    /// The roots of the crates, with the ids of their switches.
    modules: BTreeMap<PathBuf, Range<u32>>,
}

impl Plan {
    /// Plans with all switches, so that a file stays in the plan when none of its switches compiles.
    pub(super) fn new(switches: &[Switch]) -> Self {
        let mut modules: BTreeMap<PathBuf, Range<u32>> = BTreeMap::new();
        for switch in switches {
            let root = Path::new("crates").join(&switch.krate).join("src/lib.rs");
            let ids = modules.entry(root).or_insert(switch.id..switch.id);
            ids.end = switch.id + 1;
        }
        let files = switches.iter().map(|switch| switch.file.clone());
        Self {
            files: files.chain(modules.keys().cloned()).collect(),
            modules,
        }
    }

    pub(super) fn contains(&self, file: &Path) -> bool {
        self.files.contains(file)
    }

    /// Writes the files with these switches into the copy, and returns the places of the switches.
    pub(super) fn write(
        &self,
        original: &Path,
        copy: &Path,
        switches: &[Switch],
        [order, reached]: [&Path; 2],
    ) -> io::Result<BTreeMap<PathBuf, Vec<Placed>>> {
        let mut placed = BTreeMap::new();
        for file in &self.files {
            let here: Vec<&Switch> = switches.iter().filter(|it| it.file == *file).collect();
            let source = fs::read_to_string(original.join(file))?;
            let (mut changed, places) = insert(&source, &here);
            if let Some(ids) = self.modules.get(file) {
                changed += &module::source(order, reached, ids);
            }
            write_if_changed(&copy.join(file), &changed)?;
            placed.insert(file.clone(), places);
        }
        Ok(placed)
    }
}

/// Leaves an equal file alone, so that cargo doesn't compile its crate again.
fn write_if_changed(path: &Path, text: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(old) if old == text => Ok(()),
        _ => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            fs::write(path, text)
        }
    }
}

/// Inserts the switches into the text of a file.
fn insert(source: &str, switches: &[&Switch]) -> (String, Vec<Placed>) {
    let starts: Vec<usize> = std::iter::once(0)
        .chain(source.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let offset = |(line, column): Position| {
        let start = *starts.get(line.checked_sub(1)?)?;
        let mut characters = source[start..].char_indices();
        let (at, _) = characters.nth(column.checked_sub(1)?)?;
        Some(start + at)
    };
    let mut places: Vec<(usize, Range<usize>, &Switch)> = Vec::new();
    for switch in switches {
        let body = offset(switch.body_start);
        let start = offset(switch.function_start);
        let end = offset(switch.function_end).or(Some(source.len()));
        let Some(((body, start), end)) = body.zip(start).zip(end) else {
            continue;
        };
        // A constant function can call only constant functions.
        if start <= body && !source[start..body].contains("const fn ") {
            places.push((body, start..end, switch));
        }
    }
    places.sort_by_key(|(body, _, switch)| (*body, switch.id));
    let mut changed = String::with_capacity(source.len() * 2);
    let mut done = 0;
    let mut inserted = Vec::new();
    for (body, _, switch) in &places {
        changed += &source[done..*body];
        done = *body;
        let start = changed.len();
        changed += &switch.code();
        inserted.push(start..changed.len());
    }
    changed += &source[done..];
    // The length of the switches before a place of the source.
    let before = |is_before: &dyn Fn(usize) -> bool| -> usize {
        let before = places.iter().zip(&inserted);
        let before = before.filter(|((body, ..), _)| is_before(*body));
        before.map(|(_, range)| range.len()).sum()
    };
    let placed = places.iter().zip(&inserted);
    let placed = placed.map(|((_, Range { start, end }, switch), inserted)| Placed {
        id: switch.id,
        inserted: inserted.clone(),
        // A function can be the first statement of another one, whose switch comes before it.
        function: start + before(&|body| body <= *start)..end + before(&|body| body < *end),
    });
    (changed, placed.collect())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn mutant(
        file: &str,
        [name, value]: [&str; 2],
        [start, body, end]: [Position; 3],
    ) -> Value {
        let position = |(line, column)| json!({"line": line, "column": column});
        json!({
            "file": file,
            "function": {
                "function_name": name,
                "span": {"start": position(start), "end": position(end)},
            },
            "genre": "FnValue",
            "replacement": value,
            "span": {"start": position(body), "end": position(end)},
        })
    }

    const SOURCE: &str = "/// é\nfn a() -> bool {\n    // x\n    let é = 1; é > 2\n}\nconst fn b() -> u8 { 1 }\nfn c() { fn d() -> u8 { 3 } d(); }\n";

    fn switches() -> Vec<Switch> {
        let a = |value| {
            mutant(
                "crates/k/src/lib.rs",
                ["a", value],
                [(1, 1), (4, 5), (5, 2)],
            )
        };
        let list = json!([
            a("true"),
            a("false"),
            a("never"),
            mutant(
                "crates/k/src/lib.rs",
                ["b", "0"],
                [(6, 1), (6, 22), (6, 25)]
            ),
            mutant(
                "crates/k/src/lib.rs",
                ["c", "()"],
                [(7, 1), (7, 10), (7, 36)]
            ),
            mutant(
                "crates/k/src/lib.rs",
                ["d", "0"],
                [(7, 10), (7, 25), (7, 28)]
            ),
        ]);
        read(&list)
    }

    #[test]
    fn switches_are_inserted_at_the_start_of_functions() {
        let switches = switches();
        let ids: Vec<u32> = switches.iter().map(|switch| switch.id).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5]);
        let all: Vec<&Switch> = switches.iter().collect();
        let (changed, placed) = insert(SOURCE, &all);
        let off =
            |id, value| format!("if crate::xtask_switches::is_off({id}) {{ return {value}; }} ");
        let expected = format!(
            "/// é\nfn a() -> bool {{\n    // x\n    {}{}let é = 1; é > 2\n}}\nconst fn b() -> u8 {{ 1 }}\nfn c() {{ {}fn d() -> u8 {{ {}3 }} d(); }}\n",
            off(1, "true"),
            off(2, "false"),
            off(4, "()"),
            off(5, "0")
        );
        assert_eq!(changed, expected);
        let of = |place: &Placed| {
            let inserted = &changed[place.inserted.clone()];
            let function = &changed[place.function.clone()];
            (place.id, inserted.len(), function.to_owned())
        };
        let (id, length, function) = of(&placed[3]);
        assert_eq!((id, length), (5, off(5, "0").len()));
        assert_eq!(function, format!("fn d() -> u8 {{ {}3 }}", off(5, "0")));
        assert!(of(&placed[0]).2.ends_with("é > 2\n}"));
    }

    #[test]
    fn only_functions_of_libraries_get_switches() {
        let at = [(1, 1), (1, 10), (1, 12)];
        let file = |file: &str| mutant(file, ["f", "0"], at);
        let mut operator = file("crates/k/src/lib.rs");
        operator["genre"] = "BinaryOperator".into();
        let list = json!([
            file("crates/k/src/main.rs"),
            file("crates/k/src/bin/x.rs"),
            file("crates/k/src/a/tests/b.rs"),
            file("crates/agent-subprocess/src/sys.rs"),
            file("crates/agent-duplex/src/contract/scenarios.rs"),
            file("lab/crash/src/lib.rs"),
            operator,
            mutant(
                "crates/k/src/a.rs",
                ["<impl Debug for T>::fmt", "Ok(())"],
                at
            ),
            mutant("crates/k/src/a.rs", ["f", "::std::iter::empty()"], at),
        ]);
        assert!(read(&list).is_empty());
    }

    #[test]
    fn each_left_out_file_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for (place, _) in LEFT_OUT {
            let (folder, file) = (root.join(place), root.join(format!("{place}.rs")));
            assert!(folder.exists() || file.exists(), "{place}");
        }
    }
}
