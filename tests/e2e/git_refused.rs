//! Refused commits, and changes after the last commit.

use serde_json::Value;

use crate::LONG;
use crate::git::{hook, scene, subjects};
use crate::scene::{events, expect_in_order, text};

#[test]
fn hook_refusal_is_reported_and_next_commit_has_the_work() {
    let scene = scene("append work {start}\n@2 touch allowed");
    let refuse = "test -e allowed || { echo 'not yet allowed' >&2; exit 1; }";
    hook(&scene, "pre-commit", refuse);
    let run = ["-n", "2", "--commit"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "iteration 1 is not committed: not yet allowed",
            "iteration 2 committed",
        ],
    );
    let body = scene.sandbox.git(&["log", "-1", "--format=%b"]);
    assert!(body.contains("Iteration 1 has no commit"), "{body}");
    assert_eq!(subjects(&scene, "main").len(), 2);
}

#[test]
fn failed_iteration_is_committed_and_marked_as_failed() {
    let scene = scene("append work {start}\n@1 exit 3");
    let run = ["-n", "2", "--commit"];
    scene.run(&run).run(LONG).expect_code(0);
    let bodies = scene.sandbox.git(&["log", "--reverse", "--format=%b%x00"]);
    let failed = bodies.matches("The iteration failed").count();
    assert_eq!((failed, subjects(&scene, "main").len()), (1, 3), "{bodies}");
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0);
    let counted = "2 iterations complete (1 of them failed)";
    assert!(status.stdout.contains(counted), "{status}");
}

#[test]
fn work_after_the_last_commit_is_reported_as_uncommitted() {
    let scene = scene("append work {start}");
    hook(&scene, "pre-commit", "touch .git/waits; exec sleep 600");
    let running = scene.run(&["--until", "true", "--commit"]).spawn();
    scene.wait_for_file(".git/waits");
    scene.rlm(&["stop"]).run(LONG).expect_code(0);
    let ended = running.wait(LONG).expect_code(0);
    let said = [
        "iteration 1 is not committed: the run was stopped; its changes stay uncommitted, and no later commit will include them",
        "git add -A && git commit",
        "done: the check passed",
        "1 iteration not committed: the run was stopped",
    ];
    expect_in_order(&ended.stdout, &said);
    let status = scene.status();
    assert_eq!(status["uncommitted"]["iterations"], 1, "{status}");
    let shown = scene.rlm(&["status"]).run(LONG).expect_code(0);
    assert!(shown.stdout.contains(said[3]), "{shown}");
}

#[test]
fn no_later_commit_is_announced_after_worktree_removal() {
    let scene = scene("");
    let run = ["run", "-p", "x", "-n", "1", "--commit", "--worktree", "--"];
    let remove = ["sh", "-c", "rm -rf \"$PWD\""];
    let ended = scene.rlm(&run).args(remove).run(LONG);
    let said = [
        "iteration 1 is not committed",
        "its working tree",
        "is missing",
    ];
    expect_in_order(&ended.stdout, &said);
    assert!(!ended.stdout.contains("its changes stay"), "{ended}");
}

#[test]
fn refused_commits_are_counted_at_the_end() {
    let scene = scene("append work {start}");
    hook(&scene, "pre-commit", "echo 'lint: 3 errors' >&2; exit 1");
    let run = ["-n", "3", "--commit", "--json"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    let end = events(&ended.stdout).pop().unwrap();
    assert_eq!(end["uncommitted"]["iterations"], 3, "{end}");
    let why = text(&end["uncommitted"]["reason"]);
    assert!(why.contains("lint: 3 errors"), "{why}");
    let warnings = ended
        .stdout
        .matches("the next commit will include them")
        .count();
    assert_eq!(warnings, 2, "{ended}");
    assert_eq!(
        ended
            .stdout
            .matches("no later commit will include them")
            .count(),
        1
    );
    // Changes in a later commit no longer count as uncommitted.
    fs_err::remove_file(scene.file(".git/hooks/pre-commit")).unwrap();
    let run = scene.run_id();
    scene
        .rlm(&["resume", &run, "-n", "4"])
        .run(LONG)
        .expect_code(0);
    assert_eq!(scene.status()["uncommitted"], Value::Null);
}
