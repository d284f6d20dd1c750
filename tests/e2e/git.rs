//! The use of git by a run: commits and worktrees.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{Scene, TREE_SIZE, crash, events, expect_in_order, stop, text};

/// Returns a scene with a git identity.
pub(crate) fn scene(script: &str) -> Scene {
    let scene = Scene::new(script);
    know_who(&scene);
    scene
}

pub(crate) fn know_who(scene: &Scene) {
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    let mail = ["config", "user.email", "tester@localhost"];
    scene.sandbox.git(&mail);
}

pub(crate) fn hook(scene: &Scene, name: &str, script: &str) {
    let hook = scene.file(".git/hooks").join(name);
    fs_err::create_dir_all(hook.parent().unwrap()).unwrap();
    fs_err::write(&hook, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs_err::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
}

pub(crate) fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the subjects of all commits, oldest first.
pub(crate) fn subjects(scene: &Scene, branch: &str) -> Vec<String> {
    let log = scene
        .sandbox
        .git(&["log", "--reverse", "--format=%s", branch]);
    log.lines().map(ToOwned::to_owned).collect()
}

pub(crate) fn trailer(scene: &Scene, commit: &str, name: &str) -> String {
    let format = format!("--format=%(trailers:key={name},valueonly)");
    scene.sandbox.git(&["log", "-1", &format, commit])
}

#[test]
fn s22a_each_save_has_the_git_status() {
    let scene = Scene::new("append work {start}\n@2 touch more");
    scene.run(&["-n", "2"]).run(LONG).expect_code(0);
    let status = scene.status();
    assert_eq!(
        status["git_commit"],
        scene.sandbox.git(&["rev-parse", "HEAD"])
    );
    assert_eq!(status["git_changed"], 2);
    assert_eq!(status["committed"], Value::Null);
}

#[test]
fn s22c_each_complete_iteration_with_changes_is_a_commit_with_trailers() {
    let scene = scene("@1 append work 1\n@3 append work 3");
    let run = ["-n", "3", "--commit", "--run-id", "r1", "--json"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    let subjects = subjects(&scene, "main");
    assert_eq!(
        subjects,
        ["start", "rlm: iteration 1 of r1", "rlm: iteration 3 of r1"]
    );
    for (name, value) in [
        ("Rlm-Run", "r1"),
        ("Rlm-Phase", "main"),
        ("Rlm-Iteration", "3"),
        ("Rlm-Attempt", "1"),
        ("Rlm-Agent", "command"),
    ] {
        assert_eq!(trailer(&scene, "HEAD", name), value);
    }
    let body = scene.sandbox.git(&["log", "-1", "--format=%b"]);
    assert!(body.starts_with("Rlm-Run"), "nothing else is in it: {body}");
    assert_eq!(scene.sandbox.git(&["status", "--porcelain"]), "");
    let head = scene.sandbox.git(&["rev-parse", "HEAD"]);
    let first = scene.sandbox.git(&["rev-parse", "HEAD^"]);
    let events = events(&ended.stdout);
    let told: Vec<&Value> = events
        .iter()
        .filter(|event| event["event"] == "iteration_committed")
        .map(|event| &event["commit"])
        .collect();
    assert_eq!(told, [&first, &head]);
    let status = scene.status();
    assert_eq!(status["committed"]["commit"], *head);
    assert_eq!(status["git_changed"], 0);
    // Each iteration names the commit with its state, even if it made no commit itself.
    let listed = scene.rlm(&["checkpoints", "list", "--json"]).run(LONG);
    let listed = crate::scene::json(&listed.stdout);
    let rows = listed["attempts"].as_array().unwrap();
    let commits: Vec<&Value> = rows.iter().map(|row| &row["git_commit"]).collect();
    assert_eq!(commits, [&first, &first, &head]);
}

#[test]
fn s22c_repository_with_its_own_ignore_rule_gets_commits() {
    for ignored in [".rlm", ".rlm/", "/.rlm", ".*"] {
        let scene = scene("append work {start}");
        fs_err::write(scene.file(".gitignore"), format!("{ignored}\n")).unwrap();
        scene.sandbox.git(&["add", "--force", ".gitignore"]);
        scene.sandbox.git(&["commit", "-qm", "ignore"]);
        let ended = scene.run(&["--once", "--commit"]).run(LONG);
        let ended = ended.expect_code(0);
        assert!(ended.stdout.contains("iteration 1 committed"), "{ended}");
        let files = scene.sandbox.git(&["show", "--format=", "--name-only"]);
        assert_eq!(files, "work", "{ignored}");
    }
}

#[test]
fn s22d_uncommitted_files_are_never_committed() {
    let scene = scene("append work {start}");
    fs_err::write(scene.file("mine"), "not yours").unwrap();
    let ended = scene.run(&["--once", "--commit"]).run(LONG).expect_code(2);
    expect_in_order(
        &ended.stderr,
        &[
            "1 file is not committed",
            "commit them first",
            "--worktree",
            "mine",
        ],
    );
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{ended}");
    assert_eq!(scene.statuses(), [Value::Null; 0]);
    assert_eq!(scene.start_count(), 0);
    // A worktree of the run has none of these files.
    let own = ["--once", "--commit", "--worktree", "w1"];
    let ended = scene.run(&own).run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains("excludes your 1 uncommitted file"),
        "{ended}"
    );
    let files = scene.sandbox.git(&["ls-tree", "--name-only", "rlm/w1"]);
    assert_eq!(files, "README.md\nwork");
    assert!(scene.file("mine").exists() && !scene.file("work").exists());
}

#[test]
fn uncommittable_tree_is_refused_with_hint() {
    let refused = |scene: &Scene, words: &[&str]| {
        let ended = scene.run(&["--once", "--commit"]).run(LONG).expect_code(2);
        expect_in_order(&ended.stderr, words);
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{ended}");
        assert_eq!(scene.start_count(), 0);
    };
    let nobody = Scene::new("print no");
    nobody
        .sandbox
        .git(&["config", "user.useConfigOnly", "true"]);
    refused(&nobody, &["no name and address", "git config user.name"]);
    let scene = scene("print no");
    scene.sandbox.git(&["checkout", "-q", "--detach"]);
    refused(&scene, &["HEAD is detached", "git switch -c"]);
    scene.sandbox.git(&["checkout", "-q", "main"]);
    fs_err::write(scene.file(".git/MERGE_HEAD"), "").unwrap();
    refused(&scene, &["in the middle of a merge", "finish it"]);
    fs_err::remove_file(scene.file(".git/MERGE_HEAD")).unwrap();
    let bare = scene.sandbox.path().join("bare");
    fs_err::create_dir(&bare).unwrap();
    for (option, words) in [("--commit", "git init"), ("--worktree", "git init")] {
        let run = ["--once", option];
        let ended = scene.run(&run).dir(&bare).run(LONG).expect_code(2);
        assert!(ended.stderr.contains(words), "{ended}");
    }
}

#[test]
fn git_variables_of_a_hook_do_not_select_the_repository() {
    let scene = scene("append work {start}");
    let other = scene.sandbox.path().join("other.git");
    scene
        .sandbox
        .git(&["init", "-q", "--bare", text_of(&other)]);
    let run = scene.run(&["--once", "--commit"]);
    let run = run
        .env("GIT_DIR", &other)
        .env("GIT_INDEX_FILE", "/dev/null");
    run.run(LONG).expect_code(0);
    assert_eq!(subjects(&scene, "main").len(), 2);
}

#[test]
fn shallow_clone_supports_commits_and_worktrees() {
    let scene = scene("append work {start}");
    scene
        .sandbox
        .git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let first = scene.sandbox.git(&["rev-parse", "HEAD"]);
    fs_err::write(scene.file(".git/shallow"), format!("{first}\n")).unwrap();
    let run = ["--once", "--commit", "--worktree", "r1", "--run-id", "r1"];
    scene.run(&run).run(LONG).expect_code(0);
    assert_eq!(
        subjects(&scene, "rlm/r1").len(),
        2,
        "the history begins with the second commit"
    );
}

#[test]
fn stale_git_lock_is_reported_and_next_commit_has_the_work() {
    let scene = scene("append work {start}\n@1 touch .git/index.lock");
    let gate = "test $RLM_ITERATION = 1 || rm .git/index.lock";
    let ended = scene.run(&["-n", "2", "--commit", "--gate", gate]);
    let ended = ended.run(LONG).expect_code(0);
    let said = ["iteration 1 is not committed", "index.lock"];
    expect_in_order(&ended.stdout, &said);
    assert_eq!(subjects(&scene, "main").len(), 2);
    assert_eq!(scene.sandbox.git(&["show", "HEAD:work"]), "1\n2");
}

#[test]
fn worktree_refused_by_a_hook_is_removed() {
    let scene = scene("print no");
    hook(&scene, "post-checkout", "echo not here >&2; exit 1");
    let ended = scene
        .run(&["--once", "--commit", "--worktree", "r1"])
        .run(LONG)
        .expect_code(2);
    assert!(ended.stderr.contains("not here"), "{ended}");
    assert!(!scene.file(".rlm/worktrees/r1").exists());
    fs_err::remove_file(scene.file(".git/hooks/post-checkout")).unwrap();
    scene
        .run(&["--once", "--commit", "--worktree", "r1"])
        .run(LONG)
        .expect_code(0);
}

#[test]
fn worktree_with_a_file_in_place_of_the_directory_is_removed() {
    let scene = scene("print made");
    fs_err::write(scene.file("sub"), "").unwrap();
    scene.sandbox.git(&["add", "sub"]);
    scene.sandbox.git(&["commit", "-q", "-m", "a file"]);
    fs_err::remove_file(scene.file("sub")).unwrap();
    let there = scene.file("sub/deep");
    fs_err::create_dir_all(&there).unwrap();
    fs_err::write(there.join("kept"), "").unwrap();
    let run = || scene.run(&["--once", "--worktree", "r1"]).dir(&there);
    let ended = run().run(LONG).expect_code(1);
    let said = ["can't create directory", "worktrees/r1/sub/deep"];
    expect_in_order(&ended.stderr, &said);
    assert!(!scene.file(".rlm/worktrees/r1").exists());
    scene.sandbox.git(&["add", "-A", "sub"]);
    scene
        .sandbox
        .git(&["commit", "-q", "-m", "a directory instead"]);
    run().run(LONG).expect_code(0);
    assert!(scene.file(".rlm/worktrees/r1/sub/deep/kept").exists());
}

#[test]
fn h2_committed_symlink_does_not_lead_out_of_the_working_tree() {
    let scene = scene("touch made");
    let other = scene.sandbox.home().join("other");
    fs_err::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&other, scene.file("sub")).unwrap();
    scene.sandbox.git(&["add", "sub"]);
    scene.sandbox.git(&["commit", "-q", "-m", "a link"]);
    fs_err::remove_file(scene.file("sub")).unwrap();
    for name in ["sub", "sub/deep"] {
        let there = scene.file(name);
        fs_err::create_dir_all(&there).unwrap();
        fs_err::write(there.join("kept"), "").unwrap();
        let run = scene.run(&["--once", "--worktree", "r1"]).dir(&there);
        let ended = run.run(LONG).expect_code(1);
        let said = ["can't create directory", "worktrees/r1/sub"];
        expect_in_order(&ended.stderr, &said);
        assert_eq!(fs_err::read_dir(&other).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn edits_of_unfinished_attempt_are_in_next_commit() {
    let scene = scene("append work {start}\n@1 print ready\n@1 hang");
    let running = scene.ready(&["-n", "1", "--commit", "--run-id", "r1"]);
    crash(running);
    scene.wait_until_nothing_is_alive();
    fs_err::write(scene.file("meanwhile"), "by a person").unwrap();
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "the next commit will include",
            "2 files are not committed",
            "iteration 1 committed",
        ],
    );
    let body = scene.sandbox.git(&["log", "-1", "--format=%b"]);
    assert!(body.contains("Attempt 1 did not finish"), "{body}");
    assert_eq!(trailer(&scene, "HEAD", "Rlm-Attempt"), "2");
    assert_eq!(scene.sandbox.git(&["show", "HEAD:work"]), "1\n2");
}

#[test]
fn excluded_files_are_named() {
    let scene = scene("append work {start}");
    let litter =
        "rm -f .rlm/.gitignore; truncate -s 60M big; git init -q inner; touch 'a [b]' inner/c";
    let run = ["--once", "--commit", "--gate", litter];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["left out:", "big (63.0 MB)", "inner/ (a nested repository"],
    );
    let files = scene.sandbox.git(&["ls-tree", "--name-only", "HEAD"]);
    assert_eq!(files, "README.md\na [b]\nwork");
}

