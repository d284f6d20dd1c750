//! Writes the tables of `docs/proof.md`: the results of our test suites, with the date and the machine.

use std::path::{Path, PathBuf};
use std::thread;

use fs_err as fs;
use serde_json::Value;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::{Workspace, array};
use crate::{bench, date, peers};

/// The simplest loop, as the baseline for `rlm`.
const BARE: &str = "while :; do {agent}; done";
/// The peer loop runner: it starts any command, without a model or an account.
const RUNNER: &str = "ralphify";

/// The page with the tables.
const PAGE: &str = "docs/proof.md";

/// The suites to run, or the directory of their results.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run two stops in each way and `crash-test --quick`, instead of twenty stops and `crash-test --ci`
    #[arg(long)]
    quick: bool,
    /// First install the peer loop runner below `target/tools`
    #[arg(long)]
    peers: bool,
    /// Run nothing, and use the results of `survivors --json` and `crash-test --json` in this folder: survivors.json, ralphify.json if present,
    /// bare.json (the loop of bash) and crash-test.json
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["quick", "peers"], value_parser = bench::absolute)]
    from: Option<PathBuf>,
}

/// A column of the table of survivors.
struct Loop {
    heading: String,
    /// The command that starts it; `None` is `rlm`.
    command: Option<String>,
    /// The file name of its score.
    file: &'static str,
}

/// Returns `rlm`, the peer if it is installed or if its score exists, and a loop of bash.
fn loops(program: Option<&Path>) -> Vec<Loop> {
    let ours = Loop {
        heading: "`rlm`".into(),
        command: None,
        file: "survivors",
    };
    let peer = program.map(|program| Loop {
        heading: peers::versioned(RUNNER),
        command: Some(runner(program)),
        file: RUNNER,
    });
    let bare = Loop {
        heading: format!("`{}`", BARE.replace("{agent}", "agent")),
        command: Some(BARE.into()),
        file: "bare",
    };
    [Some(ours), peer, Some(bare)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the command of the peer, which reads its agent from a file in its own directory.
fn runner(program: &Path) -> String {
    let program = program.to_string_lossy().replace('\'', r"'\''");
    format!(
        r"mkdir loop && printf -- '---\nagent: %s\n---\nDo the next step.\n' {{agent}} > loop/RALPH.md && exec '{program}' run loop -n 100"
    )
}

/// Runs the suites and writes their tables, also after a failure, since the tables state the counts.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Tally {
    let mut tally = Tally::default();
    let folder = workspace.target.join("tables");
    let folder = arguments.from.as_ref().unwrap_or(&folder);
    if arguments.peers {
        tally += peers::install(&workspace.target);
    }
    if arguments.from.is_none() {
        tally += count(&workspace.target, folder, arguments.quick);
    }
    match write(&workspace.root.join(PAGE), folder) {
        Ok(()) => tally.passed += 1,
        Err(why) => tally += Tally::failed(format!("tables: {why}")),
    }
    tally
}

/// Runs the suites, which write their counts into files in this directory.
fn count(target: &Path, folder: &Path, quick: bool) -> Tally {
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
        return Tally::failed(format!("tables: {package} doesn't compile"));
    }
    let program = peers::program(target, "ralph");
    if program.is_none() {
        tally += Tally::skipped(format!(
            "tables: {RUNNER}: not installed; install it with `--peers`"
        ));
    }
    for each in loops(program.as_deref()) {
        let tool = each.command.iter().flat_map(|tool| ["--tool", tool]);
        let words: Vec<&str> = tool.chain(quick.then_some("--quick")).collect();
        let is_clean = counted(folder, "rlm-survivors", "survivors", each.file, &words);
        // Survivors of the baselines are expected.
        if each.command.is_none() {
            tally += kept("survivors", is_clean);
        }
    }
    let level = if quick { "--quick" } else { "--ci" };
    let is_clean = counted(folder, "rlm-crash", "crash-test", "crash-test", &[level]);
    tally += kept("crash-test", is_clean);
    tally
}

fn kept(suite: &str, is_clean: bool) -> Tally {
    match is_clean {
        true => Tally::passed(1),
        false => Tally::failed(format!("tables: {suite}: an invariant failed")),
    }
}

