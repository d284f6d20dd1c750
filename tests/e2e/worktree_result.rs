//! The result of a run in its own worktree comes home, or is removed, with the commands that the end of the run prints.

use rlm_tests::{Ended, Rlm};

use crate::LONG;
use crate::scene::{Scene, expect_in_order, says};

/// Starts a run in its own worktree, which writes `work`.
fn run(scene: &Scene, arguments: &[&str]) -> Ended {
    for (key, value) in [
        ("user.name", "A. Tester"),
        ("user.email", "tester@localhost"),
    ] {
        scene.sandbox.git(&["config", key, value]);
    }
    let run = ["--once", "--worktree", "--run-id", "r1"];
    let run = scene.run(&[&run[..], arguments].concat());
    run.run(LONG).expect_code(0)
}

fn rlm<'a>(scene: &'a Scene, words: &[&str]) -> Rlm<'a> {
    scene.rlm(words)
}

/// Returns the printed command after `label`, without the program.
fn printed<'a>(ended: &'a Ended, label: &str) -> Vec<&'a str> {
    let line = { ended.stdout.lines() }.find_map(|line| line.trim().strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no {label:?}: {ended}"));
    line.split_whitespace().skip(1).collect()
}

fn head(scene: &Scene) -> String {
    scene.sandbox.git(&["rev-parse", "HEAD"])
}

/// Without `--commit`, a run in a worktree used to offer only the removal of its work.
#[test]
fn uncommitted_work_of_a_worktree_comes_home_with_the_printed_commands() {
    let scene = Scene::new("write work done");
    let ended = run(&scene, &[]);
    let (merge, remove) = (printed(&ended, "merge it:"), printed(&ended, "remove it:"));
    // No commit includes a report or an archive of rlm.
    let report = ["report", "r1", "-o", ".rlm/worktrees/r1/rlm-r1.html"];
    rlm(&scene, &report).run(LONG).expect_code(0);
    let before = head(&scene);
    let preview = rlm(&scene, &merge)
        .args(["--dry-run"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &preview.stdout,
        &[
            "merge rlm/r1 into",
            "1 file is not committed there; this commits them",
            "work",
        ],
    );
    let asks = rlm(&scene, &merge).run(LONG).expect_code(2);
    assert!(asks.stderr.contains("use --yes"), "{asks}");
    assert!(head(&scene) == before && !scene.file("work").exists());
    let merged = rlm(&scene, &merge).args(["--yes"]).run(LONG).expect_code(0);
    assert!(merged.stdout.starts_with("merged rlm/r1 into "), "{merged}");
    assert_eq!(
        fs_err::read_to_string(scene.file("work")).unwrap(),
        "done\n"
    );
    assert_eq!(scene.sandbox.git(&["ls-files", "rlm-r1.html"]), "");
    let again = rlm(&scene, &["merge"]).run(LONG).expect_code(0);
    assert!(again.stdout.starts_with("nothing to merge"), "{again}");
    let dropped = rlm(&scene, &remove)
        .args(["--dry-run"])
        .run(LONG)
        .expect_code(0);
    assert!(dropped.stdout.contains("nothing is lost"), "{dropped}");
    rlm(&scene, &remove)
        .args(["--yes"])
        .run(LONG)
        .expect_code(0);
    assert!(!scene.file(".rlm/worktrees/r1").exists());
    assert_eq!(scene.sandbox.git(&["branch", "--list", "rlm/*"]), "");
    // The run is still known, and has nothing more to merge or to drop.
    rlm(&scene, &["status", "r1"]).run(LONG).expect_code(0);
    for words in [&["merge", "r1"][..], &["drop", "r1", "--yes"]] {
        let gone = rlm(&scene, words).run(LONG).expect_code(2);
        assert!(gone.stderr.contains("the branch rlm/r1 is gone"), "{gone}");
    }
}

#[test]
fn committed_work_is_listed_and_merged_on_a_terminal() {
    let scene = Scene::new("write work done");
    run(&scene, &["--commit"]);
    let json = rlm(&scene, &["merge", "--dry-run", "--json"])
        .run(LONG)
        .expect_code(0);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&json["step"], &json["commits"]),
        (&"merge".into(), &1.into())
    );
    assert_eq!(json["changes"], "1 file changed, 1 insertion(+)");
    let (no, terminal) = rlm(&scene, &["merge"]).spawn_on_terminal();
    terminal.sees("merge it? [y/N]", LONG);
    terminal.send("\r");
    no.wait(LONG).expect_code(0);
    terminal.sees("nothing was changed", LONG);
    assert!(!scene.file("work").exists());
    let (yes, terminal) = rlm(&scene, &["merge"]).spawn_on_terminal();
    terminal.sees("merge it? [y/N]", LONG);
    terminal.send("y\r");
    yes.wait(LONG).expect_code(0);
    assert!(scene.file("work").exists());
}

