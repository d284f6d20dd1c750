//! The leftovers of a killed export or import, and the protection of a running one.

use std::path::{Path, PathBuf};

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, crash, stop};
use crate::transfer::{checkpoints, git_there};
use crate::transfer_back::slow;
use crate::transfer_hostile::{archive, hanging, names, stopped};

/// Returns the number of incoming transfers in a project, complete or not.
fn incoming(state: PathBuf) -> usize {
    let is_incoming = |path: &PathBuf| path.display().to_string().contains("/incoming-");
    names(state).into_iter().filter(is_incoming).count()
}

fn refs(scene: &Scene) -> String {
    scene.sandbox.git(&["for-each-ref", "refs/rlm"])
}

#[test]
fn x112f_next_export_removes_leftovers_of_killed_export() {
    let scene = stopped();
    let words = ["checkpoints", "export", "r1", "-o", "r1.tar.zst"];
    let clean = ["clean", "--yes"];
    for (next, at) in [(&clean[..], "bundle create"), (&words, "bundle create")] {
        crash(hanging(&scene, scene.rlm(&words), at));
        // Git ends with the export.
        scene.wait_until_nothing_is_alive();
        assert_eq!(incoming(scene.file(".rlm")), 1);
        assert!(refs(&scene).contains("refs/rlm/transfer/"));
        let left = scene.file(".rlm-export-0123456789abcdef0123456789abcdef.partial");
        fs_err::write(&left, "").unwrap();
        let planned = scene.rlm(&["clean", "--dry-run"]).run(LONG);
        planned.expect_code(0);
        assert_eq!(incoming(scene.file(".rlm")), 1);
        scene.rlm(next).run(LONG).expect_code(0);
        assert_eq!(incoming(scene.file(".rlm")), 0);
        assert_eq!(refs(&scene), "");
        assert_eq!(left.exists(), next == clean);
    }
}

#[test]
fn x112f_clean_spares_a_running_import() {
    let scene = stopped();
    archive(&scene);
    scene.sandbox.git(&["clone", "-q", ".", "../clone"]);
    let clone = scene.sandbox.path().join("clone");
    let words = ["-C", "../clone", "checkpoints", "import", "../r1.tar.zst"];
    let running = hanging(&scene, scene.rlm(&words), "fetch");
    let clean = ["-C", "../clone", "clean", "--days", "0", "--yes"];
    scene.rlm(&clean).run(LONG).expect_code(0);
    assert_eq!(incoming(clone.join(".rlm")), 1);
    // A second import keeps the first one's files too.
    scene.rlm(&words).run(LONG).expect_code(0);
    assert_eq!(incoming(clone.join(".rlm")), 1);
    crash(running);
    scene.wait_until_nothing_is_alive();
    scene.rlm(&clean).run(LONG).expect_code(0);
    assert_eq!(incoming(clone.join(".rlm")), 0);
}

#[test]
fn x112h_existing_file_is_reported_before_anything_is_created() {
    let scene = stopped();
    fs_err::write(scene.sandbox.path().join("r1.tar.zst"), "mine").unwrap();
    // If the file check came later, the error would be about this change instead.
    fs_err::write(scene.file("work"), "not committed").unwrap();
    let words = ["export", "r1", "-o", "../r1.tar.zst"];
    let refused = checkpoints(&scene, &words).expect_code(1);
    assert!(refused.stderr.contains("already exists"), "{refused}");
    assert_eq!(scene.status()["state"], "stopped");
}

#[test]
fn x112f_slow_filter_ends_with_an_import_into_an_empty_repository() {
    let scene = stopped();
    fs_err::write(scene.file(".gitattributes"), "* filter=slow\n").unwrap();
    scene.sandbox.git(&["add", ".gitattributes"]);
    scene.sandbox.git(&["commit", "-q", "-m", "slow"]);
    archive(&scene);
    scene
        .sandbox
        .git(&["init", "-q", "-b", "theirs", "../other"]);
    let other = scene.sandbox.path().join("other");
    let filter = slow(&scene, &other);
    let hangs = format!("{filter}.hangs");
    let words = ["-C", "../other", "checkpoints", "import", "../r1.tar.zst"];
    let hanging = || {
        fs_err::write(format!("{filter}.hang"), "").unwrap();
        let running = scene.rlm(&words).spawn();
        wait_for("the filter to hang", LONG, || {
            Path::new(&hangs).exists().then_some(())
        });
        fs_err::remove_file(&hangs).unwrap();
        running
    };
    stop(hanging(), Signal::INT);
    scene.expect_nothing_alive();
    assert_eq!(names(other.clone()), [other.join(".git")]);
    let git = |words: &[&str]| git_there(&scene, "other", words);
    assert_eq!(git(&["symbolic-ref", "HEAD"]), "refs/heads/theirs");
    assert_eq!(git(&["for-each-ref"]), "");
    crash(hanging());
    scene.wait_until_nothing_is_alive();
}
