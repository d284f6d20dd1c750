//! The check before the first iteration: no money is spent on work that is done already, or on a check that can't run.

use std::os::unix::fs::PermissionsExt as _;

use rlm_tests::Rlm;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, events, expect_in_order, stop};

/// Prepares a run as users start it; the other tests skip the first check.
fn run<'a>(scene: &'a Scene, arguments: &[&str]) -> Rlm<'a> {
    scene.run(arguments).env("RLM_NO_FIRST_CHECK", "")
}

#[test]
fn run_whose_check_passes_is_already_done() {
    let scene = Scene::new("print turn {start}");
    let ended = run(&scene, &["--gate", "true", "--until", "test -e .git"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "required check 1: true",
            "check: test -e .git",
            "already done: the check passed before the first iteration",
        ],
    );
    assert_eq!(scene.start_count(), 0, "{ended}");
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0).stdout;
    assert!(
        status.contains("check   passed (before the first iteration)"),
        "{status}"
    );
    let json = run(&scene, &["--json", "--until", "true"]).run(LONG);
    let events = events(&json.expect_code(0).stdout);
    let end = events.last().unwrap();
    assert_eq!(
        (&end["evidence"], &end["exit_code"]),
        (&"check".into(), &0.into())
    );
    scene
        .rlm(&["report", "-o", "report.html"])
        .run(LONG)
        .expect_code(0);
    let report = fs_err::read_to_string(scene.file("report.html")).unwrap();
    assert!(report.contains("There was nothing to do"), "{report}");
    let report = scene.rlm(&["report", "--json"]).run(LONG).expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["end"]["evidence"], "check");
    // There is nothing to resume.
    let refused = scene.rlm(&["resume"]).run(LONG);
    assert_ne!(refused.code(), Some(0), "{refused}");
}

/// A misspelled check used to cost an iteration before it was noticed.
#[test]
fn check_that_cannot_run_costs_no_iteration_and_its_hint_works() {
    for (option, name) in [("--until", "the check"), ("--gate", "required check 1")] {
        let scene = Scene::new("print turn {start}");
        let arguments = match option {
            "--until" => vec!["--until", "no-such-command"],
            _ => vec!["--until", "true", "--gate", "no-such-command"],
        };
        let ended = run(&scene, &arguments).run(LONG).expect_code(1);
        let says = format!("failed: {name} can't run");
        assert!(ended.stdout.contains(&says), "{ended}");
        assert!(!ended.stdout.contains("warning"), "{ended}");
        assert_eq!(scene.start_count(), 0, "{ended}");
        let run = scene.run_id();
        let hint = format!("to continue: rlm resume {run} {option} COMMAND");
        assert!(ended.stdout.contains(&hint), "{ended}");
        let mended = ["resume", &run, option, "true", "-n", "1", "--sleep", "0"];
        scene.rlm(&mended).run(LONG).expect_code(0);
        assert_eq!(scene.start_count(), 1, "a resume begins with the agent");
    }
}

#[test]
fn failed_first_check_is_in_the_first_prompt() {
    let scene = Scene::new("echo\ntouch done");
    let check = "test -e done || { echo 2 of 9 tests failed; false; }";
    let ended = run(&scene, &["--until", check]).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "check did not pass",
            "2 of 9 tests failed",
            "iteration 1",
            "2 of 9 tests failed",
            "done: the check passed",
        ],
    );
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn first_check_can_be_skipped() {
    let scene = Scene::new("print turn {start}");
    for skips in [&["--no-first-check"][..], &["--no-first-check=true"]] {
        let arguments = [&["--until", "true"], skips].concat();
        let ended = run(&scene, &arguments).run(LONG).expect_code(0);
        assert!(!ended.stdout.contains("already done"), "{ended}");
    }
    let until = ["--until", "true"];
    let by_variable = run(&scene, &until).env("RLM_NO_FIRST_CHECK", "true");
    by_variable.run(LONG).expect_code(0);
    let bad = run(&scene, &until).env("RLM_NO_FIRST_CHECK", "yes");
    let refused = bad.run(LONG).expect_code(2);
    assert!(
        refused.stderr.contains("`yes` is not true or false"),
        "{refused}"
    );
    fs_err::write(scene.file("rlm.toml"), "no-first-check = true\n").unwrap();
    run(&scene, &until).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 4);
}

#[test]
fn stopped_first_check_leaves_no_process_and_resume_begins_with_the_agent() {
    let scene = Scene::new("print turn {start}\ntouch done");
    let check = "touch begun; test -e done || sleep 600";
    let running = run(&scene, &["--until", check]).spawn();
    scene.wait_for_file("begun");
    stop(running, Signal::TERM);
    scene.expect_nothing_alive();
    assert_eq!(scene.start_count(), 0);
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["iteration 1", "turn 1", "check:", "done: the check passed"],
    );
}

/// `rlm doctor` knew that the agent had no login, and a run spent three iterations to find out.
#[test]
fn run_of_an_agent_without_a_login_does_not_begin() {
    let scene = Scene::new("");
    let agent = scene.sandbox.home().join("claude");
    let script = |logged_in: &str| {
        let script = format!(
            "#!/bin/sh\ncase $1 in\n--version) echo '2.1.329 (Claude Code)';;\n\
             auth) echo \"$KEY\" >key; echo '{{\"loggedIn\": {logged_in}}}';;\n\
             *) echo started >>started; exit 1;;\nesac\n"
        );
        fs_err::write(&agent, script).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(&agent, mode).unwrap();
    };
    fs_err::write(scene.file("rlm.toml"), "[claude]\nenv = { KEY = 'k3y' }\n").unwrap();
    let named = ["--agent", "claude", "--agent-bin", agent.to_str().unwrap()];
    let start = |more: &[&str]| {
        let run = ["run", "-p", "x", "-n", "1", "--worktree"];
        let run = scene.rlm(&[&run[..], &named, more].concat());
        run.env("RLM_NO_FIRST_CHECK", "").run(LONG).expect_code(1)
    };
    script("false");
    let refused = start(&[]);
    let says =
        "claude is not logged in; log in: claude auth login; to start anyway: --no-first-check";
    assert!(refused.stderr.contains(says), "{refused}");
    assert_eq!(fs_err::read_to_string(scene.file("key")).unwrap(), "k3y\n");
    assert!(!scene.file("started").exists() && scene.statuses().is_empty());
    assert_eq!(
        scene.sandbox.git(&["branch", "--list", "rlm/*"]),
        "",
        "no worktree is left"
    );
    // The other two: the start that was asked for, and a login.
    start(&["--no-first-check"]);
    script("true");
    start(&[]);
    assert_eq!(scene.statuses().len(), 2);
    // Settings that can change the login make the answer worthless.
    script("false");
    let settings = "[claude]\nsettings = { apiKeyHelper = 'echo k' }\n";
    fs_err::write(scene.file("rlm.toml"), settings).unwrap();
    start(&[]);
    assert_eq!(scene.statuses().len(), 3);
}
