//! A session of a user: what each command prints, and its exit code.

use std::fmt::Write as _;

use crate::{place, rlm};

/// An agent that needs two turns.
const AGENT: [&str; 3] = [
    "sh",
    "-c",
    "cat >/dev/null; test -e one && touch two; touch one; echo worked",
];

/// Runs commands in an empty project, and returns what a user sees.
fn session(commands: &[Vec<&str>]) -> String {
    let place = place();
    let mut seen = String::new();
    for arguments in commands {
        let ended = rlm(place.path(), arguments);
        let shown: Vec<String> = arguments
            .iter()
            .map(
                |it| match it.contains(' ') || it.contains(char::is_control) {
                    true => format!("'{}'", it.escape_default()),
                    false => (*it).to_owned(),
                },
            )
            .collect();
        writeln!(seen, "$ rlm {}", shown.join(" ")).unwrap();
        seen.push_str(&ended.stdout);
        for line in ended.stderr.lines() {
            writeln!(seen, "! {line}").unwrap();
        }
        writeln!(seen, "=> {}\n", ended.code.unwrap()).unwrap();
    }
    // The directory has a random name.
    let real = fs_err::canonicalize(place.path()).unwrap();
    seen.replace(real.to_str().unwrap(), "[PLACE]")
}

/// Compares a session with its snapshot, without what differs from time to time.
macro_rules! assert_session {
    ($seen:expr) => {
        insta::with_settings!({filters => vec![
            (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[AT]"),
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "[ID]"),
            (r"prompt-[0-9a-f]{32}", "prompt-[ID]"),
            (r"\d{8}-\d{6}-[0-9a-f]{4}", "[RUN]"),
            (r"save +\d+", "save [N]"),
            (r"(\d+/\d+ +)\d+s +", "$1[TIME] "),
            (r"\(pid \d+\)", "(pid [PID])"),
            (r"\(\d+\.\d s\)", "([TIME])"),
            (r"\d+s ago", "[TIME] ago"),
            (r"age     \d+s", "age     [TIME]"),
            (r"\d+ kB", "[SIZE]"),
            (r#""(pid|took_ms|left_ms)":\d+"#, r#""$1":[N]"#),
        ]}, {
            insta::assert_snapshot!($seen);
        });
    };
}

fn command<'a>(before: &[&'a str], agent: &[&'a str]) -> Vec<&'a str> {
    [before, &["--"], agent].concat()
}

#[test]
fn run_that_finishes_and_the_commands_that_read_it() {
    let run = [
        "run",
        "--run-id",
        "first",
        "--sleep",
        "0s",
        "-p",
        "Write two.",
        "--until",
        "test -e two",
    ];
    let seen = session(&[
        command(&run, &AGENT),
        vec!["status", "first"],
        vec!["logs", "first"],
        vec!["checkpoints", "list", "first"],
        vec!["ps"],
        vec!["stop", "first"],
        vec!["resume", "first"],
        command(&run, &AGENT),
        vec!["report", "first"],
        vec!["clean", "--all", "--dry-run"],
    ]);
    assert_session!(seen);
}

#[test]
fn each_end_of_a_run_has_its_exit_code() {
    let limit = [
        "run", "--run-id", "limit", "-n", "1", "-p", "x", "--until", "false",
    ];
    let plan = ["run", "--run-id", "plan", "--once", "-p", "x"];
    let stuck = [
        "run",
        "--run-id",
        "stuck",
        "-n",
        "5",
        "--sleep",
        "0s",
        "--max-failures",
        "2",
        "-p",
        "x",
    ];
    let done = ["run", "--run-id", "done", "-p", "x", "--until", "true"];
    let seen = session(&[
        command(&limit, &["true"]),
        vec!["resume", "limit", "-n", "2"],
        command(&plan, &["true"]),
        command(&stuck, &["false"]),
        command(&done, &["true"]),
        vec!["status"],
    ]);
    assert_session!(seen);
}

#[test]
fn each_mistake_has_one_message() {
    let seen = session(&[
        vec!["status"],
        vec!["status", "nothere"],
        vec!["run"],
        vec!["run", "-p", "x", "--", "true"],
        vec!["run", "--max-iteration", "3"],
        vec!["run", "--once", "-n", "3", "-p", "x", "--", "true"],
        vec!["run", "--once", "--", "true"],
        vec!["run", "--once", "-P", "a\u{1b}[2Jb.md", "--", "true"],
        vec!["run", "--once", "-p", "x", "--", "no-such-agent"],
        vec!["run", "--once", "-p", "x", "--run-id", "../x", "--", "true"],
        vec!["frobnicate"],
        vec!["steer", "hello"],
        vec!["resume"],
        vec!["-C", "nowhere", "status"],
    ]);
    assert_session!(seen);
}

#[test]
fn programs_get_events_as_json() {
    let run = [
        "run",
        "--run-id",
        "first",
        "--sleep",
        "0s",
        "--json",
        "-p",
        "Write two.",
        "--until",
        "test -e two",
    ];
    assert_session!(session(&[command(&run, &AGENT)]));
}
