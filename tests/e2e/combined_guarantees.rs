//! Guarantees that depend on two mechanisms: required checks after an unfinished attempt, and a press before the run exists.

use std::os::unix::fs::PermissionsExt;

use rlm_tests::poll_until;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, stop};

#[test]
fn required_checks_must_pass_after_an_unfinished_attempt() {
    let scene = Scene::new("@1 print ready\n@1 hang\nprint turn {start}");
    stop(
        scene.ready(&["--gate", "test -e good", "--until", "true"]),
        Signal::INT,
    );
    let ended = scene.rlm(&["resume", "-n", "1"]).run(LONG).expect_code(3);
    assert!(!ended.stdout.contains("done: "), "{ended}");
    assert_eq!(scene.start_count(), 2);
    fs_err::write(scene.file("good"), "").unwrap();
    scene
        .rlm(&["resume", &scene.run_id(), "-n", "2"])
        .run(LONG)
        .expect_code(0);
}

#[test]
fn j43_press_before_the_run_exists_ends_the_process() {
    let scene = Scene::new("print turn");
    let fifo = scene.file("fifo");
    std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    // The git of this run waits for a writer.
    let bin = scene.file("bin");
    fs_err::create_dir(&bin).unwrap();
    let git = bin.join("git");
    fs_err::write(&git, "#!/bin/sh\ntouch \"$ASKED\"\nread line <\"$FIFO\"\n").unwrap();
    fs_err::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut running = scene
        .run(&["--once"])
        .env("PATH", path)
        .env("FIFO", &fifo)
        .env("ASKED", scene.file("asked"))
        .spawn();
    scene.wait_for_file("asked");
    running.signal(Signal::INT);
    // A wait for git alone would take two seconds.
    let soon = poll_until(LONG / 20, || running.has_ended().then_some(()));
    assert!(soon.is_some(), "rlm waits for git");
    running.wait(LONG).expect_signal(Signal::INT);
    assert!(!scene.file(".rlm").exists());
    scene.expect_nothing_alive();
}