#[test]
fn unresolved_merge_of_an_agent_is_not_committed() {
    let scene = scene("append work {start}");
    let half = "cp .git/HEAD .git/MERGE_HEAD";
    let run = ["--once", "--commit", "--gate", half];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    let told = "iteration 1 is not committed: the repository is in the middle of a merge";
    assert!(ended.stdout.contains(told), "{ended}");
    assert_eq!(subjects(&scene, "main").len(), 1);
}

#[test]
fn stop_does_not_wait_for_a_commit_and_leaves_no_git_process() {
    let scene = scene("append work {start}");
    hook(&scene, "pre-commit", "touch .git/waits; exec sleep 600");
    let running = scene.run(&["-n", "3", "--commit"]).spawn();
    scene.wait_for_file(".git/waits");
    stop(running, Signal::TERM);
    scene.expect_nothing_alive();
    fs_err::remove_file(scene.file(".git/hooks/pre-commit")).unwrap();
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let subjects = subjects(&scene, "main");
    assert_eq!(subjects.len(), 3, "{subjects:?}");
    assert_eq!(scene.sandbox.git(&["show", "HEAD:work"]), "1\n2\n3");
}

#[test]
fn run_in_worktree_prints_commands_to_merge_or_remove_it() {
    let scene = scene("append work {start}");
    let run = ["-n", "2", "--commit", "--worktree", "--run-id", "r1"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "branch rlm/r1 from",
            "iteration 2 committed",
            "branch rlm/r1 has 2 commits",
            "rlm merge r1",
            "rlm drop r1",
        ],
    );
    assert_eq!(scene.sandbox.git(&["status", "--porcelain"]), "");
    assert!(!scene.file("work").exists());
    assert!(scene.file(".rlm/runs/r1").is_dir(), "its state is here");
    let own = scene.file(".rlm/worktrees/r1");
    assert!(own.join("work").exists() && !own.join(".rlm").exists());
    let start = &scene.agent.starts()[0];
    assert_eq!(Path::new(&start.cwd), own);
    // `rlm` also finds the run from inside the worktree.
    let within = scene.rlm(&["status", "--json"]).dir(&own).run(LONG);
    let within = crate::scene::json(&within.expect_code(0).stdout);
    assert_eq!(text(&within["worktree"]["branch"]), "rlm/r1");
    scene.sandbox.git(&["merge", "-q", "rlm/r1"]);
    assert_eq!(subjects(&scene, "main").len(), 3);
    let again = ["--once", "--worktree", "r1"];
    let ended = scene.run(&again).run(LONG).expect_code(2);
    assert!(ended.stderr.contains("already exists"), "{ended}");
}

