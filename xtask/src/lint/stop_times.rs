//! Compares the table of times in the guide with the constants in the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::lint::shipped;
use crate::sources::Source;
use crate::workspace::Workspace;

const PAGE: &str = "docs/guide/times.md";

/// Constants that are not in the tables because they limit no wait of a stop: polling intervals, start times, defaults of a run, and limits of
/// numbers. They are named by crate, so that a move to another file changes nothing here.
const OTHER: &[(&str, &[&str])] = &[
    (
        "agent-api",
        &[
            "DEFAULT_TIME_LIMIT",
            "FIRST_WAIT",
            "LONGEST",
            "LONGEST_WAIT",
            "MAX_TIME_LIMIT",
            "REQUEST_LIMIT",
            "STREAM_END",
        ],
    ),
    (
        "agent-drivers",
        &[
            "FIRST_OUTPUT_TIMEOUT",
            "LATEST",
            "LONGEST",
            "OPEN",
            "POLL",
            "VERSION",
        ],
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
            "RETRY_WAITS",
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
            "AGAIN",
            "AGENT_TIMEOUT",
            "CHECK_INTERVAL",
            "COMMAND_WAIT",
            "DAY",
            "DEFAULT_IDLE_TIMEOUT",
            "DEFAULT_WAIT",
            "FILE_LIFE",
            "FILE_SYSTEM_TIMEOUT",
            "FIRST",
            "FIRST_EVENT",
            "LAST_REQUESTS",
            "LIST_TIMEOUT",
            "LOGIN_NOTICE",
            "LOGIN_TIMEOUT",
            "LONGEST_REST",
            "MIN_CONNECTION_TIME",
            "NEXT_LOOK",
            "NEXT_OWNER",
            "POLL",
            "PROBE_TIMEOUT",
            "READ_TIMEOUT",
            "RECORD_TIMEOUT",
            "REST",
            "RETRY",
            "SHOWS",
            "STOP_REPORT",
            "SURVIVORS",
            "TEST_MARGIN",
            "TOTAL_TIMEOUT",
            "UNTAKEN_INTERVAL",
            "WATCHED",
        ],
    ),
    (
        "rlm-fleet",
        &[
            "BUDGET_INTERVAL",
            "DUPLICATES",
            "FIRST_RETRY",
            "LONGEST_PAUSE",
            "LONGEST_PULL",
            "LONGEST_RETRY",
            "LONGEST_WAIT",
            "MIN_LEASE",
            "PROBE",
            "READ_INTERVAL",
            "RECONNECT_GRACE",
            "WAIT_INTERVAL",
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
            "MERGE_TIMEOUT",
            "OLD",
            "POLL",
            "QUERY_TIMEOUT",
            "SNAPSHOT_TIMEOUT",
            "STATUS_TIMEOUT",
            "STATUS_WAIT",
        ],
    ),
    (
        "rlm-view",
        &[
            "ACCEPT_AGAIN",
            "ANSWER_TIMEOUT",
            "ATTACH_AGAIN",
            "ATTEMPT_TIME",
            "FIRST_SCAN",
            "FORM_TIMEOUT",
            "HEADER_TIMEOUT",
            "HEALTH_TIMEOUT",
            "INBOX_AGE",
            "INTERVAL",
            "KEEP_ALIVE",
            "LINGER",
            "LINK_LIFE",
            "MAX_AGE",
            "PAGE_AGE",
            "POLL",
            "READ_INTERVAL",
            "RETRY",
            "ROLLBACK",
            "SCAN_INTERVAL",
            "SESSION_LIFE",
            "SLOWEST",
            "TIMEOUT",
            "WAIT",
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
    path: PathBuf,
    name: String,
    times: Vec<Duration>,
}

impl Constant {
    /// Returns the directory of the crate.
    fn of(&self) -> &str {
        let directory = self.path.iter().nth(1);
        directory.and_then(|it| it.to_str()).unwrap_or_default()
    }

    fn is_in_table(&self) -> bool {
        self.path.ends_with("src/times.rs")
    }

    fn is_listed(&self, others: &[(&str, &[&str])]) -> bool {
        let mut names = { others.iter() }
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
    rows.filter_map(|line| {
        let mut parts = line.split('`').skip(1).step_by(2);
        Some((parts.next()?, parts.next()?, line.split(" | ").nth(1)?))
    })
    .collect()
}

pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let page = match fs_err::read_to_string(workspace.root.join(PAGE)) {
        Ok(page) => page,
        Err(error) => return vec![error.to_string()],
    };
    judge(&page, &shipped::sources(workspace), OTHER)
}

/// Compares the page with the sources. `others` are the constants that are not in the tables.
fn judge(page: &str, sources: &[Source], others: &[(&str, &[&str])]) -> Vec<String> {
    let all: Vec<&Source> = sources.iter().collect();
    let (shipped, unread) = shipped::read(&all);
    let found: Vec<Constant> = { sources.iter() }
        .filter(|source| shipped.contains_key(source.path.as_path()))
        // The contract is code for the tests of drivers.
        .filter(|source| !source.path.iter().any(|part| part == "contract"))
        .flat_map(|source| constants(&source.path, &source.text))
        .collect();
    let mut wrong = BTreeSet::from_iter(unread);
    let rows = rows(page);
    for (of, name, value) in &rows {
        let mut same =
            { found.iter() }.filter(|it| it.is_in_table() && it.of() == *of && it.name == *name);
        let is = same.next().map(|constant| written(&constant.times));
        if is.as_deref() != Some(*value) {
            let is = is.unwrap_or_else(|| "nothing".into());
            wrong.insert(format!("{PAGE}: {of} {name} is {value}, in the code {is}"));
        }
    }
    for constant in &found {
        let is_row =
            |(of, name, _): &(&str, &str, &str)| constant.of() == *of && constant.name == *name;
        let (path, name) = (constant.path.display(), &constant.name);
        if constant.is_in_table() {
            if !rows.iter().any(is_row) {
                wrong.insert(format!("{path}: {name} is not in {PAGE}"));
            }
        } else if !constant.is_listed(others) {
            wrong.insert(format!(
                "{path}: {name} is neither in a `times.rs` nor listed in xtask/src/lint/stop_times.rs"
            ));
        }
    }
    for (of, names) in others {
        let is_here = |name: &str| {
            { found.iter() }.any(|it| !it.is_in_table() && it.of() == *of && it.name == name)
        };
        for name in names.iter().filter(|name| !is_here(name)) {
            wrong.insert(format!(
                "xtask/src/lint/stop_times.rs: {of} has no {name}: remove the row"
            ));
        }
    }
    wrong.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_guide_or_listed() {
        let table = "pub const A: Duration = Duration::from_secs(2);\n";
        let other = "const B: Duration = Duration::from_millis(50);\n";
        let row = |value: &str| format!("| `a` `A` | {value} | a stop | nothing |\n");
        let judged = |page: &str, others: &[(&str, &[&str])]| {
            let source = |path: &str, text: &str| Source {
                path: path.into(),
                text: text.to_owned(),
            };
            let sources = [
                source("crates/a/src/times.rs", table),
                source("crates/a/src/lib.rs", other),
                source("crates/a/src/contract/run.rs", other),
            ];
            judge(page, &sources, others)
        };
        assert_eq!(judged(&row("2 s"), &[("a", &["B"])]), [""; 0]);
        assert_eq!(
            judged(&row("3 s"), &[("a", &["B", "C"])]),
            [
                "docs/guide/times.md: a A is 3 s, in the code 2 s",
                "xtask/src/lint/stop_times.rs: a has no C: remove the row",
            ]
        );
        assert_eq!(
            judged("", &[]),
            [
                "crates/a/src/lib.rs: B is neither in a `times.rs` nor listed in xtask/src/lint/stop_times.rs",
                "crates/a/src/times.rs: A is not in docs/guide/times.md",
            ]
        );
    }
}
