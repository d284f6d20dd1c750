//! Runs that begin from another one's past, and runs that go on elsewhere.

use rlm_tests::Ended;
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{Scene, crash, expect_in_order, json, stop, text};

/// Each of its turns adds a line; the fourth hangs the first time.
const SCRIPT: &str = "append work {start}\n@4 print ready\n@4 hang";

/// A scene in which git knows who commits.
fn scene(script: &str) -> Scene {
    let scene = Scene::new(script);
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    let mail = ["config", "user.email", "tester@localhost"];
    scene.sandbox.git(&mail);
    scene
}

/// The arguments of a run that commits three iterations and hangs in its fourth.
const COMMITS: [&str; 5] = ["-n", "6", "--commit", "--run-id", "r1"];

fn checkpoints(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.rlm(&[&["checkpoints"], arguments].concat()).run(LONG)
}

#[track_caller]
fn fork(scene: &Scene, arguments: &[&str]) -> Value {
    let ended = checkpoints(scene, &[&["fork"], arguments, &["--json"]].concat());
    json(&ended.expect_code(0).stdout)
}

fn status(scene: &Scene, run: &str) -> Value {
    let ended = scene.rlm(&["status", run, "--json"]).run(LONG);
    json(&ended.expect_code(0).stdout)
}

#[test]
fn x111_a_fork_goes_on_after_an_iteration_with_the_tree_of_that_commit() {
    let scene = scene(SCRIPT);
    stop(scene.ready(&COMMITS), Signal::INT);
    fs_err::write(scene.file("mine"), "not yours").unwrap();
    let before = scene.sandbox.git(&["status", "--porcelain", "--branch"]);
    let head = scene.sandbox.git(&["rev-parse", "HEAD"]);
    let second = scene.sandbox.git(&["rev-parse", "HEAD~1"]);

    let forked = fork(&scene, &["r1", "--at", "2", "--run-id", "other"]);
    assert_eq!(text(&forked["git_commit"]), second);
    assert_eq!(
        (&forked["iteration"], &forked["phase"]),
        (&2.into(), &"main".into())
    );
    assert_eq!(forked["next"], "rlm resume other");
    assert_eq!(scene.start_count(), 4, "nothing was started");
    let tree = scene.file(".rlm/worktrees/other");
    assert_eq!(fs_err::read_to_string(tree.join("work")).unwrap(), "1\n2\n");
    let stands = status(&scene, "other");
    assert_eq!(stands["iterations_complete"], 2);
    assert_eq!(stands["next"], "rlm resume other: iteration 3");
    assert_eq!(text(&stands["directory"]), tree.display().to_string());

    let ended = scene.rlm(&["resume", "other"]).run(LONG).expect_code(0);
    expect_in_order(&ended.stdout, &["iteration 3", "iteration 6 complete"]);
    let work = fs_err::read_to_string(tree.join("work")).unwrap();
    assert_eq!(work, "1\n2\n5\n6\n7\n8\n");
    let log = scene.sandbox.git(&["log", "--format=%s", "rlm/other"]);
    expect_in_order(
        &log,
        &[
            "iteration 6 of other",
            "iteration 3 of other",
            "iteration 2 of r1",
        ],
    );
    // The person's files and the other run are as they were.
    assert_eq!(
        scene.sandbox.git(&["status", "--porcelain", "--branch"]),
        before
    );
    assert_eq!(scene.sandbox.git(&["rev-parse", "HEAD"]), head);
    let stands = status(&scene, "r1");
    assert_eq!(
        (&stands["state"], &stands["iteration"]),
        (&"stopped".into(), &4.into())
    );
    for run in ["r1", "other"] {
        checkpoints(&scene, &["verify", run]).expect_code(0);
    }
}

#[test]
fn x111_a_live_run_a_killed_one_and_a_fork_can_be_forked() {
    let scene = scene(SCRIPT);
    let running = scene.ready(&COMMITS);
    fork(&scene, &["r1", "--at", "3", "--run-id", "live"]);
    assert_eq!(status(&scene, "r1")["state"], "running");
    crash(running);
    scene.wait_until_nothing_is_alive();
    fork(&scene, &["r1", "--at", "1", "--run-id", "killed"]);
    let ended = scene.rlm(&["resume", "killed", "-n", "2"]).run(LONG);
    ended.expect_code(0);
    let again = fork(&scene, &["killed", "--at", "2", "--run-id", "again"]);
    // By its own plan nothing is left to do.
    assert_eq!(again["next"], "rlm resume again -n MORE");
    let ended = scene.rlm(&["resume", "again", "-n", "3"]).run(LONG);
    ended.expect_code(0);
    let work = fs_err::read_to_string(scene.file(".rlm/worktrees/again/work")).unwrap();
    assert_eq!(work, "1\n5\n6\n");
    let refused = checkpoints(&scene, &["fork", "again", "--at", "1"]).expect_code(2);
    let words = [
        "goes on from run `killed`",
        "rlm checkpoints fork killed --at 1",
    ];
    expect_in_order(&refused.stderr, &words);
    scene
        .rlm(&["resume", "live", "-n", "4"])
        .run(LONG)
        .expect_code(0);
    scene.expect_nothing_alive();
}

#[test]
fn x111_what_is_in_no_commit_or_not_there_is_refused_with_the_mend() {
    let scene = scene("append work {start}\n@3 print ready\n@3 hang");
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        let ended = checkpoints(&scene, &[&["fork"], arguments].concat()).expect_code(code);
        expect_in_order(&ended.stderr, words);
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{ended}");
        assert!(!scene.file(".rlm/worktrees").exists(), "{ended}");
    };
    stop(scene.ready(&["-n", "4", "--run-id", "r1"]), Signal::INT);
    refused(
        &["r1", "--at", "1"],
        2,
        &[
            "iteration 1 of run `r1` is in no commit",
            "rlm resume r1 --commit",
        ],
    );
    refused(&["r1", "--at", "3"], 2, &["has not completed iteration 3"]);
    refused(&["r1", "--at", "9"], 10, &["no iteration 9 on record"]);
    refused(&["r9", "--at", "1"], 10, &["no run `r9`"]);
    refused(
        &["r1", "--at", "1", "--phase", "x"],
        10,
        &["iteration 1 of phase `x`"],
    );
    let runs = fs_err::read_dir(scene.file(".rlm/runs")).unwrap().count();
    assert_eq!(runs, 1);
}
