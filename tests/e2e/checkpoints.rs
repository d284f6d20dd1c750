//! `rlm checkpoints`: it lists and verifies the saves, and changes nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rlm_tests::Ended;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{Scene, crash, events, expect_in_order, stop, text};

/// The second turn fails, the third one hangs.
const SCRIPT: &str = "print turn {start}\n@2 exit 3\n@3 print ready\n@3 hang";

/// Returns a run that was stopped in its third iteration.
fn stopped() -> Scene {
    let scene = Scene::new(SCRIPT);
    stop(scene.ready(&["-n", "4"]), Signal::INT);
    scene
}

fn folder(scene: &Scene) -> PathBuf {
    scene.file(".rlm/runs").join(scene.run_id())
}

fn journal(scene: &Scene) -> PathBuf {
    let entries = fs_err::read_dir(folder(scene)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let journals = paths.filter(|path| path.extension().is_some_and(|end| end == "ckj"));
    journals.max().unwrap()
}

fn damage(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs_err::read(path).unwrap();
    change(&mut bytes);
    fs_err::write(path, bytes).unwrap();
}

fn middle(bytes: &mut [u8]) {
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 0xff;
}

/// Returns every file with its content, mode and modification time.
fn files(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs_err::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs_err::read(&path).unwrap();
                let (mode, time) = (meta.permissions().mode(), meta.modified().unwrap());
                found.insert(path, (bytes, mode, time));
            }
        }
    }
    found
}

fn checkpoints(scene: &Scene, arguments: &[&str]) -> Ended {
    let command = [&["checkpoints"], arguments].concat();
    scene.rlm(&command).run(LONG)
}

#[track_caller]
fn listed(scene: &Scene) -> Value {
    let ended = checkpoints(scene, &["list", "--json"]).expect_code(0);
    let mut all = events(&ended.stdout);
    assert_eq!(all.len(), 1, "{ended}");
    all.remove(0)
}

fn outcomes(list: &Value) -> Vec<String> {
    let rows = list["attempts"].as_array().unwrap().iter();
    rows.map(|row| {
        let (iteration, attempt) = (&row["iteration"], &row["attempt"]);
        format!("{iteration}.{attempt} {}", text(&row["outcome"]))
    })
    .collect()
}

#[test]
fn list_shows_attempts_phases_and_saves_and_changes_nothing() {
    let scene = stopped();
    let before = files(&scene.file(".rlm"));
    let list = listed(&scene);
    assert_eq!(
        outcomes(&list),
        ["1.1 complete", "2.1 failed", "3.1 unfinished"]
    );
    assert_eq!(
        text(&list["attempts"][1]["reason"]),
        "the agent ended: exit status 3"
    );
    assert_eq!(text(&list["attempts"][2]["reason"]), "the run was stopped");
    let expected = [("health", "valid"), ("state", "stopped")];
    for (key, value) in expected {
        assert_eq!(list[key], value, "{list}");
    }
    let expected = [("resumable", true), ("locked", false), ("finished", false)];
    for (key, value) in expected {
        assert_eq!(list[key], value, "{list}");
    }
    let saves = list["attempts"].as_array().unwrap().iter();
    let saves: Vec<u64> = saves.map(|row| row["save"].as_u64().unwrap()).collect();
    assert!(saves.is_sorted(), "{saves:?}");
    let run = scene.run_id();
    checkpoints(&scene, &["list", &run]).expect_code(0);
    checkpoints(&scene, &["show", &run]).expect_code(0);
    checkpoints(&scene, &["verify", &run]).expect_code(0);
    assert_eq!(files(&scene.file(".rlm")), before);

    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let list = listed(&scene);
    let expected = [
        "1.1 complete",
        "2.1 failed",
        "3.1 unfinished",
        "3.2 complete",
        "4.1 complete",
    ];
    assert_eq!(outcomes(&list), expected);
    assert_eq!(
        (&list["finished"], &list["resumable"]),
        (&true.into(), &false.into())
    );
    let phase = &list["phases"][0];
    assert_eq!(phase["phase"], "main");
    assert_eq!(
        phase["errors"][0],
        "iteration 2: the agent ended: exit status 3"
    );
    let commit = scene.sandbox.git(&["rev-parse", "HEAD"]);
    assert_eq!(
        (text(&phase["git_commit"]), &phase["commit_changed"]),
        (commit, &false.into())
    );
    scene
        .sandbox
        .git(&["commit", "-q", "--allow-empty", "-m", "more"]);
    assert_eq!(listed(&scene)["phases"][0]["commit_changed"], true);
    let shown = checkpoints(&scene, &["list"]).expect_code(0).stdout;
    expect_in_order(
        &shown,
        &[
            "ended, valid",
            "main: iteration 1, attempt 1: complete",
            "iteration 2, attempt 1: failed: the agent ended",
            "phase main finished",
            "HEAD is at another commit now, 1 error",
        ],
    );
}

