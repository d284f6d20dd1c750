//! No space to write: a full disk, and a read-only project.

use std::process::Command;

use rlm_tests::Ended;

use crate::scene::{PROMPT, Scene, expect_in_order};
use crate::{LONG, RLM};

/// Whether a shell can have its own mounts, which end with it.
pub(crate) fn has_mounts() -> bool {
    let mount = ["-m", "mount", "-t", "tmpfs", "none", "/mnt"];
    let status = Command::new("unshare").args(mount).status();
    status.is_ok_and(|status| status.success())
}

pub(crate) fn with_mounts(scene: &Scene, script: &str) -> Ended {
    let shell = scene
        .sandbox
        .rlm("unshare")
        .args(["-m", "sh", "-ec", script, "sh", RLM]);
    shell.args(scene.agent.argv()).run(LONG)
}

#[test]
fn x117g_read_only_project_is_refused_in_one_line() {
    if !has_mounts() {
        return println!("skipped: no mount namespaces here");
    }
    let scene = Scene::new("print never");
    let script = r#"mount --bind . . && mount -o remount,ro,bind . && cd "$PWD"
        ! touch x 2>/dev/null
        rlm=$1; shift
        "$rlm" run -p x --once -- "$@" || echo "code $?""#;
    let ended = with_mounts(&scene, script);
    assert_eq!(ended.stdout, "code 1\n", "{ended}");
    assert!(
        ended.stderr.contains(".rlm`") && ended.stderr.lines().count() == 1,
        "{ended}"
    );
    assert_eq!(scene.start_count(), 0);
}

#[test]
fn c62a_c62b_full_disk_ends_the_run_with_a_clear_line_and_keeps_saves() {
    if !has_mounts() {
        return println!("skipped: no mount namespaces here");
    }
    let scene =
        Scene::new("print turn {start}\n@2 print ready\n@2 await go\n@3.. print turn {start}");
    // The state is on its own small disk, which is full after the second turn.
    let script = format!(
        r#"mkdir .rlm && mount -t tmpfs -o size=96k none .rlm
        rlm=$1; shift
        "$rlm" run --sleep 0 -p '{PROMPT}' -n 5000 -- "$@" >said 2>errors & run=$!
        until grep -q ready said; do sleep 0.05; done
        head -c 1m /dev/zero >.rlm/ballast 2>/dev/null || true
        touch go
        wait $run && code=0 || code=$?
        echo "code $code"
        grep -c . errors; cat errors
        rm .rlm/ballast
        "$rlm" status
        echo resumed; "$rlm" resume $(ls .rlm/runs) -n 3 | grep resuming"#
    );
    let ended = with_mounts(&scene, &script);
    expect_in_order(
        &ended.stdout,
        &[
            "code 1",
            "1\n",
            "rlm: run `",
            "the disk is full",
            "complete",
            "resumed",
            "resuming run",
        ],
    );
    scene.expect_nothing_alive();
}

#[test]
fn x109e_unsaved_steer_is_not_reported_as_recorded() {
    if !has_mounts() {
        return println!("skipped: no mount namespaces here");
    }
    let scene = Scene::new("print ready\nhang");
    let script = format!(
        r#"mkdir .rlm && mount -t tmpfs -o size=96k none .rlm
        rlm=$1; shift
        "$rlm" run -p '{PROMPT}' --once -- "$@" >said 2>errors & run=$!
        until grep -q ready said; do sleep 0.05; done
        "$rlm" steer 'a short one' && code=0 || code=$?; echo "short $code"
        head -c 1m /dev/zero >.rlm/ballast 2>/dev/null || true
        head -c 150000 /dev/urandom | base64 | "$rlm" steer - && code=0 || code=$?; echo "long $code"
        wait $run && code=0 || code=$?; echo "run $code"; cat errors
        rm .rlm/ballast; "$rlm" status --json"#
    );
    let ended = with_mounts(&scene, &script);
    expect_in_order(
        &ended.stdout,
        &[
            "steer 1: recorded",
            "short 0",
            "long 1",
            "run 1",
            "\"steers_waiting\":1",
        ],
    );
    assert_eq!(ended.stdout.matches("recorded").count(), 1, "{ended}");
    assert!(
        ended
            .stderr
            .contains("ended before the request took effect"),
        "{ended}"
    );
    scene.expect_nothing_alive();
}

/// Runs two phases with their state on a small disk. Then frees space and resumes the run.
fn two_phases(plan: &str, build: &str, run: &str) -> Ended {
    let scene = Scene::new("");
    let phase = |name, does| {
        let command = format!("command = ['sh', '-c', 'echo {name} >>log; {does}; true']");
        format!("[[phase]]\nname = '{name}'\nprompt = 'x'\nmax-iterations = 1\n{command}\n")
    };
    let config = ["sleep = 0\n", &phase("plan", plan), &phase("build", build)];
    fs_err::write(scene.file("rlm.toml"), config.concat()).unwrap();
    let script = format!(
        r#"mkdir .rlm && mount -t tmpfs -o size=600k none .rlm
        rlm=$1
        {run}
        echo "code $code"; cat errors; cat events
        id=$(ls .rlm/runs); "$rlm" checkpoints verify $id && echo sound
        rm -f .rlm/ballast
        "$rlm" resume $id >/dev/null 2>&1 && code=0 || code=$?
        echo "resumed $code"; cat log; "$rlm" checkpoints list $id; "$rlm" status"#
    );
    let ended = with_mounts(&scene, &script);
    scene.expect_nothing_alive();
    ended
}

const FILLS: &str = "cp /dev/zero .rlm/ballast 2>/dev/null";
const NO_CHECKPOINT: &str = "is saved, but has no checkpoint file";

#[test]
fn c62e_run_finishes_without_room_for_its_last_checkpoint() {
    if !has_mounts() {
        return println!("skipped: no mount namespaces here");
    }
    let run = r#""$rlm" run --json >events 2>errors && code=0 || code=$?"#;
    let ended = two_phases("true", FILLS, run);
    expect_in_order(
        &ended.stdout,
        &[
            "code 0\n",
            NO_CHECKPOINT,
            "run_ended",
            "valid\n",
            "plan\nbuild\n",
            "phase plan finished",
        ],
    );
    assert!(!ended.stdout.contains("phase build finished"), "{ended}");
}

#[test]
fn c62e_phase_finishes_without_room_for_its_checkpoint() {
    if !has_mounts() {
        return println!("skipped: no mount namespaces here");
    }
    let halts = "test -e halfway || { touch halfway; sleep 600; }";
    let run = r#""$rlm" run --json >events 2>errors & run=$!
        until test -e halfway || ! kill -0 $run; do sleep 0.05; done
        kill -9 $run || true; wait $run && code=0 || code=$?"#;
    let ended = two_phases(FILLS, halts, run);
    expect_in_order(
        &ended.stdout,
        &[
            "code 137\n",
            NO_CHECKPOINT,
            "valid\n",
            "resumed 0\nplan\nbuild\nbuild\n",
            "phase build finished",
        ],
    );
    assert!(!ended.stdout.contains("phase plan finished"), "{ended}");
}
