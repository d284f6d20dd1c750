//! `rlm clean`: the runs that it removes, the runs that it keeps at any age, and its confirmation.

use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::control::quick;
use crate::scene::{Scene, events, expect_in_order, stop, until_ready};

/// Returns a project with one finished, one stopped, one damaged and one live run.
fn project() -> (Scene, rlm_tests::Running) {
    let scene = Scene::new("@1 print done\n@2.. print ready\n@2.. hang");
    let named = |name| scene.run(&["--once", "--run-id", name]);
    quick(named("done")).expect_code(0);
    stop(until_ready(named("stopped")), Signal::INT);
    let damaged = scene.file(".rlm/runs/damaged");
    fs_err::create_dir_all(damaged.join("transcripts")).unwrap();
    let live = until_ready(named("live"));
    (scene, live)
}

fn left(scene: &Scene) -> Vec<String> {
    let entries = fs_err::read_dir(scene.file(".rlm/runs")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn clean(scene: &Scene, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["clean", "--json"], arguments].concat();
    events(&quick(scene.rlm(&arguments)).expect_code(0).stdout)
}

fn action<'a>(lines: &'a [Value], run: &str) -> (&'a str, Option<&'a str>) {
    let line = lines.iter().find(|line| line["run"] == run).unwrap();
    (line["action"].as_str().unwrap(), line["reason"].as_str())
}

#[test]
fn s20c_s20d_s20e_s20f_s20g_s20h_s20j_only_all_removes_runs_that_have_not_ended() {
    let (scene, live) = project();
    let all = ["damaged", "done", "live", "stopped"];
    let told = quick(scene.rlm(&["clean", "--yes"])).expect_code(0).stdout;
    assert!(told.contains("deleted 0 runs, 0 bytes; kept"), "{told}");
    let planned = clean(&scene, &["--days", "0", "--dry-run"]);
    assert_eq!(action(&planned, "done"), ("would_remove", None));
    assert_eq!(action(&planned, "stopped"), ("kept", Some("resumable")));
    assert_eq!(action(&planned, "damaged"), ("kept", Some("damaged")));
    assert_eq!(action(&planned, "live"), ("kept", Some("live")));
    // Without a terminal nobody can confirm.
    let refused = quick(scene.rlm(&["clean", "--days", "0"])).expect_code(2);
    assert!(refused.stderr.contains("--yes"), "{refused}");
    assert_eq!(left(&scene), all);
    let told = quick(scene.rlm(&["clean", "--days", "0", "--yes"])).expect_code(0);
    expect_in_order(
        &told.stdout,
        &[
            "damaged: damaged",
            "rlm clean damaged",
            "deleted 1 run, ",
            "1 live, 1 that can be resumed",
        ],
    );
    assert_eq!(left(&scene), ["damaged", "live", "stopped"]);
    let lines = clean(&scene, &["damaged", "--yes"]);
    assert_eq!(action(&lines, "damaged"), ("removed", None));
    let lines = clean(&scene, &["--all", "--days", "0", "--yes"]);
    assert_eq!(action(&lines, "stopped"), ("removed", None));
    assert_eq!(action(&lines, "live"), ("kept", Some("live")));
    assert_eq!(left(&scene), ["live"]);
    quick(scene.rlm(&["clean", "no-such-run", "--yes"])).expect_code(10);
    assert_eq!(scene.status()["state"], "running");
    stop(live, Signal::INT);
}

#[test]
fn s20b_s20d_s20e_clean_keeps_newest_runs_and_asks_for_confirmation() {
    let scene = Scene::new("print done");
    for name in ["a", "b", "c"] {
        quick(scene.run(&["--once", "--run-id", name])).expect_code(0);
    }
    let (running, terminal) = scene
        .rlm(&["clean", "--days", "0", "--keep", "1"])
        .spawn_on_terminal();
    terminal.sees("delete them? This can't be undone [y/N]", LONG);
    terminal.sees("would delete 2 runs", LONG);
    terminal.send("\n");
    running.wait(LONG).expect_code(0);
    assert_eq!(left(&scene), ["a", "b", "c"]);
    let (running, terminal) = scene
        .rlm(&["clean", "--days", "0", "--keep", "1"])
        .spawn_on_terminal();
    terminal.sees("[y/N]", LONG);
    terminal.send("y\n");
    running.wait(LONG).expect_code(0);
    terminal.sees("deleted 2 runs", LONG);
    assert_eq!(left(&scene), ["c"]);
    quick(scene.rlm(&["clean", "c", "--yes"])).expect_code(0);
    assert_eq!(left(&scene), Vec::<String>::new());
}

