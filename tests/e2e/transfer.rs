//! Forks of runs, and transfers of runs.

use rlm_tests::Ended;
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{Scene, crash, expect_in_order, json, stop, text};

/// Each turn adds a line; the fourth hangs the first time.
const SCRIPT: &str = "append work {start}\n@4 print ready\n@4 hang";

/// Returns a scene with a git identity.
pub(crate) fn scene(script: &str) -> Scene {
    let scene = Scene::new(script);
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    let mail = ["config", "user.email", "tester@localhost"];
    scene.sandbox.git(&mail);
    scene
}

/// The arguments of a run that commits three iterations and hangs in its fourth.
const COMMITS: [&str; 5] = ["-n", "6", "--commit", "--run-id", "r1"];

pub(crate) fn checkpoints(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.rlm(&[&["checkpoints"], arguments].concat()).run(LONG)
}

#[track_caller]
pub(crate) fn fork(scene: &Scene, arguments: &[&str]) -> Value {
    let ended = checkpoints(scene, &[&["fork"], arguments, &["--json"]].concat());
    json(&ended.expect_code(0).stdout)
}

pub(crate) fn status(scene: &Scene, run: &str) -> Value {
    let ended = scene.rlm(&["status", run, "--json"]).run(LONG);
    json(&ended.expect_code(0).stdout)
}