#[test]
fn resume_uses_its_worktree_or_reports_that_it_is_missing() {
    let scene = scene("append work {start}\n@1 print ready\n@1 hang");
    let running = scene.ready(&["-n", "1", "--worktree", "w1"]);
    stop(running, Signal::TERM);
    let own = scene.file(".rlm/worktrees/w1");
    let path = own.display().to_string();
    let elsewhere = scene.sandbox.path().join("elsewhere");
    let there = elsewhere.display().to_string();
    let refused = |words: &[&str]| {
        let ended = scene.rlm(&["resume"]).run(LONG).expect_code(2);
        expect_in_order(&ended.stderr, words);
    };
    scene.sandbox.git(&["worktree", "move", &path, &there]);
    refused(&["was moved to", "git worktree move"]);
    scene.sandbox.git(&["worktree", "move", &there, &path]);
    fs_err::rename(&own, &elsewhere).unwrap();
    refused(&[
        "is missing",
        "rlm/w1",
        "git worktree prune; git worktree add",
    ]);
    fs_err::rename(&elsewhere, &own).unwrap();
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let words = [
        "branch rlm/w1 has 0 commits",
        "1 file is not committed",
        "rlm merge",
    ];
    expect_in_order(&ended.stdout, &words);
    assert_eq!(fs_err::read_to_string(own.join("work")).unwrap(), "1\n2\n");
}