/// A run that just ended is young in every time zone.
#[test]
fn s20a_s21c_age_is_independent_of_time_zone() {
    let scene = Scene::new("print done");
    quick(scene.run(&["--once", "--run-id", "a"]).env("TZ", "UTC-14")).expect_code(0);
    for zone in ["UTC+12", "UTC", "UTC-14"] {
        let clean = scene.rlm(&["clean", "--json", "--days", "1", "--dry-run"]);
        let lines = events(&quick(clean.env("TZ", zone)).expect_code(0).stdout);
        assert_eq!(action(&lines, "a"), ("kept", Some("young")));
        assert!(lines[0]["age_s"].as_u64().unwrap() < 3600);
    }
}

#[test]
fn s20k_worktree_is_kept_and_named() {
    let scene = Scene::new("print done");
    quick(scene.run(&["--once", "--worktree", "--run-id", "w"])).expect_code(0);
    let told = quick(scene.rlm(&["clean", "w", "--yes"]))
        .expect_code(0)
        .stdout;
    expect_in_order(
        &told,
        &[
            "kept: worktree and branch of w",
            "git worktree remove",
            ".rlm/worktrees/w",
            "git branch -D rlm/w",
        ],
    );
    assert!(scene.file(".rlm/worktrees/w").is_dir());
    assert_eq!(left(&scene), Vec::<String>::new());
}

#[test]
fn s20i_only_a_note_remains_of_removed_transcripts() {
    let scene = Scene::new("print turn {start}");
    let run = ["-n", "2", "--until", "false", "--run-id", "r1"];
    quick(scene.run(&run)).expect_code(3);
    let place = scene.file(".rlm/runs/r1/transcripts");
    for extra in ["1-1.ndjson.zst", "1-1.ndjson.zst.7f.part"] {
        fs_err::write(place.join(extra), "").unwrap();
    }
    let clean_them = ["r1", "--transcripts", "--yes"];
    let lines = clean(&scene, &clean_them);
    assert_eq!(action(&lines, "r1"), ("removed", None));
    let names = fs_err::read_dir(&place).unwrap();
    let names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["removed.json"]);
    let lines = clean(&scene, &clean_them);
    assert_eq!(action(&lines, "r1"), ("kept", Some("bare")));
    let gone = [
        "the transcripts of 2 attempts were removed at 20",
        "by `rlm clean --transcripts`",
    ];
    for logs in [&["logs", "r1"][..], &["logs", "r1", "--iteration", "2"]] {
        let none = quick(scene.rlm(logs)).expect_code(10);
        expect_in_order(&none.stderr, &gone);
        assert_eq!(none.stdout, "");
    }
    let report = || {
        quick(scene.rlm(&["report", "r1", "-o", "-"]))
            .expect_code(0)
            .stdout
    };
    expect_in_order(
        &report(),
        &[
            "was removed by",
            "prints the transcripts that remain",
            gone[0],
        ],
    );
    // The missing transcripts hide neither later nor remaining ones.
    quick(scene.rlm(&["resume", "r1", "-n", "3"])).expect_code(3);
    let logs = quick(scene.rlm(&["logs", "r1"])).expect_code(0);
    assert!(logs.stdout.contains("turn 3"), "{logs}");
    expect_in_order(&logs.stderr, &gone);
    let last = quick(scene.rlm(&["logs", "r1", "--iteration", "3"])).expect_code(0);
    assert!(!last.stderr.contains("removed"), "{last}");
    quick(scene.rlm(&["checkpoints", "verify", "r1"])).expect_code(0);
}