#[test]
fn x111a_fork_continues_after_an_iteration_with_its_commit() {
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
    assert_eq!(
        stands["state"], "stopped",
        "the fork has no unfinished iteration"
    );
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
    // The person's files and the other run are unchanged.
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
fn x111d_live_crashed_and_forked_runs_can_be_forked() {
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
    // The plan of the fork has no iteration left.
    assert_eq!(again["next"], "rlm resume again -n MORE");
    let ended = scene.rlm(&["resume", "again", "-n", "3"]).run(LONG);
    ended.expect_code(0);
    let work = fs_err::read_to_string(scene.file(".rlm/worktrees/again/work")).unwrap();
    assert_eq!(work, "1\n5\n6\n");
    let refused = checkpoints(&scene, &["fork", "again", "--at", "1"]).expect_code(2);
    let words = [
        "continues run `killed`",
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
fn x111b_uncommitted_iteration_is_refused_with_hint() {
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
    refused(&["r1", "--at", "9"], 10, &["has no iteration 9"]);
    refused(&["r9", "--at", "1"], 10, &["no run `r9`"]);
    refused(
        &["r1", "--at", "1", "--phase", "x"],
        10,
        &["iteration 1 of phase `x`"],
    );
    let runs = fs_err::read_dir(scene.file(".rlm/runs")).unwrap().count();
    assert_eq!(runs, 1);
}

/// The third turn hangs the first time; the changes of the other turns are committed.
const CLEAN: &str = "@3 print ready\n@3 hang\nappend work {start}";

/// Runs `rlm -C ../PLACE ARGUMENTS`, in a directory beside the repository.
pub(crate) fn there(scene: &Scene, place: &str, arguments: &[&str]) -> Ended {
    let place = format!("../{place}");
    scene.rlm(&[&["-C", &place], arguments].concat()).run(LONG)
}

#[track_caller]
pub(crate) fn export(scene: &Scene, arguments: &[&str]) -> Value {
    let ended = checkpoints(scene, &[&["export"], arguments, &["--json"]].concat());
    json(&ended.expect_code(0).stdout)
}

#[track_caller]
pub(crate) fn import(scene: &Scene, place: &str, arguments: &[&str]) -> Value {
    let words = [&["checkpoints", "import"], arguments, &["--json"]].concat();
    json(&there(scene, place, &words).expect_code(0).stdout)
}

#[track_caller]
pub(crate) fn status_there(scene: &Scene, place: &str, run: &str) -> Value {
    let ended = there(scene, place, &["status", run, "--json"]);
    json(&ended.expect_code(0).stdout)
}

/// Runs git in a directory beside the repository, and returns its output.
pub(crate) fn git_there(scene: &Scene, place: &str, arguments: &[&str]) -> String {
    let place = format!("../{place}");
    scene.sandbox.git(&[&["-C", &place], arguments].concat())
}

#[test]
fn x112a_x112c_x112g_exported_crashed_run_continues_only_at_its_destination() {
    let scene = scene(SCRIPT);
    crash(scene.ready(&COMMITS));
    let before = status(&scene, "r1");
    // The changes of the fourth turn would be lost.
    let refused = checkpoints(&scene, &["export", "r1", "-o", "../r1.tar.zst"]).expect_code(2);
    let words = [
        "1 file is not committed",
        "work",
        "commit them",
        "--allow-dirty",
    ];
    expect_in_order(&refused.stderr, &words);
    assert_eq!(status(&scene, "r1")["transferred_to"], Value::Null);
    let exported = export(&scene, &["r1", "-o", "../r1.tar.zst", "--allow-dirty"]);
    assert_eq!(
        (&exported["transferred"], &exported["branch"]),
        (&true.into(), &"main".into())
    );
    scene.expect_nothing_alive();
    let archive = scene.sandbox.path().join("r1.tar.zst");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs_err::metadata(&archive).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(scene.sandbox.git(&["for-each-ref", "refs/rlm"]), "");
    assert_eq!(scene.sandbox.git(&["status", "--porcelain"]), "M work");

    fs_err::create_dir(scene.sandbox.path().join("other")).unwrap();
    let imported = import(&scene, "other", &["../r1.tar.zst"]);
    assert_eq!(
        (&imported["arrival"], &imported["branch"]),
        (&"new-repository".into(), &"main".into())
    );
    let command = text(&imported["programs"][0]["command"]);
    assert!(command.contains("fake-agent"), "{imported}");
    assert_eq!(scene.start_count(), 4, "nothing was started");
    let now = status_there(&scene, "other", "r1");
    for key in [
        "iteration",
        "attempt",
        "attempts",
        "iterations_complete",
        "state",
        "next",
    ] {
        let mut before = before[key].clone();
        if key == "next" {
            before = text(&before).replace("rlm ", "rlm -C ../other ").into();
        }
        assert_eq!(now[key], before, "{key}");
    }
    let other = scene.sandbox.path().join("other");
    assert_eq!(text(&now["directory"]), other.display().to_string());
    assert_eq!(
        git_there(&scene, "other", &["status", "--porcelain"]),
        "M work"
    );

    // The run can't continue here.
    let refused = scene.rlm(&["resume", "r1"]).run(LONG).expect_code(2);
    let words = [
        "`r1` was transferred to `",
        "r1.tar.zst` at 20",
        "rlm resume r1 --force",
    ];
    expect_in_order(&refused.stderr, &words);
    assert_eq!(refused.stderr.trim_end().lines().count(), 1, "{refused}");
    let again = [
        "run",
        "--resume-or-start",
        "--run-id",
        "r1",
        "-p",
        "x",
        "--once",
    ];
    scene.rlm(&again).run(LONG).expect_code(2);
    checkpoints(&scene, &["export", "r1", "-o", "../again"]).expect_code(2);
    assert_eq!(status(&scene, "r1")["state"], "transferred");
    let verified = checkpoints(&scene, &["verify", "r1"]).expect_code(0);
    let words = [
        "r1  valid",
        "ckj",
        ": valid",
        "transferred to ",
        "r1.tar.zst at 20",
        "this copy stayed here",
        "next: the run was transferred",
        "rlm resume r1 --force",
    ];
    expect_in_order(&verified.stdout, &words);
    let verified = checkpoints(&scene, &["verify", "r1", "--json"]).expect_code(0);
    let verified = json(&verified.stdout);
    assert!(text(&verified["transferred_to"]).ends_with("r1.tar.zst"));
    assert_eq!(verified["resumes_from"], Value::Null);
    let kept = scene
        .rlm(&["clean", "--days", "0", "--yes"])
        .run(LONG)
        .expect_code(0);
    assert!(
        kept.stdout.contains("kept 1 that were transferred"),
        "{kept}"
    );
    scene.rlm(&["ps"]).run(LONG).expect_code(0);

    git_there(&scene, "other", &["config", "user.name", "A. Tester"]);
    git_there(
        &scene,
        "other",
        &["config", "user.email", "tester@localhost"],
    );
    let ended = there(&scene, "other", &["resume", "r1"]).expect_code(0);
    expect_in_order(&ended.stdout, &["iteration 4", "iteration 6 complete"]);
    let work = fs_err::read_to_string(other.join("work")).unwrap();
    assert_eq!(work, "1\n2\n3\n4\n5\n6\n7\n");
    let log = git_there(&scene, "other", &["log", "--format=%s", "main"]);
    expect_in_order(&log, &["iteration 6 of r1", "iteration 3 of r1", "start"]);
    there(&scene, "other", &["checkpoints", "verify", "r1"]).expect_code(0);

    // With --force it continues here.
    let ended = scene
        .rlm(&["resume", "r1", "--force"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(&ended.stdout, &["iteration 6 complete"]);
    assert_eq!(status(&scene, "r1")["state"], "ended");
}

#[test]
fn x112d_clone_keeps_its_files_and_the_run_can_be_imported_back() {
    let scene = scene(CLEAN);
    scene.sandbox.git(&["clone", "-q", ".", "../clone"]);
    for words in [
        ["user.name", "A. Tester"],
        ["user.email", "tester@localhost"],
    ] {
        git_there(&scene, "clone", &[&["config"], &words[..]].concat());
    }
    let mine = scene.sandbox.path().join("clone/mine");
    fs_err::write(&mine, "not yours").unwrap();
    let run = ["-n", "4", "--commit", "--run-id", "r1"];
    stop(scene.ready(&run), Signal::INT);
    export(&scene, &["r1", "-o", "../r1.tar.zst"]);
    let imported = import(&scene, "clone", &["../r1.tar.zst"]);
    assert_eq!(
        (&imported["arrival"], &imported["branch"]),
        (&"worktree".into(), &"rlm/r1".into())
    );
    expect_in_order(&text(&imported["notes"][0]), &["branch main is taken here"]);
    assert_eq!(git_there(&scene, "clone", &["log", "--format=%s"]), "start");
    assert!(mine.exists());
    let again = there(&scene, "clone", &["checkpoints", "import", "../r1.tar.zst"]).expect_code(2);
    assert!(again.stderr.contains("already exists"), "{again}");
    let early = checkpoints(&scene, &["import", "../r1.tar.zst"]);
    expect_in_order(
        &early.stderr,
        &[
            "exported from here and did not continue",
            "rlm resume r1 --force",
        ],
    );

    there(&scene, "clone", &["resume", "r1"]).expect_code(0);
    let words = ["checkpoints", "export", "r1", "-o", "../home.tar.zst"];
    there(&scene, "clone", &words).expect_code(0);
    let ended = checkpoints(&scene, &["import", "../home.tar.zst", "--json"]).expect_code(0);
    assert_eq!(json(&ended.stdout)["run"], "r1");
    let now = status(&scene, "r1");
    assert_eq!(
        (&now["state"], &now["transferred_to"]),
        (&"ended".into(), &Value::Null)
    );
    assert_eq!(now["iterations_complete"], 4);
    assert_eq!(status_there(&scene, "clone", "r1")["state"], "transferred");
}

#[test]
fn x112a_x112d_run_in_a_worktree_gets_worktree_and_branch_on_import() {
    let scene = scene(CLEAN);
    scene.sandbox.git(&["clone", "-q", ".", "../clone"]);
    let run = ["-n", "4", "--commit", "--run-id", "r1", "--worktree", "w1"];
    stop(scene.ready(&run), Signal::INT);
    // Without a remote, and through a pipe.
    let words = [crate::RLM, "checkpoints", "export", "r1", "-o", "-"].join(" ");
    let line = format!("{words} | {} -C ../clone checkpoints import -", crate::RLM);
    let ended = scene
        .sandbox
        .rlm("/bin/sh")
        .args(["-ec", &line])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "run r1 is here, in its own worktree",
            "worktrees/w1, branch rlm/w1",
            "starts",
            "next",
        ],
    );
    expect_in_order(
        &ended.stderr,
        &["run r1 is in standard output", "here    transferred"],
    );
    let now = status_there(&scene, "clone", "r1");
    assert_eq!(
        (&now["state"], &now["worktree"]["branch"]),
        (&"stopped".into(), &"rlm/w1".into())
    );
    for words in [
        ["user.name", "A. Tester"],
        ["user.email", "tester@localhost"],
    ] {
        git_there(&scene, "clone", &[&["config"], &words[..]].concat());
    }
    there(&scene, "clone", &["resume", "r1"]).expect_code(0);
    let log = git_there(&scene, "clone", &["log", "--format=%s", "rlm/w1"]);
    expect_in_order(&log, &["iteration 4 of r1", "iteration 2 of r1", "start"]);
    assert_eq!(status(&scene, "r1")["transferred_to"], "-");
    // After the import back, its own worktree is updated to the state of the run.
    there(
        &scene,
        "clone",
        &["checkpoints", "export", "r1", "-o", "../home.zst"],
    )
    .expect_code(0);
    let home = checkpoints(&scene, &["import", "../home.zst", "--json"]).expect_code(0);
    assert_eq!(json(&home.stdout)["arrival"], "working-tree");
    let work = fs_err::read_to_string(scene.file(".rlm/worktrees/w1/work")).unwrap();
    assert_eq!(work, "1\n2\n4\n5\n");
}

#[test]
fn x112h_live_run_is_not_exported_and_a_copy_is_another_run() {
    let scene = scene(CLEAN);
    let running = scene.ready(&["-n", "4", "--commit", "--run-id", "r1"]);
    let refused = checkpoints(&scene, &["export", "r1"]).expect_code(9);
    expect_in_order(&refused.stderr, &["is live", "rlm stop r1"]);
    stop(running, Signal::INT);
    let exported = export(&scene, &["r1", "-o", "../copy", "--copy"]);
    assert_eq!(exported["transferred"], false);
    scene.sandbox.git(&["clone", "-q", ".", "../clone"]);
    let imported = import(&scene, "clone", &["../copy", "--run-id", "r2"]);
    assert_eq!(
        (&imported["run"], &imported["copy_of"]),
        (&"r2".into(), &"r1".into())
    );
    // The working tree was at the commit of the run.
    assert_eq!(
        (&imported["arrival"], &imported["branch"]),
        (&"working-tree".into(), &"main".into())
    );
    assert_eq!(status_there(&scene, "clone", "r2")["forked_from"], "r1");
    let other = export(&scene, &["r1", "-o", "../moved"]);
    assert_eq!(other["transferred"], true);
    let named = ["checkpoints", "import", "../moved", "--run-id", "r3"];
    let refused = there(&scene, "clone", &named);
    assert!(refused.stderr.contains("--copy"), "{refused}");
    let exists = checkpoints(&scene, &["export", "r1", "-o", "../moved", "--force"]);
    assert!(exists.stderr.contains("already exists"), "{exists}");
}

#[test]
fn x112j_another_user_can_continue_an_imported_run() {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let can = std::process::Command::new("setpriv")
        .args(nobody)
        .arg("true")
        .status();
    if !can.is_ok_and(|status| status.success()) {
        return println!("skipped: can't act as another user here");
    }
    let scene = scene(CLEAN);
    let run = ["-n", "4", "--commit", "--run-id", "r1", "--until", "false"];
    let running = scene.run(&run).spawn();
    scene.wait_until_started(3);
    crash(running);
    export(&scene, &["r1", "-o", "../r1.tar.zst"]);
    // Another home and another directory. The agent's program is missing there.
    let script = r#"chmod 711 .. ; chmod 644 ../r1.tar.zst
        mkdir ../theirs ../theirs/p && chown -R 65534:65534 ../theirs && cd ../theirs/p
        as() { HOME="$PWD/.." XDG_CONFIG_HOME= XDG_STATE_HOME= setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        as "$0" checkpoints import ../../r1.tar.zst
        as git config user.name 'A. Tester'; as git config user.email tester@localhost
        as "$0" resume r1 --sleep 0 -- sh -c 'echo more >>work' || echo "code $?"
        as git log --format=%s; stat -c %u .rlm/runs/r1"#;
    let ended = scene
        .sandbox
        .rlm("/bin/sh")
        .args(["-ec", script, crate::RLM])
        .run(LONG);
    expect_in_order(
        &ended.expect_code(0).stdout,
        &[
            "run r1 is here",
            "iteration 3",
            "code 3",
            "iteration 4 of r1",
            "iteration 2 of r1",
            "start",
            "65534",
        ],
    );
}
