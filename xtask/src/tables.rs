//! The tables of the README: what our own suites counted, when, and on which machine.

use std::path::{Path, PathBuf};
use std::thread;

use fs_err as fs;
use serde_json::Value;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::{Workspace, array};

/// The loop that everybody has: what `rlm` stands beside.
const BARE: &str = "while :; do {agent}; done";

/// Which figures are written.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Two stops in each way and the quick crash tests, instead of twenty and those of a change.
    #[arg(long)]
    quick: bool,
    /// Runs nothing, and writes what `survivors --json` and `crash-test --json` left in this folder: survivors.json, bare.json (the loop of bash) and crash-test.json.
    #[arg(long, value_name = "FOLDER", conflicts_with = "quick", value_parser = crate::bench::absolute)]
    from: Option<PathBuf>,
}

/// Runs the suites and writes their tables. They are written whatever came of them, since they say what was counted.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let mut tally = Tally::default();
    let folder = workspace.target.join("tables");
    let folder = arguments.from.as_ref().unwrap_or(&folder);
    if arguments.from.is_none() {
        tally += count(folder, arguments.quick);
    }
    match write(&workspace.root.join("README.md"), folder) {
        Ok(()) => tally.passed += 1,
        Err(why) => tally += Tally::failed(format!("tables: {why}")),
    }
    tally
}

/// Runs the suites; what they count goes into files in this folder.
fn count(folder: &Path, quick: bool) -> Tally {
    let mut tally = Tally::default();
    if let Err(error) = fs::create_dir_all(folder) {
        return Tally::failed(format!("tables: {error}"));
    }
    let all: [(&str, &[&str]); 3] = [
        ("rlm-loop", &["--bin", "rlm"]),
        ("rlm-survivors", &[]),
        ("rlm-crash", &[]),
    ];
    if let Some((package, _)) = all
        .iter()
        .find(|(package, part)| !command::build(package, part))
    {
        return Tally::failed(format!("tables: {package} does not compile"));
    }
    let stops: &[&str] = if quick { &["--quick"] } else { &[] };
    let level = if quick { "--quick" } else { "--ci" };
    let bare = [&["--tool", BARE], stops].concat();
    let ours = counted(folder, "rlm-survivors", "survivors", "survivors", stops);
    // It is there to leave something.
    let _left = counted(folder, "rlm-survivors", "survivors", "bare", &bare);
    let crash = counted(folder, "rlm-crash", "crash-test", "crash-test", &[level]);
    for (kept, suite) in [(ours, "survivors"), (crash, "crash-test")] {
        match kept {
            true => tally.passed += 1,
            false => tally += Tally::failed(format!("tables: {suite}: a promise was not kept")),
        }
    }
    tally
}

/// Writes the tables of what was counted.
fn write(readme: &Path, folder: &Path) -> Result<(), String> {
    let read = |name: &str| -> Result<Value, String> {
        let text = fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))
    };
    let when = when();
    let stops = survivors(&read("survivors.json")?, &read("bare.json")?, &when);
    let crashes = crashes(&read("crash-test.json")?, &when);
    let page = fs::read_to_string(readme).map_err(|error| error.to_string())?;
    let page = between(&page, "survivors", &stops)
        .and_then(|page| between(&page, "crash-test", &crashes))
        .ok_or("README.md has no place for them")?;
    fs::write(readme, page).map_err(|error| error.to_string())
}

/// Runs a suite; tells whether it was content.
fn counted(folder: &Path, package: &str, program: &str, name: &str, words: &[&str]) -> bool {
    let file = folder.join(format!("{name}.json"));
    // What another time counted is no figure of this one.
    let _none = fs::remove_file(&file);
    let path = file.to_string_lossy();
    let cargo = [
        "run",
        "--quiet",
        "--release",
        "-p",
        package,
        "--bin",
        program,
        "--",
    ];
    let words = [&cargo[..], words, &["--json", &path]].concat();
    command::run("cargo", &words, Show::AsItComes).success
}

