//! Compares the table of times in the guide with the constants in the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Constants that are not in the tables because they limit no wait of a stop: polling intervals, start times, defaults of a run, and limits of
/// numbers. They are named by crate, so that a move to another file changes nothing here.
const OTHER: &[(&str, &[&str])] = &[
    (
        "agent-drivers",
        &["FIRST_OUTPUT_TIMEOUT", "LONGEST", "OPEN", "POLL", "VERSION"],
    ),
    (
        "agent-duplex",
        &["BUSY_TIMEOUT", "FOREVER", "POLL", "RELEASE", "RETRY_DELAY"],
    ),
    (
        "agent-subprocess",
        &[
            "FOREVER",
            "MAX_BUDGET",
            "POLL",
            "REPLY_TIMEOUT",
            "ROUND",
            "WRITE_WAIT",
        ],
    ),
    ("cancellable-sleep", &["CHECK_INTERVAL"]),
    ("checkpoint-store", &["DAY"]),
    (
        "interrupt-stack",
        &[
            "HANDLER_GRACE",
            "MISSED_AFTER",
            "STOP_SIGNAL_GRACE",
            "UNWOKEN",
        ],
    ),
    (
        "loop-runner",
        &[
            "FIRST",
            "INTERVAL",
            "JUMP",
            "LEAST",
            "LONGEST",
            "LONGEST_WAIT",
            "MAX_REPORT_DELAY",
            "MIN_NAMED_WAIT",
            "POLL",
            "RECOVERY",
            "SLOWEST",
            "STALE",
            "STATUS_MAX_AGE",
            "TIMEOUT",
            "VIEW_INTERVAL",
        ],
    ),
    (
        "loop-state",
        &[
            "CHECK_TIMEOUT",
            "FIRST_RATE_LIMIT_WAIT",
            "FIRST_RETRY",
            "LONGEST_DELAY",
            "LONGEST_RATE_LIMIT_WAIT",
            "MAX_JITTER",
            "MOST",
            "RATE_LIMIT_MARGIN",
            "WAITING",
            "WAIT_ON_LIMIT",
        ],
    ),
    (
        "rlm",
        &[
            "AGENT_TIMEOUT",
            "CHECK_INTERVAL",
            "DAY",
            "DEFAULT_IDLE_TIMEOUT",
            "DEFAULT_WAIT",
            "FILE_SYSTEM_TIMEOUT",
            "FIRST_EVENT",
            "LIST_TIMEOUT",
            "MIN_CONNECTION_TIME",
            "POLL",
            "PROBE_TIMEOUT",
            "RECORD_TIMEOUT",
            "TOTAL_TIMEOUT",
            "UNTAKEN_INTERVAL",
            "WATCHED",
        ],
    ),
    (
        "rlm-store",
        &[
            "BACKGROUND_WAIT",
            "CHECKOUT_TIMEOUT",
            "CHECK_INTERVAL",
            "COMMAND_TIMEOUT",
            "FLUSH_EVERY",
            "HISTORY_TIMEOUT",
            "JOIN_WITHIN",
            "OLD",
            "POLL",
            "QUERY_TIMEOUT",
            "STATUS_TIMEOUT",
            "STATUS_WAIT",
        ],
    ),
    (
        "rlm-terminal",
        &[
            "ESCAPE_WAIT",
            "FOREGROUND_POLL",
            "PASTE_WAIT",
            "PROMPT_TICK",
            "READING",
            "TICK",
            "TOGETHER",
        ],
    ),
    ("rlm-text", &["MOST"]),
];

struct Constant {
    /// The path below `crates`.
    path: PathBuf,
    name: String,
    times: Vec<Duration>,
}

impl Constant {
    /// Returns the directory of the crate.
    fn of(&self) -> &str {
        self.path.iter().next().and_then(|it| it.to_str()).unwrap()
    }

    fn is_in_table(&self) -> bool {
        self.path.strip_prefix(self.of()) == Ok(Path::new("src/times.rs"))
    }

    fn is_other(&self) -> bool {
        let mut names = { OTHER.iter() }
            .filter(|(of, _)| *of == self.of())
            .flat_map(|(_, names)| *names);
        names.any(|name| *name == self.name)
    }
}

/// Returns the constants of a file whose value contains a time.
fn constants(path: &Path, text: &str) -> Vec<Constant> {
    let shipped = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let declared = shipped.split("const ").skip(1);
    let found = declared.filter_map(|rest| {
        let (name, rest) = rest.split_once(": ")?;
        let (kind, value) = rest.split_once(" = ")?;
        let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        // The type of an array contains a `;`, so the value ends only at a `;` before a line break.
        let value = value.split_once(";\n").map_or(value, |(value, _)| value);
        // The constants with the stages of a stop have longer types; they take their times from the table.
        let is_time = kind.len() < 40 && kind.contains("Duration") && value.contains("Duration::");
        (is_name && is_time).then(|| Constant {
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

/// Formats times as the guide does.
fn written(times: &[Duration]) -> String {
    let time = |time: &Duration| match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    };
    let times: Vec<String> = times.iter().map(time).collect();
    times.join(", ")
}

/// Returns crate, name and value of each row in the guide.
fn rows(page: &str) -> Vec<(&str, &str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let parts: Vec<&str> = line.split('`').collect();
        let value = line.split(" | ").nth(1).unwrap_or_default();
        (parts[1], parts[3], value)
    })
    .collect()
}

fn read(crates: &Path, folder: &Path, found: &mut Vec<Constant>) {
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
            read(crates, &path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(constants(path.strip_prefix(crates).unwrap(), &text));
        }
    }
}

#[test]
fn guide_has_the_stop_times_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(page) = std::fs::read_to_string(root.join("docs/guide/times.md")) else {
        println!("skipped: the guide does not exist here");
        return;
    };
    let (crates, mut found) = (root.join("crates"), Vec::new());
    for entry in std::fs::read_dir(&crates).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            read(&crates, &sources, &mut found);
        }
    }
    let mut wrong = BTreeSet::new();
    let rows = rows(&page);
    for (of, name, value) in &rows {
        let mut same =
            { found.iter() }.filter(|it| it.is_in_table() && it.of() == *of && it.name == *name);
        let is = same.next().map(|constant| written(&constant.times));
        if is.as_deref() != Some(*value) {
            wrong.insert(format!(
                "{of} {name}: the guide has {value}, the code {is:?}"
            ));
        }
    }
    for constant in &found {
        let is_row =
            |(of, name, _): &(&str, &str, &str)| constant.of() == *of && constant.name == *name;
        let (path, name) = (constant.path.display(), &constant.name);
        if constant.is_in_table() {
            if !rows.iter().any(is_row) {
                wrong.insert(format!("{path} {name}: not in the guide"));
            }
        } else if !constant.is_other() {
            wrong.insert(format!(
                "{path} {name}: neither in a `times.rs` nor listed in `OTHER`"
            ));
        }
    }
    for (of, names) in OTHER {
        let is_here = |name: &str| {
            { found.iter() }.any(|it| !it.is_in_table() && it.of() == *of && it.name == name)
        };
        for name in names.iter().filter(|name| !is_here(name)) {
            wrong.insert(format!("{of} {name}: the constant does not exist"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