#[test]
fn old_state_is_shown_with_its_events() {
    let scene = stopped();
    let run = scene.run_id();
    let list = listed(&scene);
    let at = checkpoints(&scene, &["show", &run, "--at", "1", "--json"]).expect_code(0);
    let at = events(&at.stdout).remove(0);
    assert_eq!(at["save"], list["attempts"][0]["save"]);
    assert_eq!(at["head"]["machine"]["last_iteration"]["iteration"], 1);
    assert_eq!(at["head"]["machine"]["counts"]["iterations"], 1);
    assert_eq!(at["last_events"][0]["what"], "started");
    let save = list["attempts"][1]["save"].to_string();
    let of_save = checkpoints(&scene, &["show", &run, "--save", &save, "--json"]).expect_code(0);
    let of_save = events(&of_save.stdout).remove(0);
    assert_eq!(of_save["head"]["machine"]["last_iteration"]["iteration"], 2);
    let shown = checkpoints(&scene, &["show", &run]).expect_code(0).stdout;
    expect_in_order(
        &shown,
        &["at      iteration 3", "  file    progress-", "rlm-run 1"],
    );
    for unknown in [["--at", "9"], ["--save", "999"]] {
        let ended = checkpoints(&scene, &[&["show", &run], &unknown[..]].concat());
        let ended = ended.expect_code(10);
        assert!(ended.stderr.contains("rlm checkpoints list"), "{ended}");
    }
}

#[test]
fn a_live_run_is_listed_and_verified_while_it_saves() {
    let scene = Scene::new(SCRIPT);
    let running = scene.ready(&["-n", "4"]);
    let list = listed(&scene);
    assert_eq!(
        (&list["locked"], &list["state"]),
        (&true.into(), &"running".into())
    );
    assert_eq!(
        outcomes(&list),
        ["1.1 complete", "2.1 failed", "3.1 running"]
    );
    let verified = checkpoints(&scene, &["verify"]).expect_code(0);
    assert!(
        verified.stdout.contains("a process works on the run"),
        "{verified}"
    );
    crash(running);
    scene.wait_until_nothing_is_alive();
    let list = listed(&scene);
    assert_eq!(
        text(&list["attempts"][2]["reason"]),
        "the loop's process died"
    );
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
}

#[test]
fn constantly_saving_run_is_never_reported_as_damaged() {
    let scene = Scene::new("");
    let loops = [
        "run", "--sleep", "0", "-p", "x", "-n", "60", "--gate", "true", "--", "true",
    ];
    let mut running = scene.rlm(&loops).spawn();
    running.until("saves", LONG, |running| {
        running
            .stdout()
            .contains("iteration 1 complete")
            .then_some(())
    });
    let (mut looks, mut seen) = (0, 0);
    while !running.has_ended() {
        checkpoints(&scene, &["verify"]).expect_code(0);
        let list = listed(&scene);
        assert_eq!(
            (&list["health"], &list["notes"]),
            (&"valid".into(), &serde_json::json!([]))
        );
        let now = list["attempts"].as_array().unwrap().len();
        assert!(now >= seen, "{list}");
        (looks, seen) = (looks + 1, now);
    }
    running.wait(LONG).expect_code(0);
    assert!(looks > 0);
    assert_eq!(outcomes(&listed(&scene)).len(), 60);
}