#[test]
fn conflict_leaves_the_working_tree_as_it_was() {
    let scene = Scene::new("write work theirs");
    run(&scene, &[]);
    fs_err::write(scene.file("work"), "mine\n").unwrap();
    // Git refuses to overwrite a file that it doesn't know.
    let in_the_way = rlm(&scene, &["merge", "--yes"]).run(LONG).expect_code(2);
    assert!(in_the_way.stderr.contains("work"), "{in_the_way}");
    scene.sandbox.git(&["add", "work"]);
    scene.sandbox.git(&["commit", "--quiet", "-m", "mine"]);
    let before = head(&scene);
    let conflict = rlm(&scene, &["merge", "--yes"]).run(LONG).expect_code(1);
    let says = "these files conflict: work; nothing is changed here. To resolve it by hand: git merge rlm/r1";
    assert!(conflict.stderr.contains(says), "{conflict}");
    assert_eq!(head(&scene), before);
    assert_eq!(scene.sandbox.git(&["status", "--porcelain"]), "");
    assert_eq!(
        fs_err::read_to_string(scene.file("work")).unwrap(),
        "mine\n"
    );
    // The work is still there.
    let lost = rlm(&scene, &["drop", "--dry-run"]).run(LONG).expect_code(0);
    expect_in_order(
        &lost.stdout,
        &["lost: 1 commit that", "Uncommitted work of run r1"],
    );
    assert!(scene.file(".rlm/worktrees/r1/work").exists());
}

#[test]
fn live_run_and_run_without_a_worktree_are_refused() {
    let scene = Scene::new("print ready\nawait go");
    let mut running = scene
        .run(&["--once", "--worktree", "--run-id", "r1"])
        .spawn();
    says(&mut running, "ready");
    for command in ["merge", "drop"] {
        let live = rlm(&scene, &[command, "r1", "--yes"])
            .run(LONG)
            .expect_code(9);
        assert!(live.stderr.contains("rlm stop r1"), "{live}");
    }
    fs_err::write(scene.file(".rlm/worktrees/r1/go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    fs_err::write(scene.file("go"), "").unwrap();
    scene
        .run(&["--once", "--run-id", "r2"])
        .run(LONG)
        .expect_code(0);
    let own = rlm(&scene, &["merge", "r2"]).run(LONG).expect_code(2);
    assert!(own.stderr.contains("its result is already here"), "{own}");
}

#[test]
fn merge_of_a_person_and_a_failing_hook_lose_nothing() {
    let scene = Scene::new("write work theirs");
    run(&scene, &["--commit"]);
    let hook = scene.file(".git/hooks/pre-merge-commit");
    fs_err::create_dir_all(hook.parent().unwrap()).unwrap();
    fs_err::write(&hook, "#!/bin/sh\necho not today >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // Without a commit of its own, the branch would only move forward, and no hook would run.
    scene
        .sandbox
        .git(&["commit", "--quiet", "--allow-empty", "-m", "mine"]);
    let before = head(&scene);
    let refused = rlm(&scene, &["merge", "--yes"]).run(LONG).expect_code(2);
    assert!(refused.stderr.contains("Not committing merge"), "{refused}");
    assert_eq!(head(&scene), before);
    assert_eq!(scene.sandbox.git(&["status", "--porcelain"]), "");
    fs_err::remove_file(&hook).unwrap();
    // A merge that a person has begun.
    scene
        .sandbox
        .git(&["merge", "--quiet", "--no-commit", "rlm/r1"]);
    let busy = rlm(&scene, &["merge", "--yes"]).run(LONG).expect_code(2);
    assert!(busy.stderr.contains("in the middle of a merge"), "{busy}");
    assert_eq!(
        fs_err::read_to_string(scene.file("work")).unwrap(),
        "theirs\n"
    );
}