#[test]
fn j53e_two_runs_in_their_own_worktrees_do_not_interfere() {
    let tree = "child plain\nchild setsid\nchild daemon\nchild holder\nprint ready\nhang";
    let scene = scene(tree);
    let first = scene.ready(&["--once", "--run-id", "here"]);
    assert_eq!(scene.tree_alive(), TREE_SIZE);
    let second = scene.ready(&["--once", "--run-id", "there", "--worktree"]);
    assert_eq!(
        scene.tree_alive(),
        2 * TREE_SIZE,
        "neither run ended processes of the other"
    );
    let held = scene.run(&["--once"]).run(LONG).expect_code(9);
    expect_in_order(&held.stderr, &["run `here`", "--worktree"]);
    let ps = scene.rlm(&["ps"]).run(LONG).expect_code(0).stdout;
    let pids = [first.pid(), second.pid()];
    assert!(
        pids.iter().all(|pid| ps.contains(&pid.to_string())),
        "{pids:?} in {ps}"
    );
    let alone = scene.rlm(&["resume"]).run(LONG).expect_code(9);
    assert!(alone.stderr.contains("run `here` is live"), "{alone}");
    scene.rlm(&["stop", "here"]).run(LONG).expect_code(0);
    first.wait(LONG);
    assert_eq!(scene.tree_alive(), TREE_SIZE);
    scene.rlm(&["stop", "there"]).run(LONG).expect_code(0);
    second.wait(LONG);
    scene.expect_nothing_alive();
}