#[test]
fn damage_is_located_and_the_hint_is_safe() {
    let scene = stopped();
    let run = scene.run_id();
    let ended = checkpoints(&scene, &["verify", &run]).expect_code(0);
    expect_in_order(&ended.stdout, &["valid", ": valid", "it is safe to resume"]);
    let path = journal(&scene);
    damage(&path, |bytes| middle(bytes));
    let before = files(&scene.file(".rlm"));
    let ended = checkpoints(&scene, &["verify", &run]).expect_code(1);
    expect_in_order(
        &ended.stdout,
        &[
            "damaged\n",
            "damaged at byte ",
            "older save",
            "quarantine/",
            "cp -a ",
        ],
    );
    let json = checkpoints(&scene, &["verify", &run, "--json"]).expect_code(1);
    let json = events(&json.stdout).remove(0);
    assert!(json["files"][0]["offset"].is_u64(), "{json}");
    let from = json["resumes_from"].to_string();
    let list = checkpoints(&scene, &["list", &run, "--json"]).expect_code(1);
    let list = events(&list.stdout).remove(0);
    assert_eq!(list["health"], "damaged", "{list}");
    assert!(!list["notes"].as_array().unwrap().is_empty(), "{list}");
    let shown = checkpoints(&scene, &["show", &run, "--json"]).expect_code(0);
    let shown = events(&shown.stdout).remove(0);
    assert_eq!(shown["save"].to_string(), from);
    assert!(
        !shown["from"]["skipped"].as_array().unwrap().is_empty(),
        "{shown}"
    );
    assert_eq!(
        files(&scene.file(".rlm")),
        before,
        "the command changes nothing"
    );
    let next = text(&json["next"]);
    let (_, from) = next.split_once("--from ").unwrap();
    let (from, _) = from.split_once('`').unwrap();
    let resume = ["resume", &run, "--from", from];
    scene.rlm(&resume).run(LONG).expect_code(0);
    let ended = checkpoints(&scene, &["verify", &run]).expect_code(0);
    assert!(ended.stdout.contains("1 damaged file set aside"), "{ended}");
}

#[test]
fn torn_tail_is_reported_as_harmless() {
    let scene = stopped();
    let path = journal(&scene);
    damage(&path, |bytes| {
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes.truncate(end - 3);
    });
    let ended = checkpoints(&scene, &["verify"]).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "valid\n",
            "bytes of an incomplete save",
            "nothing is lost",
            "safe to resume",
        ],
    );
}

#[test]
fn c64a_c64c_newer_format_names_both_versions_and_hides_no_run() {
    let scene = stopped();
    let mut bytes = fs_err::read(journal(&scene)).unwrap();
    let bad = scene.file(".rlm/runs/newer");
    fs_err::create_dir(&bad).unwrap();
    bytes[8] = 2;
    let sum = crate::damage::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    fs_err::write(bad.join("progress-00000001-0000000000000000.ckj"), bytes).unwrap();
    let ended = checkpoints(&scene, &["verify"]).expect_code(1);
    expect_in_order(
        &ended.stdout,
        &[
            "valid\n",
            "newer  damaged",
            "version 2",
            "up to 1",
            "use a newer program",
        ],
    );
    let ended = checkpoints(&scene, &["list"]).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["stopped, valid", "newer  damaged, unreadable", "version 2"],
    );
    checkpoints(&scene, &["list", "newer"]).expect_code(1);
    let ended = checkpoints(&scene, &["show", "newer"]).expect_code(1);
    assert!(ended.stderr.contains("version 2"), "{ended}");
}

#[test]
fn s21b_s21c_times_and_ages_do_not_depend_on_the_zone() {
    let scene = stopped();
    let here = listed(&scene);
    for zone in ["Pacific/Kiritimati", "<+14>-14", "<-12>12"] {
        let list = scene
            .rlm(&["checkpoints", "list", "--json"])
            .env("TZ", zone);
        let list = events(&list.run(LONG).expect_code(0).stdout).remove(0);
        for (row, same) in [0, 1, 2].map(|at| (&list["attempts"][at], &here["attempts"][at])) {
            assert_eq!((&row["at"], &row["save"]), (&same["at"], &same["save"]));
            assert!(row["age_s"].as_u64().unwrap() < 600, "{row}");
            assert!(text(&row["at"]).ends_with('Z'), "{row}");
        }
    }
}

#[test]
fn invalid_run_is_refused_and_nothing_is_created() {
    let scene = Scene::new("print turn");
    let huge = "x".repeat(100_000);
    for command in ["list", "show", "verify"] {
        let unknown = checkpoints(&scene, &[command, "unknown"]).expect_code(10);
        assert!(unknown.stderr.contains("no run `unknown`"), "{unknown}");
        for bad in ["../x", "..", "", ".", "a/b", "a\nb", &huge] {
            let ended = checkpoints(&scene, &[command, bad]).expect_code(2);
            assert!(ended.stderr.contains("not a run id"), "{ended}");
            assert!(ended.stderr.len() < 500, "{}", ended.stderr.len());
        }
    }
    for command in ["list", "verify"] {
        checkpoints(&scene, &[command]).expect_code(10);
    }
    assert!(!scene.file(".rlm").exists());
}