/// Writes the tables of the counts.
fn write(page: &Path, folder: &Path) -> Result<(), String> {
    let read = |name: &str| -> Result<Value, String> {
        let path = folder.join(name).with_extension("json");
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))
    };
    let when = when();
    let peer = folder.join(RUNNER).with_extension("json");
    let mut columns = Vec::new();
    for each in loops(
        Some(&peer)
            .filter(|peer| peer.exists())
            .map(|_| Path::new("")),
    ) {
        columns.push((each.heading, read(each.file)?));
    }
    let stops = survivors(&columns, &when);
    let crashes = crashes(&read("crash-test")?, &when);
    let text = fs::read_to_string(page).map_err(|error| error.to_string())?;
    let text = between(&text, "survivors", &stops)
        .and_then(|text| between(&text, "crash-test", &crashes))
        .ok_or_else(|| format!("{PAGE} has no markers for the tables"))?;
    fs::write(page, text).map_err(|error| error.to_string())
}

/// Runs a suite. Returns whether it passed.
fn counted(folder: &Path, package: &str, program: &str, name: &str, words: &[&str]) -> bool {
    let file = folder.join(format!("{name}.json"));
    // Figures of an earlier run must not count for this one.
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

/// Replaces one table of the page.
pub(crate) fn replace(root: &Path, name: &str, table: &str) -> Result<(), String> {
    let page = root.join(PAGE);
    let text = fs::read_to_string(&page).map_err(|error| error.to_string())?;
    let text = between(&text, name, table)
        .ok_or_else(|| format!("{PAGE} has no markers for the table {name}"))?;
    fs::write(page, text).map_err(|error| error.to_string())
}

/// Returns the day and the machine, without which the figures mean little.
pub(crate) fn when() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let machine = command::run("uname", &["-sm"], Show::Never).output;
    format!("{}, {}, {cores} cores", date::today(), machine.trim())
}

/// Inserts a table between its markers on the page.
fn between(page: &str, name: &str, table: &str) -> Option<String> {
    let begin = format!("<!-- {name}:begin -->\n");
    let end = format!("<!-- {name}:end -->");
    let (head, rest) = page.split_once(&begin)?;
    let (_, tail) = rest.split_once(&end)?;
    Some(format!("{head}{begin}{table}{end}{tail}"))
}

fn survivors(columns: &[(String, Value)], when: &str) -> String {
    let headings: Vec<&str> = columns.iter().map(|column| column.0.as_str()).collect();
    let mut text = format!(
        "Each cell is the number of stops that left a process alive. The agent has a child, a child in its own session, a daemon, and a grandchild that holds its output open. \
         In brackets: the seconds until the last process was gone, median and maximum ([`survivors`](../lab/survivors/README.md), {when}).\n\n\
         | stopped by | {} |\n|---|{}\n",
        headings.join(" | "),
        "---|".repeat(headings.len())
    );
    for (row, way) in array(&columns[0].1["ways"]).enumerate() {
        let cells = columns.iter().map(|column| left(&column.1["ways"][row]));
        let cells = cells.collect::<Vec<_>>().join(" | ");
        text += &format!(
            "| {} | {cells} |\n",
            way["way"].as_str().unwrap_or_default()
        );
    }
    text
}

/// Describes the stops of a way that left processes, the names of these processes, and whether the tool continued.
fn left(way: &Value) -> String {
    let count = |name: &str| way[name].as_u64().unwrap_or_default();
    let runs = way["each"].as_array().into_iter().flatten();
    let good = |run: &Value| match run["verdict"].as_str() {
        Some("ended") => run["left"] == serde_json::json!([]),
        verdict => matches!(verdict, Some("named" | "skipped")),
    };
    let bad = runs.filter(|run| !good(run));
    let mut what: Vec<&str> = way["runs_with_survivors"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, runs)| runs.as_u64() > Some(0))
        .map(|(role, _)| role.as_str())
        .collect();
    if count("ignored") > 0 {
        what.push("the loop itself continues");
    }
    if count("never_ready") > 0 {
        what.push("some could not be judged");
    }
    let (bad, all) = (bad.count(), count("runs") - count("skipped"));
    if all == 0 && count("skipped") > 0 {
        return "–".into();
    }
    if bad == 0 && count("named") > 0 {
        return format!("{bad} of {all} unnamed");
    }
    let gone = |which: &str| way["all_gone_s"][which].as_f64();
    match (what.is_empty(), gone("p50"), gone("max")) {
        (true, Some(p50), Some(max)) => format!("{bad} of {all} ({p50:.2}, {max:.2})"),
        (true, ..) => format!("{bad} of {all}"),
        (false, ..) => format!("{bad} of {all}: {}", what.join(", ")),
    }
}

