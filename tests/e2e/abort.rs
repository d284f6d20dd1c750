//! A second stop with less time shortens a running stop, whatever it is ending.

use std::os::unix::fs::PermissionsExt as _;

use rlm_tests::{Rlm, wait_for};

use crate::LONG;
use crate::control::quick;
use crate::scene::Scene;

/// Ignores signals, but records them.
const DEAF: &str = "trap 'echo INT >>told' INT; trap 'echo TERM >>told' TERM; echo >up
while :; do sleep 0.05; done";

/// Stops a run twice while a process that ignores signals delays the first stop. Returns the signals that this process received.
fn received_signals(scene: &Scene, run: Rlm<'_>) -> String {
    let running = run.spawn();
    scene.wait_for_file("up");
    let first = scene.rlm(&["stop"]).spawn();
    let told = || fs_err::read_to_string(scene.file("told")).unwrap_or_default();
    wait_for("the first stop", LONG, || {
        (!told().is_empty()).then_some(())
    });
    let now = quick(scene.rlm(&["stop", "--now"])).expect_code(0);
    // The budget of an abort, not of the first stop.
    assert!(
        now.stdout.contains("recorded; stopping (up to 1s)"),
        "{now}"
    );
    first.wait(LONG).expect_code(0);
    scene.expect_nothing_alive();
    running.wait(LONG).expect_code(7);
    assert_eq!(scene.status()["state"], "stopped");
    told()
}

#[test]
fn l90g_second_stop_shortens_the_end_of_a_required_check() {
    let scene = Scene::new("print turn {start}");
    let told = received_signals(&scene, scene.run(&["--once", "--gate", DEAF]));
    // SIGTERM would have followed three seconds later, and SIGKILL after that.
    assert_eq!(told, "INT\n");
}

#[test]
fn l90g_required_check_with_closed_output_is_stopped_too() {
    let scene = Scene::new("print turn {start}");
    let gate = format!("exec >/dev/null 2>&1\n{DEAF}");
    let told = received_signals(&scene, scene.run(&["--once", "--gate", &gate]));
    assert_eq!(told, "INT\n");
}

#[test]
fn l90g_second_stop_shortens_the_end_of_an_agent() {
    let scene = Scene::new("");
    let run = scene.rlm(&["run", "-p", "x", "--once", "--", "sh", "-c", DEAF]);
    assert_eq!(received_signals(&scene, run), "INT\nTERM\n");
}

#[test]
fn l90g_second_stop_shortens_the_end_of_leftovers() {
    let scene = Scene::new("");
    let agent = format!("({DEAF}) >/dev/null 2>&1 & while ! test -e up; do sleep 0.05; done");
    // The run ends the leftovers while a second iteration is still ahead.
    let run = ["run", "-p", "x", "-n", "2", "--sleep", "600", "--"];
    let run = scene.rlm(&run).args(["sh", "-c", &agent]);
    assert_eq!(received_signals(&scene, run), "TERM\n");
}

#[test]
fn l90g_second_stop_shortens_the_end_of_a_commit() {
    let scene = Scene::new("@1 touch made\nprint turn {start}");
    let git = |arguments: &[&str]| scene.sandbox.git(arguments);
    git(&["config", "user.name", "A. Tester"]);
    git(&["config", "user.email", "tester@invalid"]);
    let hook = scene.file(".git/hooks/pre-commit");
    fs_err::create_dir_all(hook.parent().unwrap()).unwrap();
    fs_err::write(&hook, format!("#!/bin/sh\n{DEAF}\n")).unwrap();
    fs_err::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let told = received_signals(&scene, scene.run(&["-n", "2", "--commit"]));
    assert!(told.starts_with("INT\n"), "{told}");
}