#[test]
fn project_file_enables_commits_and_resume_can_disable_them() {
    let scene = scene("append work {start}\n@1 print ready\n@1 hang");
    let file = "commit = true\nworktree = true\nuntil = 'test 3 -le $(wc -l < work)'\nsleep = 0\n";
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    let running = scene.ready(&["--run-id", "r1"]);
    stop(running, Signal::TERM);
    let without = ["resume", "--commit=false"];
    scene.rlm(&without).run(LONG).expect_code(0);
    assert_eq!(subjects(&scene, "rlm/r1"), ["start"]);
}

#[test]
fn edited_submodule_is_named() {
    let scene = scene("append work {start}\nappend sub/README.md more");
    let part = scene.sandbox.path().join("part");
    let part = part.display().to_string();
    scene.sandbox.git(&["clone", "-q", ".", &part]);
    let allow = "protocol.file.allow=always";
    let add = ["-c", allow, "submodule", "--quiet", "add", &part, "sub"];
    scene.sandbox.git(&add);
    scene.sandbox.git(&["commit", "-q", "-m", "part"]);
    let run = ["--once", "--commit"];
    let ended = scene.run(&run).run(LONG).expect_code(0);
    let words = ["iteration 1 committed", "left out: sub (edited"];
    expect_in_order(&ended.stdout, &words);
}

/// The subjects used to be `rlm: iteration 2 of 20261122-214939-36bf`, which says nothing to a reader of the history.
#[test]
fn commit_has_the_first_sentence_of_the_agent_as_its_subject() {
    let scene = scene(
        "@1 run echo 1 >>work\n@1 say I added the first line. Shall I go on?\n@2 run echo 2 >>work\n@2 say ```",
    );
    let run = scene.claude(&[
        "-n",
        "2",
        "--commit",
        "--permissions",
        "all",
        "--run-id",
        "r1",
    ]);
    let ended = run.run(LONG).expect_code(0);
    let subjects = subjects(&scene, "main");
    assert_eq!(
        subjects,
        ["start", "I added the first line", "rlm: iteration 2 of r1"],
        "{ended}"
    );
    assert_eq!(trailer(&scene, "HEAD", "Rlm-Iteration"), "2");
}

#[test]
fn crash_after_a_commit_neither_loses_nor_repeats_it() {
    let scene = scene("@1 append work 1");
    hook(&scene, "post-commit", "touch .git/made; exec sleep 600");
    let running = scene
        .run(&["-n", "1", "--commit", "--run-id", "r1"])
        .spawn();
    scene.wait_for_file(".git/made");
    crash(running);
    scene.wait_until_nothing_is_alive();
    fs_err::remove_file(scene.file(".git/hooks/post-commit")).unwrap();
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let subjects = subjects(&scene, "main");
    assert_eq!(subjects, ["start", "rlm: iteration 1 of r1"]);
    let head = scene.sandbox.git(&["rev-parse", "HEAD"]);
    assert_eq!(scene.status()["committed"]["commit"], *head);
}

#[test]
fn commits_enabled_on_resume_start_from_the_current_commit() {
    let scene = scene("append work {start}\n@2 print ready\n@2 hang");
    stop(scene.ready(&["-n", "2", "--run-id", "r1"]), Signal::TERM);
    let resume = || scene.rlm(&["resume", "--commit"]).run(LONG);
    let refused = resume().expect_code(2);
    assert!(refused.stderr.contains("commit them first"), "{refused}");
    scene.sandbox.git(&["add", "work"]);
    scene.sandbox.git(&["commit", "-q", "-m", "mine"]);
    resume().expect_code(0);
    let subjects = subjects(&scene, "main");
    assert_eq!(subjects, ["start", "mine", "rlm: iteration 2 of r1"]);
    let body = scene.sandbox.git(&["log", "-1", "--format=%b"]);
    assert!(!body.contains("no commit"), "{body}");
}
