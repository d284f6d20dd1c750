//! A check or required check that can't run at all: a typo in a command line must not waste a night.

use std::os::unix::fs::PermissionsExt;

use crate::LONG;
use crate::scene::{Scene, expect_in_order};

const SLIP: &str = "no-such-command test";

#[test]
fn unrunnable_check_is_reported_at_once_and_ends_the_run_as_stuck() {
    let scene = Scene::new("print turn {start}");
    let run = ["-n", "20", "--until", SLIP];
    let ended = scene.run(&run).run(LONG).expect_code(6);
    assert_eq!(scene.start_count(), 3, "{ended}");
    expect_in_order(
        &ended.stdout,
        &[
            "`no-such-command test` can't be run",
            "exit status 127",
            "3 times in a row",
            "--until COMMAND",
            "iteration 2",
            "stuck: 3 unrunnable checks in a row",
        ],
    );
    assert_eq!(ended.stdout.matches("can't be run").count(), 1, "{ended}");
    // The hint of the error.
    let run = scene.run_id();
    let mended = ["resume", &run, "--until", "true"];
    scene.rlm(&mended).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 4);
}

#[test]
fn file_that_is_no_program_is_an_unrunnable_check() {
    let scene = Scene::new("print turn {start}");
    fs_err::write(scene.file("check"), "").unwrap();
    let run = ["-n", "20", "--until", "./check", "--max-failures", "2"];
    let ended = scene.run(&run).run(LONG).expect_code(6);
    assert!(ended.stdout.contains("exit status 126"), "{ended}");
    assert_eq!(scene.start_count(), 2, "{ended}");
}

/// The control: the same exit codes of a command that ran mean a failed check, without a warning.
#[test]
fn script_with_a_missing_command_counts_as_run() {
    let scene = Scene::new("print turn {start}");
    fs_err::write(scene.file("check"), format!("#!/bin/sh\n{SLIP}\n")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    fs_err::set_permissions(scene.file("check"), mode).unwrap();
    let run = ["-n", "4", "--until", "./check"];
    let ended = scene.run(&run).run(LONG).expect_code(3);
    assert!(ended.stdout.contains("exit status 127"), "{ended}");
    assert!(!ended.stdout.contains("can't be run"), "{ended}");
    assert_eq!(scene.start_count(), 4);
}

#[test]
fn check_that_ran_before_does_not_end_the_run_when_it_breaks() {
    let scene = Scene::new("print turn {start}\n@7 touch done");
    let check =
        "test -e done || { test $(ls .rlm/runs/*/transcripts | wc -l) -eq 1 || no-such-command; }";
    let run = ["-n", "9", "--until", &format!("{check} && test -e done")];
    scene.run(&run).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 7);
}

#[test]
fn unrunnable_required_check_is_reported_too() {
    let scene = Scene::new("print turn {start}");
    let run = ["-n", "20", "--gate", SLIP];
    let ended = scene.run(&run).run(LONG).expect_code(6);
    let said = [
        "can't be run",
        "--gate COMMAND",
        "failed required checks in a row",
    ];
    expect_in_order(&ended.stdout, &said);
    assert_eq!(ended.stdout.matches("can't be run").count(), 1, "{ended}");
}
