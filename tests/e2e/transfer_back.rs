//! Archives inside a working tree, runs that are imported back, and the working tree after an interrupted import.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, expect_in_order, stop, text};
use crate::transfer::{checkpoints, export, fork, git_there, import, status, status_there, there};
use crate::transfer_hostile::{names, stopped};

/// Sets a git identity in a directory beside the repository.
fn known(scene: &Scene, place: &str) {
    for words in [
        ["user.name", "A. Tester"],
        ["user.email", "tester@localhost"],
    ] {
        git_there(scene, place, &[&["config"], &words[..]].concat());
    }
}

/// Copies a file from one project to another.
fn carry(scene: &Scene, from: &str, to: &str) {
    let [from, to] = [from, to].map(|it| scene.sandbox.path().join(it));
    fs_err::copy(from, to).unwrap();
}

#[test]
fn x112i_archives_and_reports_are_in_no_commit() {
    let scene = stopped();
    // With the default names, and with other names.
    export(&scene, &["r1", "--copy"]);
    export(&scene, &["r1", "--copy", "-o", "backup.tar.zst"]);
    scene.rlm(&["report", "r1"]).run(LONG).expect_code(0);
    let begun = fs_err::read(scene.file("backup.tar.zst")).unwrap();
    let left = ".rlm-export-0123456789abcdef0123456789abcdef.partial";
    fs_err::write(scene.file(left), &begun[..begun.len() - 9]).unwrap();
    fs_err::write(
        scene.file("rlm-guide.html"),
        "<!doctype html><title>Mine</title>",
    )
    .unwrap();
    fs_err::write(scene.file("data.zst"), "mine").unwrap();
    let refused = checkpoints(&scene, &["export", "r1", "-o", "../x"]).expect_code(2);
    let words = ["2 files are not committed", "data.zst, rlm-guide.html)"];
    expect_in_order(&refused.stderr, &words);
    export(
        &scene,
        &["r1", "--copy", "--allow-dirty", "-o", "../dirty.zst"],
    );
    import(&scene, "other", &["../dirty.zst"]);
    let there = names(scene.sandbox.path().join("other"));
    let there: Vec<_> = there
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap())
        .collect();
    let known = [
        ".git",
        ".rlm",
        "README.md",
        "data.zst",
        "rlm-guide.html",
        "work",
    ];
    assert_eq!(there, known);

    scene.rlm(&["resume", "r1"]).run(LONG).expect_code(0);
    let files = scene.sandbox.git(&["ls-files"]);
    assert_eq!(files, "README.md\ndata.zst\nrlm-guide.html\nwork");
    let seen = status(&scene, "r1");
    assert_eq!(seen["git_changed"], 0, "{seen}");
    let run = ["--commit", "--once", "--run-id", "r2"];
    scene.run(&run).run(LONG).expect_code(0);
    assert_eq!(scene.sandbox.git(&["ls-files"]), files);
    let left = scene.sandbox.git(&["status", "--porcelain"]);
    for name in ["rlm-r1.tar.zst", "backup.tar.zst", "rlm-r1.html"] {
        assert!(left.contains(&format!("?? {name}")), "{left}");
    }
}

