//! Output that can't be written is an error; a closed pipe is not.

use rlm_tests::{Ended, Rlm};

use crate::scene::{PROMPT, Scene, says};
use crate::{LONG, RLM};

/// The one line on standard error.
const LOST: &str = "output was lost: can't write to standard output";

/// Commands, each with the arguments of a call that prints something. `LIVE` is a live run, `OVER` an ended one.
const CALLS: [&[&str]; 33] = [
    &["--help"],
    &["--version"],
    &["run", "--help"],
    &["run", "--dry-run", "--once", "-p", "x", "--", "true"],
    &["run", "--once", "-p", "x", "--worktree", "--", "true"],
    &[
        "run",
        "--once",
        "-p",
        "x",
        "--worktree",
        "--run-id",
        "tree",
        "--json",
        "--",
        "true",
    ],
    &["resume", "OVER", "--dry-run", "-n", "2"],
    &["ps"],
    &["ps", "--json"],
    &["status"],
    &["status", "--json"],
    &["status", "LIVE", "--alive"],
    &["logs", "OVER"],
    &["logs", "OVER", "--json"],
    &["report", "OVER", "-o", "-"],
    &["report", "OVER", "--json"],
    &["checkpoints", "list"],
    &["checkpoints", "list", "--json"],
    &["checkpoints", "show", "OVER"],
    &["checkpoints", "verify", "OVER"],
    &["merge", "tree", "--dry-run"],
    &["drop", "tree", "--dry-run"],
    &["clean", "--dry-run", "--all", "--days", "0"],
    &["init"],
    &["config", "show"],
    &["config", "schema"],
    &["doctor", "--json"],
    &["completions", "bash"],
    &["man"],
    &["steer", "LIVE", "use tabs"],
    &["set", "LIVE", "max-iterations=9"],
    &["pause", "LIVE", "--json"],
    &["stop", "LIVE", "--json"],
];
/// Commands without a row above, with the reason.
const OTHERS: [(&str, &str); 5] = [
    ("view", "it serves a page until somebody ends it"),
    (
        "attach",
        "it has its own test, because it ends with the run",
    ),
    (
        "interrupt",
        "it prints as `pause` does; the agent of this test has no session",
    ),
    ("demo", "it is a `run`"),
    ("fleet", "it needs a server"),
];

fn to_full<'a>(scene: &'a Scene, words: &[&str]) -> Rlm<'a> {
    let shell = scene.sandbox.rlm("/bin/sh");
    let shell = shell.args(["-c", "exec \"$@\" >/dev/full", "sh", RLM]);
    shell.args(words)
}

#[track_caller]
fn expect_lost(ended: &Ended, words: &[&str]) {
    assert_ne!(ended.code(), Some(0), "{words:?}: {ended}");
    assert!(ended.code().is_some(), "{words:?}: {ended}");
    let lines = ended.stderr.lines().filter(|line| line.contains(LOST));
    assert_eq!(lines.count(), 1, "{words:?}: {ended}");
}

#[test]
fn w10_each_command_fails_if_its_output_is_lost() {
    let scene = Scene::new("print turn {start}\n@2 print ready\n@2 hang");
    let once = [
        "run", "--run-id", "over", "--prompt", PROMPT, "--once", "--",
    ];
    let over = scene.rlm(&once).args(scene.agent.argv());
    over.run(LONG).expect_code(0);
    let hang = [
        "run", "--run-id", "live", "--prompt", PROMPT, "-n", "3", "--",
    ];
    let mut live = scene.rlm(&hang).args(scene.agent.argv()).spawn();
    says(&mut live, "ready");
    for words in CALLS {
        let words: Vec<&str> = { words.iter() }
            .map(|word| match *word {
                "LIVE" => "live",
                "OVER" => "over",
                word => word,
            })
            .collect();
        expect_lost(&to_full(&scene, &words).run(LONG), &words);
    }
    live.wait(LONG).expect_code(7);
    let help = scene.rlm(&["--help"]).run(LONG).expect_code(0).stdout;
    let commands = help.split("Global options:\n").next().unwrap();
    let names = { commands.lines() }
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty());
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"run") && names.contains(&"man"), "{help}");
    for name in names {
        let is_called = CALLS.iter().any(|words| words[0] == name);
        let is_known = OTHERS.iter().any(|(other, _)| *other == name);
        assert!(is_called || is_known, "`{name}` has no call here");
    }
}

#[test]
fn w10_attach_fails_if_its_output_is_lost() {
    let scene = Scene::new("print ready\nhang");
    let live = scene.ready(&["--run-id", "live", "--once"]);
    let attached = to_full(&scene, &["attach", "live", "--json"]).spawn();
    crate::presses::pause();
    scene.rlm(&["stop", "live"]).run(LONG).expect_code(0);
    expect_lost(&attached.wait(LONG), &["attach"]);
    live.wait(LONG).expect_code(7);
}

#[test]
fn w10_run_continues_if_its_output_is_lost() {
    for json in [false, true] {
        let scene = Scene::new("print turn {start}\nprint end");
        let words = ["run", "--sleep", "0", "--prompt", PROMPT, "-n", "3"];
        let words = [&words[..], if json { &["--json", "--"] } else { &["--"] }].concat();
        let argv = scene.agent.argv();
        let run = to_full(&scene, &words).args(argv);
        let ended = run.run(LONG).expect_code(1);
        expect_lost(&ended, &["run"]);
        let status = scene.status();
        assert_eq!(status["iterations_complete"], 3, "{status}");
        let done = to_full(
            &scene,
            &["run", "--prompt", PROMPT, "--until", "true", "--"],
        );
        let ended = done.args(scene.agent.argv()).run(LONG);
        assert_eq!(
            ended.code(),
            Some(1),
            "a finished run fails because of its lost output: {ended}"
        );
        expect_lost(&ended, &["run"]);
    }
}

#[test]
fn w10_closed_pipe_is_no_error() {
    let scene = Scene::new("flood 300000\nprint end");
    scene.run(&["--once"]).run(LONG).expect_code(0);
    for words in [
        &["config", "schema"][..],
        &["man"],
        &["logs"],
        &["logs", "--json"],
        &["status", "--json"],
        &["report", "-o", "-"],
        &["completions", "zsh"],
        &["--help"],
    ] {
        let shell = "{ \"$@\"; echo $? >code; } | head -c 1 >/dev/null";
        let shell = scene.sandbox.rlm("/bin/sh").args(["-c", shell, "sh", RLM]);
        let ended = shell.args(words).run(LONG).expect_code(0);
        assert_eq!(ended.stderr, "", "{words:?}");
        let code = fs_err::read_to_string(scene.file("code")).unwrap();
        assert_eq!(code, "0\n", "{words:?}");
    }
}