#[test]
fn unreadable_run_is_listed_with_reason() {
    let scene = stopped();
    let (run, folder, journal) = (scene.run_id(), folder(&scene), journal(&scene));
    let pipe = |path: PathBuf| {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
    };
    let runs = scene.file(".rlm/runs");
    pipe(runs.join("a-pipe"));
    fs_err::create_dir(runs.join("b-pipe")).unwrap();
    pipe(runs.join("b-pipe/progress-00000001-0000000000000000.ckj"));
    fs_err::create_dir(runs.join("c-pipe")).unwrap();
    let copy = runs.join("c-pipe").join(journal.file_name().unwrap());
    fs_err::copy(&journal, copy).unwrap();
    pipe(runs.join("c-pipe/LOCK"));
    std::os::unix::fs::symlink(folder, runs.join("d-link")).unwrap();
    fs_err::create_dir(runs.join("e-open")).unwrap();
    let everyone = std::fs::Permissions::from_mode(0o777);
    fs_err::set_permissions(runs.join("e-open"), everyone).unwrap();
    fs_err::create_dir(runs.join("f-empty")).unwrap();
    let ended = checkpoints(&scene, &["list"]).expect_code(0);
    let expected = [
        "stopped, valid",
        // `c-pipe` has a copy of the same state, and so the same time of last activity.
        "c-pipe",
        "LOCK",
        "a-pipe  damaged, unreadable",
        "not a directory",
        "b-pipe  damaged, unreadable",
        "not a regular file",
        "d-link  damaged, unreadable",
        "link",
        "e-open  damaged, unreadable",
        "chmod go-w",
        "f-empty  empty, ",
    ];
    expect_in_order(&ended.stdout, &expected);
    let ended = checkpoints(&scene, &["verify"]).expect_code(1);
    let expected = [
        "valid",
        "c-pipe  unreadable",
        "LOCK",
        "a-pipe  unreadable",
        "not a directory",
        "b-pipe  damaged",
        "not a regular file",
        "d-link  unreadable",
        "e-open  unreadable",
        "chmod go-w",
        "f-empty  valid",
        "nothing was saved yet",
    ];
    expect_in_order(&ended.stdout, &expected);
    checkpoints(&scene, &["verify", &run]).expect_code(0);
}

#[test]
fn read_only_store_is_verified_and_foreign_owner_is_named() {
    let scene = stopped();
    let (run, folder) = (scene.run_id(), folder(&scene));
    let mode = |mode| {
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o500);
    checkpoints(&scene, &["verify", &run]).expect_code(0);
    checkpoints(&scene, &["list", &run]).expect_code(0);
    mode(0o700);
    if !rustix::process::geteuid().is_root() {
        mode(0o000);
        let ended = checkpoints(&scene, &["verify", &run]).expect_code(1);
        assert!(ended.stdout.contains("ermission denied"), "{ended}");
        mode(0o700);
        return;
    }
    chown(&folder, Some(4242), None).unwrap();
    for command in ["list", "verify"] {
        let ended = checkpoints(&scene, &[command, &run]).expect_code(1);
        assert!(ended.stdout.contains("belongs to another user"), "{ended}");
    }
    chown(&folder, Some(0), None).unwrap();
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
}

#[test]
fn discarded_attempts_are_listed_as_discarded() {
    let scene = stopped();
    let run = scene.run_id();
    scene
        .rlm(&["resume", "--from", "2", "-n", "2"])
        .run(LONG)
        .expect_code(0);
    let list = listed(&scene);
    let rows = list["attempts"].as_array().unwrap();
    let discarded: Vec<_> = rows
        .iter()
        .map(|row| row["discarded"].as_bool().unwrap())
        .collect();
    assert_eq!(discarded, [false, true, false, false], "{list}");
    let shown = checkpoints(&scene, &["list"]).expect_code(0);
    assert!(
        shown
            .stdout
            .contains("discarded by a resume from an earlier iteration"),
        "{shown}"
    );
    let shown = checkpoints(&scene, &["show", &run, "--at", "2", "--json"]).expect_code(0);
    let save = &events(&shown.stdout)[0]["save"];
    assert_eq!(*save, rows[3]["save"]);
}