#[test]
fn x112d_printed_commands_export_and_import_a_run_back() {
    let scene = stopped();
    let exported = export(&scene, &["r1"]);
    assert_eq!(exported["next"], "rlm checkpoints import rlm-r1.tar.zst");
    let note = text(&exported["notes"][0]);
    assert!(note.contains("git does not ignore it"), "{note}");
    carry(&scene, "repo/rlm-r1.tar.zst", "other/rlm-r1.tar.zst");
    // A refused import keeps the archive.
    fs_err::write(scene.sandbox.path().join("other/mine"), "").unwrap();
    let words = ["checkpoints", "import", "rlm-r1.tar.zst"];
    let refused = there(&scene, "other", &words).expect_code(2);
    assert!(refused.stderr.contains("neither empty nor"), "{refused}");
    fs_err::remove_file(scene.sandbox.path().join("other/mine")).unwrap();
    let imported = import(&scene, "other", &["rlm-r1.tar.zst"]);
    assert_eq!(imported["arrival"], "new-repository");
    assert!(scene.sandbox.path().join("other/rlm-r1.tar.zst").exists());
    known(&scene, "other");
    there(&scene, "other", &["resume", "r1"]).expect_code(0);
    assert_eq!(git_there(&scene, "other", &["ls-files"]), "README.md\nwork");
    let words = ["checkpoints", "export", "r1", "-o", "back.tar.zst"];
    there(&scene, "other", &words).expect_code(0);

    carry(&scene, "other/back.tar.zst", "repo/back.tar.zst");
    let imported = checkpoints(&scene, &["import", "back.tar.zst"]).expect_code(0);
    expect_in_order(
        &imported.stdout,
        &["run r1 is here, in the existing working tree"],
    );
    assert_eq!(status(&scene, "r1")["iterations_complete"], 3);
    let log = scene.sandbox.git(&["log", "--format=%s", "main"]);
    expect_in_order(&log, &["iteration 3 of r1", "iteration 1 of r1", "start"]);
}

#[test]
fn x112e_commits_of_an_archive_do_not_overwrite_it() {
    let scene = stopped();
    fs_err::write(scene.file("rlm-r1.tar.zst"), "theirs").unwrap();
    scene.sandbox.git(&["add", "."]);
    scene.sandbox.git(&["commit", "-q", "-m", "more"]);
    export(&scene, &["r1", "-o", "../r1.zst"]);
    carry(&scene, "r1.zst", "other/rlm-r1.tar.zst");
    let before = fs_err::read(scene.sandbox.path().join("r1.zst")).unwrap();
    let words = ["checkpoints", "import", "rlm-r1.tar.zst"];
    let refused = there(&scene, "other", &words).expect_code(2);
    assert!(refused.stderr.contains("move it away"), "{refused}");
    let other = scene.sandbox.path().join("other");
    let archive = other.join("rlm-r1.tar.zst");
    assert_eq!(names(other), std::slice::from_ref(&archive));
    assert_eq!(fs_err::read(archive).unwrap(), before);
}

