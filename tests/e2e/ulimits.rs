//! Limits of the system cause a clear error, and neither a signal nor a panic.

use std::process::Command;

use rlm_tests::{Ended, Rlm};

use crate::scene::{PROMPT, Scene};
use crate::{LONG, RLM};

/// A user id without any process on this machine.
const NOBODY_ELSE: u32 = 54_321;

fn has(program: &str) -> bool {
    let version = Command::new(program).arg("--version").output();
    version.is_ok_and(|it| it.status.success())
}

/// Prepares `prlimit LIMIT rlm WORDS`.
fn limited<'a>(scene: &'a Scene, limit: &str, words: &[&str]) -> Rlm<'a> {
    let prlimit = scene.sandbox.rlm("prlimit").args([limit, RLM]);
    prlimit.args(words)
}

#[track_caller]
fn expect_sentence(ended: &Ended, what: &str) {
    assert_eq!(ended.code(), Some(1), "{what}: {ended}");
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("rlm: "),
        "{what}: {ended}"
    );
}

/// Expects neither a panic nor a death by signal.
#[track_caller]
fn expect_orderly(ended: &Ended, what: &str) {
    assert!(!ended.stderr.contains("panicked"), "{what}: {ended}");
    assert_eq!(ended.signal(), None, "{what}: {ended}");
    if ended.code() != Some(0) {
        expect_sentence(ended, what);
    }
}

#[test]
fn w8_a_limit_on_the_size_of_files_is_named() {
    if !has("prlimit") {
        return println!("skipped: prlimit is missing");
    }
    let scene = Scene::new("print turn {start}");
    let words = ["run", "--once", "--prompt", PROMPT, "--", "true"];
    let mut seen = false;
    for bytes in [0, 1, 100, 1000, 5000, 20_000, 70_000] {
        let limit = format!("--fsize={bytes}");
        // The output goes to a pipe, which this limit does not affect.
        let piped = "prlimit \"$@\" 2>&1 >/dev/null | cat >&2";
        let shell = scene.sandbox.rlm("bash");
        let shell = shell.args(["-o", "pipefail", "-c", piped, "bash", &limit, RLM]);
        let ended = shell.args(words).run(LONG);
        expect_orderly(&ended, &limit);
        seen |= ended.stderr.contains("the limit on the size of a file is")
            && ended.stderr.contains("ulimit -f");
    }
    assert!(seen, "some of these limits is too low for a run");
    scene.expect_nothing_alive();
}

#[test]
fn w8_agents_get_the_default_for_the_signal_that_rlm_blocks() {
    if !has("prlimit") {
        return println!("skipped: prlimit is missing");
    }
    let scene = Scene::new("");
    let agent = "head -c 20000000 /dev/zero >big; echo \"signal $(($? - 128))\"; cat /proc/self/status | grep -E 'Sig(Blk|Ign)'";
    let words = ["run", "--once", "--prompt", PROMPT, "--", "sh", "-c", agent];
    let ended = limited(&scene, "--fsize=4000000", &words)
        .run(LONG)
        .expect_code(0);
    assert!(ended.stdout.contains("signal 25"), "{ended}");
    for mask in ["SigBlk", "SigIgn"] {
        let line = ended
            .stdout
            .lines()
            .find(|line| line.contains(mask))
            .unwrap();
        let bits = line.rsplit('\t').next().unwrap().trim();
        let bits = u64::from_str_radix(bits, 16).unwrap();
        assert_eq!(bits >> 24 & 1, 0, "{line}");
    }
}

#[test]
fn w9_a_limit_on_open_files_is_named() {
    if !has("prlimit") {
        return println!("skipped: prlimit is missing");
    }
    let scene = Scene::new("print turn {start}");
    scene
        .run(&["--once", "--run-id", "over"])
        .run(LONG)
        .expect_code(0);
    let run = [
        "run", "--once", "--prompt", PROMPT, "--until", "true", "--", "true",
    ];
    for words in [
        &run[..],
        &["status"],
        &["logs"],
        &["checkpoints", "list"],
        &["ps"],
        &["report", "-o", "-"],
    ] {
        let ended = limited(&scene, "--nofile=8", words).run(LONG);
        expect_sentence(&ended, words[0]);
        assert!(
            ended.stderr.contains("the limit on open files is 8"),
            "{ended}"
        );
        assert!(ended.stderr.contains("ulimit -n"), "{ended}");
        for files in [16, 24, 32, 40, 48, 56] {
            let limit = format!("--nofile={files}");
            let ended = limited(&scene, &limit, words).run(LONG);
            let printed = format!("{words:?} {limit}");
            match words[0] {
                "ps" if ended.code() == Some(0) => {}
                _ => expect_orderly(&ended, &printed),
            }
        }
    }
    scene.expect_nothing_alive();
}

#[test]
fn w9_a_limit_on_memory_is_named() {
    if !has("prlimit") {
        return println!("skipped: prlimit is missing");
    }
    let scene = Scene::new("print turn {start}");
    let words = [
        "run", "--once", "--prompt", PROMPT, "--until", "true", "--", "true",
    ];
    let ended = limited(&scene, "--as=100000000", &words).run(LONG);
    expect_sentence(&ended, "100 MB");
    assert!(ended.stderr.contains("the limit on memory is"), "{ended}");
    assert!(ended.stderr.contains("ulimit -v"), "{ended}");
    for memory in [210_000_000_u64, 500_000_000, 1_000_000_000, 1_200_000_000] {
        let limit = format!("--as={memory}");
        expect_orderly(&limited(&scene, &limit, &words).run(LONG), &limit);
    }
}

#[test]
fn w9_a_limit_on_processes_is_named() {
    if !has("prlimit") || !has("setpriv") || !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can act as another user, with setpriv and prlimit");
    }
    let scene = Scene::new("");
    let user = NOBODY_ELSE.to_string();
    let owner = format!("{user}:{user}");
    let chown = Command::new("chown")
        .args(["-R", &owner])
        .arg(scene.sandbox.path())
        .status();
    assert!(chown.unwrap().success());
    let mut refused = false;
    for processes in [1, 5, 9, 15, 20, 24, 25, 26, 28, 32] {
        let limit = format!("--nproc={processes}");
        let setpriv = [
            "--reuid",
            &user,
            "--regid",
            &user,
            "--clear-groups",
            "prlimit",
            &limit,
            RLM,
        ];
        let run = [
            "run", "--once", "--prompt", PROMPT, "--until", "true", "--", "true",
        ];
        let ended = scene
            .sandbox
            .rlm("setpriv")
            .args(setpriv)
            .args(run)
            .run(LONG);
        if ended.stderr.contains("Permission denied") && ended.code() == Some(127) {
            return println!("skipped: another user can't run this program at its path");
        }
        assert!(!ended.stderr.contains("panicked"), "{limit}: {ended}");
        assert_eq!(ended.signal(), None, "{limit}: {ended}");
        refused |= ended
            .stderr
            .contains("the limit on processes and threads of this user is")
            && ended.stderr.contains("ulimit -u");
    }
    assert!(refused);
}