/// The day and the machine: figures without them say little.
fn when() -> String {
    let said = |program, words: &[&str]| {
        let ended = command::run(program, words, Show::Never);
        ended.output.trim().to_owned()
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (day, machine) = (said("date", &["-u", "+%Y-%m-%d"]), said("uname", &["-sm"]));
    format!("{day}, {machine}, {cores} cores")
}

/// Puts a table where the page has a place for it.
fn between(page: &str, name: &str, table: &str) -> Option<String> {
    let begin = format!("<!-- {name}:begin -->\n");
    let end = format!("<!-- {name}:end -->");
    let (head, rest) = page.split_once(&begin)?;
    let (_, tail) = rest.split_once(&end)?;
    Some(format!("{head}{begin}{table}{end}{tail}"))
}

fn survivors(ours: &Value, bare: &Value, when: &str) -> String {
    let mut text = format!(
        "Stops that left a process alive, of an agent with a child, a child in a session of its own, a daemon, and a grandchild that holds its output \
         ([`survivors`](survivors/README.md), {when}):\n\n\
         | stopped by | `rlm` | `{}` |\n|---|---|---|\n",
        BARE.replace("{agent}", "agent")
    );
    let rows = [ours, bare].map(|score| score["ways"].as_array().cloned().unwrap_or_default());
    for (ours, bare) in rows[0].iter().zip(&rows[1]) {
        let way = ours["way"].as_str().unwrap_or_default();
        text += &format!("| {way} | {} | {} |\n", left(ours), left(bare));
    }
    text
}

/// How many stops of a way left something, and what, or did not stop the tool at all.
fn left(way: &Value) -> String {
    let count = |name: &str| way[name].as_u64().unwrap_or_default();
    let runs = way["each"].as_array().into_iter().flatten();
    let bad = runs.filter(|run| run["verdict"] != "ended" || run["left"] != serde_json::json!([]));
    let mut what: Vec<&str> = way["runs_with_survivors"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, runs)| runs.as_u64() > Some(0))
        .map(|(role, _)| role.as_str())
        .collect();
    if count("ignored") > 0 {
        what.push("the loop itself goes on");
    }
    if count("never_ready") > 0 {
        what.push("some could not be judged");
    }
    let (bad, all) = (bad.count(), count("runs"));
    match what.is_empty() {
        true => format!("{bad} of {all}"),
        false => format!("{bad} of {all}: {}", what.join(", ")),
    }
}

fn crashes(table: &Value, when: &str) -> String {
    let level = table["level"].as_str().unwrap_or_default();
    let mut text = format!(
        "Saves that were acknowledged and then lost ([`crash-test --{level}`](crash/README.md), {when}):\n\n\
         | | what is done to the store | tried | faults | acknowledged | lost |\n|---|---|---|---|---|---|\n"
    );
    for layer in array(&table["layers"]) {
        let word = |name: &str| layer[name].as_str().unwrap_or_default().to_owned();
        let figure = |name: &str| grouped(layer[name].as_u64().unwrap_or_default());
        let is_skipped = layer["tried"] == 0;
        let figures = ["tried", "faults", "acked", "lost"].map(|name| match is_skipped {
            true => "–".to_owned(),
            false => figure(name),
        });
        let why = match is_skipped {
            true => " (not on this machine)",
            false => "",
        };
        text += &format!(
            "| {} | {}{why} | {} |\n",
            word("item"),
            word("what"),
            figures.join(" | ")
        );
    }
    let skipped = array(&table["layers"]).flat_map(|layer| array(&layer["skipped"]));
    let skipped: Vec<&str> = skipped.filter_map(Value::as_str).collect();
    if !skipped.is_empty() {
        text += &format!("\nNot tried there: {}.\n", skipped.join("; "));
    }
    text
}

/// `12,345`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let page = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let written = between(page, "x", "new\n").unwrap();
        assert_eq!(written, "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n");
        assert!(between(page, "y", "").is_none());
    }

    #[test]
    fn what_was_not_tried_is_said() {
        let layer = json!({"item": "D7", "what": "full", "tried": 2, "faults": 1, "acked": 1, "lost": 0, "skipped": ["xfs: no mkfs"]});
        let told = crashes(&json!({"level": "ci", "layers": [layer]}), "today");
        assert!(
            told.ends_with("| D7 | full | 2 | 1 | 1 | 0 |\n\nNot tried there: xfs: no mkfs.\n"),
            "{told}"
        );
    }

    #[test]
    fn a_cell_says_how_often_and_what() {
        let clean = json!({"runs": 2, "each": [{"verdict": "ended", "left": []}, {"verdict": "ended", "left": []}], "runs_with_survivors": {"agent": 0}});
        assert_eq!(left(&clean), "0 of 2");
        let bad = json!({"runs": 2, "ignored": 1, "each": [{"verdict": "ended", "left": [1]}, {"verdict": "ignored", "left": []}], "runs_with_survivors": {"daemon": 1}});
        assert_eq!(left(&bad), "2 of 2: daemon, the loop itself goes on");
        assert_eq!(
            (grouped(0), grouped(1_234_567)),
            ("0".into(), "1,234,567".into())
        );
    }
}