#[test]
fn x112d_import_keeps_ignored_files() {
    let scene = stopped();
    export(&scene, &["r1", "-o", "../r1.zst"]);
    import(&scene, "other", &["../r1.zst"]);
    let other = scene.sandbox.path().join("other");
    fs_err::write(other.join("secret"), "theirs").unwrap();
    known(&scene, "other");
    there(&scene, "other", &["resume", "r1"]).expect_code(0);
    let words = ["checkpoints", "export", "r1", "-o", "../back.zst"];
    there(&scene, "other", &words).expect_code(0);
    fs_err::create_dir_all(scene.file(".git/info")).unwrap();
    fs_err::write(scene.file(".git/info/exclude"), "secret\n").unwrap();
    fs_err::write(scene.file("secret"), "mine").unwrap();
    let head = scene.sandbox.git(&["rev-parse", "HEAD"]);
    let refused = checkpoints(&scene, &["import", "../back.zst"]).expect_code(2);
    assert!(refused.stderr.contains("`secret` exists here"), "{refused}");
    assert_eq!(
        fs_err::read_to_string(scene.file("secret")).unwrap(),
        "mine"
    );
    assert_eq!(scene.sandbox.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(status(&scene, "r1")["state"], "transferred");
    fs_err::remove_file(scene.file("secret")).unwrap();
    checkpoints(&scene, &["import", "../back.zst"]).expect_code(0);
}

#[test]
fn x112c_x112d_repeated_export_is_the_same_transfer() {
    let scene = stopped();
    export(&scene, &["r1", "-o", "../first.zst"]);
    import(&scene, "other", &["../first.zst"]);
    export(&scene, &["r1", "-o", "../second.zst", "--force"]);
    let words = ["checkpoints", "export", "r1", "-o", "../back.zst"];
    there(&scene, "other", &words).expect_code(0);
    let own = checkpoints(&scene, &["import", "../second.zst"]).expect_code(1);
    expect_in_order(
        &own.stderr,
        &["exported from here and did not continue", "--force"],
    );
    checkpoints(&scene, &["import", "../back.zst"]).expect_code(0);
    assert_eq!(status(&scene, "r1")["state"], "stopped");
}

/// A filter that hangs once.
const SMUDGE: &str = r#"#!/bin/sh
if mv "$0.pass" "$0.passed" 2>/dev/null; then exec cat; fi
if mv "$0.hang" "$0.hangs" 2>/dev/null; then exec sleep 777; fi
exec cat
"#;

/// Installs that filter for `*.slow` in a repository, and returns its path.
pub(crate) fn slow(scene: &Scene, repository: &Path) -> String {
    let filter = scene.sandbox.path().join("filter");
    fs_err::write(&filter, SMUDGE).unwrap();
    fs_err::set_permissions(&filter, PermissionsExt::from_mode(0o755)).unwrap();
    let filter = filter.display().to_string();
    let repository = repository.display().to_string();
    let config = ["-C", &repository, "config", "filter.slow.smudge", &filter];
    scene.sandbox.git(&config);
    filter
}

#[test]
fn x112f_press_during_slow_checkout_restores_the_working_tree() {
    let scene = Scene::new(
        "@2 print ready\n@2 hang\nappend work {start}\nappend b.slow {start}\n@3.. append a {start}",
    );
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    scene
        .sandbox
        .git(&["config", "user.email", "tester@localhost"]);
    fs_err::write(scene.file(".gitattributes"), "*.slow filter=slow\n").unwrap();
    scene.sandbox.git(&["add", "."]);
    scene.sandbox.git(&["commit", "-q", "-m", "slow"]);
    let run = ["-n", "3", "--commit", "--run-id", "r1"];
    stop(scene.ready(&run), Signal::INT);
    let filter = slow(&scene, &scene.file("."));
    let other = scene.sandbox.path().join("other");
    fs_err::create_dir(&other).unwrap();
    export(&scene, &["r1", "-o", "../r1.zst"]);
    import(&scene, "other", &["../r1.zst"]);
    known(&scene, "other");
    there(&scene, "other", &["resume", "r1"]).expect_code(0);
    fs_err::write(other.join("b.slow"), "not committed\n").unwrap();
    fs_err::write(other.join("c"), "not committed\n").unwrap();
    let words = [
        "checkpoints",
        "export",
        "r1",
        "--allow-dirty",
        "-o",
        "../back.zst",
    ];
    there(&scene, "other", &words).expect_code(0);

    let stands = || {
        let mut tree = names(scene.file("."));
        tree.retain(|path| !path.ends_with(".git"));
        (
            tree,
            fs_err::read_to_string(scene.file("b.slow")).unwrap(),
            scene.sandbox.git(&["status", "--porcelain", "--branch"]),
            scene.sandbox.git(&["log", "--format=%H", "--all"]),
            status(&scene, "r1")["state"].clone(),
        )
    };
    let before = stands();
    // During the merge, and during the restore of uncommitted changes.
    for signs in [&["hang"][..], &["pass", "hang"]] {
        for sign in signs {
            fs_err::write(format!("{filter}.{sign}"), "").unwrap();
        }
        let import = scene.rlm(&["checkpoints", "import", "../back.zst"]);
        let running = import.spawn();
        let hangs = format!("{filter}.hangs");
        wait_for("the filter to hang", LONG, || {
            Path::new(&hangs).exists().then_some(())
        });
        // By then the earlier file has been written.
        stop(running, Signal::INT);
        scene.expect_nothing_alive();
        fs_err::remove_file(hangs).unwrap();
        assert_eq!(stands(), before, "{signs:?}");
        assert!(!scene.file(".git/index.lock").exists());
    }
    // The same with a worktree of the run.
    scene.sandbox.git(&["clone", "-q", ".", "../clone"]);
    let clone = scene.sandbox.path().join("clone");
    slow(&scene, &clone);
    let branches = git_there(&scene, "clone", &["branch", "--list", "--all"]);
    fs_err::write(format!("{filter}.hang"), "").unwrap();
    let words = ["-C", "../clone", "checkpoints", "import", "../back.zst"];
    let running = scene.rlm(&words).spawn();
    wait_for("the filter to hang", LONG, || {
        Path::new(&format!("{filter}.hangs")).exists().then_some(())
    });
    stop(running, Signal::INT);
    scene.expect_nothing_alive();
    assert!(!clone.join(".rlm").exists());
    assert_eq!(
        git_there(&scene, "clone", &["branch", "--list", "--all"]),
        branches
    );
    // Without an interrupt, the import succeeds.
    checkpoints(&scene, &["import", "../back.zst"]).expect_code(0);
    let work = fs_err::read_to_string(scene.file("b.slow")).unwrap();
    assert_eq!(work, "not committed\n");
    let changed = scene.sandbox.git(&["status", "--porcelain"]);
    expect_in_order(&changed, &["M b.slow", "?? c"]);
}

#[test]
fn x112a_state_alone_is_imported_if_the_commits_exist() {
    let scene = stopped();
    scene.sandbox.git(&["clone", "-q", ".", "../clone"]);
    fs_err::write(scene.file("mine"), "").unwrap();
    let words = ["r1", "--state-only", "--allow-dirty", "-o", "../r1.zst"];
    let exported = export(&scene, &words);
    expect_in_order(
        &text(&exported["notes"][0]),
        &["the export leaves out", "mine"],
    );
    let words = ["checkpoints", "import", "../r1.zst"];
    let refused = there(&scene, "other", &words).expect_code(2);
    assert!(refused.stderr.contains("--state-only"), "{refused}");
    let imported = import(&scene, "clone", &["../r1.zst"]);
    assert_eq!(
        (&imported["arrival"], &imported["branch"]),
        (&"working-tree".into(), &"main".into())
    );
    assert!(!scene.sandbox.path().join("clone/mine").exists());
    known(&scene, "clone");
    there(&scene, "clone", &["resume", "r1"]).expect_code(0);
    assert_eq!(
        status_there(&scene, "clone", "r1")["iterations_complete"],
        3
    );
}

#[test]
fn x111c_fork_starts_from_the_named_phase() {
    let scene = Scene::new("append work {start}");
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    scene
        .sandbox
        .git(&["config", "user.email", "tester@localhost"]);
    let phase = |name: &str| {
        format!(
            "[[phase]]\nname = '{name}'\nprompt = 'Do the {name}.'\ncommand = {:?}\nmax-iterations = 2\n",
            scene.agent.argv()
        )
    };
    let file = format!("sleep = 0\n{}{}", phase("plan"), phase("build"));
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    scene.sandbox.git(&["add", "."]);
    scene.sandbox.git(&["commit", "-q", "-m", "phases"]);
    let run = ["run", "--commit", "--run-id", "r1"];
    scene.rlm(&run).run(LONG).expect_code(0);
    let forked = fork(
        &scene,
        &["r1", "--at", "1", "--phase", "plan", "--run-id", "p"],
    );
    assert_eq!(
        (&forked["phase"], &forked["iteration"]),
        (&"plan".into(), &1.into())
    );
    let forked = fork(
        &scene,
        &["r1", "--at", "1", "--phase", "build", "--run-id", "b"],
    );
    assert_eq!(
        (&forked["phase"], &forked["iteration"]),
        (&"build".into(), &1.into())
    );
    let work =
        |run: &str| fs_err::read_to_string(scene.file(".rlm/worktrees").join(run).join("work"));
    assert_eq!(
        (work("p").unwrap(), work("b").unwrap()),
        ("1\n".into(), "1\n2\n3\n".into())
    );
    scene.rlm(&["resume", "p"]).run(LONG).expect_code(0);
    assert_eq!(work("p").unwrap(), "1\n5\n6\n7\n");
}