fn crashes(table: &Value, when: &str) -> String {
    let level = table["level"].as_str().unwrap_or_default();
    let mut text = format!(
        "The last column is the number of saves that the store acknowledged and then lost ([`crash-test --{level}`](../lab/crash/README.md), {when}).\n\n\
         | | method | tried | faults | acknowledged | lost |\n|---|---|---|---|---|---|\n"
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
        text += &format!("\nNot tried on this machine: {}.\n", skipped.join("; "));
    }
    text
}

/// Formats a number as `12,345`.
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
    fn table_replaces_the_previous_one() {
        let page = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let written = between(page, "x", "new\n").unwrap();
        assert_eq!(written, "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n");
        assert!(between(page, "y", "").is_none());
    }

    #[test]
    fn each_loop_has_a_column() {
        let score = |count: u64| {
            let left = if count == 0 { json!([]) } else { json!([1]) };
            json!({"ways": [{"way": "SIGTERM", "runs": 1, "each": [{"verdict": "ended", "left": left}], "runs_with_survivors": {"agent": count}}]})
        };
        let columns = [("a".to_owned(), score(0)), ("b".into(), score(1))];
        let table = survivors(&columns, "today");
        let expected =
            "| stopped by | a | b |\n|---|---|---|\n| SIGTERM | 0 of 1 | 1 of 1: agent |\n";
        assert!(table.ends_with(expected), "{table}");
        let way = |verdict: &str| json!({"runs": 2, verdict: 2, "each": [{"verdict": verdict, "left": [1]}], "runs_with_survivors": {}});
        assert_eq!(left(&way("skipped")), "–");
        assert_eq!(left(&way("named")), "0 of 2 unnamed");
        assert_eq!(loops(None).len(), 2);
        assert_eq!(
            loops(Some(Path::new("/it's/ralph")))[1]
                .command
                .as_deref()
                .map(|it| it.contains(r"'/it'\''s/ralph'")),
            Some(true)
        );
    }

    #[test]
    fn skipped_checks_are_reported() {
        let layer = json!({"item": "D7", "what": "full", "tried": 2, "faults": 1, "acked": 1, "lost": 0, "skipped": ["xfs: no mkfs"]});
        let told = crashes(&json!({"level": "ci", "layers": [layer]}), "today");
        assert!(
            told.ends_with(
                "| D7 | full | 2 | 1 | 1 | 0 |\n\nNot tried on this machine: xfs: no mkfs.\n"
            ),
            "{told}"
        );
    }

    #[test]
    fn cell_has_count_and_kind() {
        let clean = json!({"runs": 2, "each": [{"verdict": "ended", "left": []}, {"verdict": "ended", "left": []}], "runs_with_survivors": {"agent": 0}});
        assert_eq!(left(&clean), "0 of 2");
        let mut timed = clean.clone();
        timed["all_gone_s"] = json!({"p50": 0.432, "max": 1.0});
        assert_eq!(left(&timed), "0 of 2 (0.43, 1.00)");
        let bad = json!({"runs": 2, "ignored": 1, "each": [{"verdict": "ended", "left": [1]}, {"verdict": "ignored", "left": []}], "runs_with_survivors": {"daemon": 1}});
        assert_eq!(left(&bad), "2 of 2: daemon, the loop itself continues");
        assert_eq!(
            (grouped(0), grouped(1_234_567)),
            ("0".into(), "1,234,567".into())
        );
    }
}
