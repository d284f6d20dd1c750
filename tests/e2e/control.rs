//! Viewing, interrupting, pausing and steering a run from another terminal.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rlm_tests::agent::MessageState;
use rlm_tests::{Ended, Rlm, Running, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{PROMPT, Scene, crash, events, expect_in_order, json, says, stop, until_ready};

/// Waits until the only run has this state.
#[track_caller]
fn wait_until_it_is(scene: &Scene, state: &str) -> Value {
    wait_for(format_args!("the run to be {state}"), LONG, || {
        Some(scene.status()).filter(|status| status["state"] == state)
    })
}

/// The script of an agent in a conversation that works for ten minutes.
const TALKS: &str = "say ready\nhang\nturn\nrun true\nsay on\nturn";

fn talks(scene: &Scene) -> Running {
    let running = scene.claude(&["--once", "--no-input"]).spawn();
    scene.wait_until_recorded("ready");
    running
}

pub(crate) fn socket(scene: &Scene) -> PathBuf {
    let runs = scene.file(".rlm/runs").join(scene.run_id());
    runs.join("control.sock")
}

/// Sends a request without `rlm`, and returns the lines of the response.
fn ask(socket: &Path, line: &str) -> Vec<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // The run can close the connection after an early refusal.
    let _refused = stream.write_all(line.as_bytes());
    let mut text = String::new();
    let _cut = stream.read_to_string(&mut text);
    text.lines().map(json).collect()
}

pub(crate) fn quick(rlm: Rlm<'_>) -> Ended {
    rlm.run(LONG)
}

#[test]
fn j49a_j49b_interrupt_reaches_only_the_named_run() {
    let (one, other) = (Scene::new(TALKS), Scene::new(TALKS));
    let (first, second) = (talks(&one), talks(&other));
    let (name, place) = (one.run_id(), one.sandbox.repo().display().to_string());
    let nothing = quick(other.rlm(&["interrupt", &name])).expect_code(10);
    assert!(nothing.stderr.contains("no live run: no run"), "{nothing}");
    let told = quick(other.rlm(&["-C", &place, "interrupt", &name])).expect_code(0);
    expect_in_order(
        &told.stdout,
        &["delivered", "interrupted", "rlm -C", "resume"],
    );
    assert_eq!(one.controls(), ["initialize", "interrupt"]);
    assert_eq!(other.controls(), ["initialize"]);
    assert_eq!(one.status()["state"], "paused");
    assert_eq!(other.status()["state"], "running");
    // The session also waits for a message from another terminal.
    quick(one.rlm(&["steer", "go on with four"])).expect_code(0);
    first.wait(LONG).expect_code(0);
    let messages = one.agent.messages();
    assert_eq!(messages.len(), 2);
    assert!(messages[1].text.contains("go on with four"));
    assert_eq!(messages[0].session, messages[1].session);
    assert_eq!(one.start_count(), 1);
    drop(second);
}

#[test]
fn j49b_interrupt_of_unknown_run_fails() {
    let scene = Scene::new("print once");
    for arguments in [
        &["interrupt"][..],
        &["stop", "no-such-run"],
        &["pause", "../x"],
    ] {
        let ended = quick(scene.rlm(arguments));
        assert!([Some(2), Some(10)].contains(&ended.code()), "{ended}");
        assert!(ended.stderr.contains("no live run"), "{ended}");
    }
    quick(scene.run(&["--once"])).expect_code(0);
    let over = quick(scene.rlm(&["stop", &scene.run_id()])).expect_code(10);
    assert!(over.stderr.contains("is not live"), "{over}");
    quick(scene.rlm(&["ps"])).expect_code(0);
}

#[test]
fn interrupt_of_uninterruptible_agent_gives_a_hint() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let refused = quick(scene.rlm(&["interrupt"])).expect_code(1);
    assert!(refused.stderr.contains("stop the run"), "{refused}");
    assert_eq!(scene.status()["state"], "running");
    drop(running);
}

#[test]
fn c75a_c75b_c75c_pause_from_another_shell_acts_at_boundary_with_reason() {
    let scene = Scene::new("print turn {start}\n@1 await go");
    let mut running = scene.run(&["-n", "2"]).spawn();
    says(&mut running, "turn 1");
    let pause = [
        "pause",
        "--reason",
        "look at the migration first",
        "--wait",
        "0",
        "--json",
    ];
    let told = events(&quick(scene.rlm(&pause)).expect_code(0).stdout);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["response"], "recorded");
    let status = scene.status();
    assert_eq!(
        (&status["state"], &status["pause_reason"]),
        (&"running".into(), &"look at the migration first".into())
    );
    // The last reason applies.
    let because = |reason: &str, wait: &str| {
        let pause = ["pause", "--reason", reason, "--wait", wait];
        let told = quick(scene.rlm(&pause)).expect_code(0).stdout;
        assert_eq!(scene.status()["pause_reason"], reason, "{told}");
        told
    };
    because("then the tests", "0");
    says(&mut running, "pause requested: then the tests");
    // A second request is valid, and waits for the same pause.
    let again = scene.rlm(&["pause"]).spawn();
    wait_for("the response to the second request", LONG, || {
        again.stdout().contains("recorded").then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    let told = again.wait(LONG).expect_code(0).stdout;
    expect_in_order(&told, &["recorded", "paused; to continue: rlm resume"]);
    says(&mut running, "paused: then the tests; /continue resumes");
    let status = quick(scene.rlm(&["status"])).stdout;
    expect_in_order(&status, &["paused", "because then the tests"]);
    assert_eq!(scene.status()["iterations_complete"], 1);
    // A request also works during the pause.
    let told = because("look once more", "10");
    assert!(told.contains("paused; to continue: rlm resume"), "{told}");
    let listed = quick(scene.rlm(&["ps"])).expect_code(0).stdout;
    expect_in_order(
        &listed,
        &["paused", &running.pid().to_string(), "reason: look"],
    );

    let refused = quick(scene.rlm(&["resume", "-n", "9"])).expect_code(2);
    assert!(refused.stderr.contains("continues unchanged"), "{refused}");
    let woken = quick(scene.rlm(&["resume"])).expect_code(0).stdout;
    assert!(woken.contains("continues"), "{woken}");
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.status()["pause_reason"], Value::Null);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn c75e_resume_cancels_a_requested_pause() {
    let scene = Scene::new("print turn {start}\n@1 await go");
    let mut running = scene.run(&["-n", "2"]).spawn();
    says(&mut running, "turn 1");
    quick(scene.rlm(&["pause", "--reason", "x", "--wait", "0"])).expect_code(0);
    let back = quick(scene.rlm(&["resume"])).expect_code(0).stdout;
    assert!(back.contains("continues"), "{back}");
    assert_eq!(scene.status()["pause_reason"], Value::Null);
    let at_work = quick(scene.rlm(&["resume"])).expect_code(9);
    assert!(at_work.stderr.contains("is live"), "{at_work}");
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
}

#[test]
fn c56c_c75d_a_signal_while_it_is_paused_acts_at_once() {
    let scene = Scene::new("print turn {start}");
    let running = scene
        .run_bare(&["-p", PROMPT, "-n", "2", "--sleep", "600"])
        .spawn();
    scene.wait_until_started(1);
    wait_until_it_is(&scene, "running");
    quick(scene.rlm(&["pause", "--reason", "x"])).expect_code(0);
    assert_eq!(scene.status()["state"], "paused");
    stop(running, Signal::INT);
    scene.expect_nothing_alive();
    let status = scene.status();
    assert_eq!(
        (&status["state"], &status["pause_reason"]),
        (&"stopped".into(), &Value::Null)
    );
}

#[test]
fn c76a_lock_identifies_the_process_of_a_run() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let holder = scene.file(".rlm/holder.json");
    let mut written: Value = serde_json::from_slice(&fs_err::read(&holder).unwrap()).unwrap();
    // With the pid of a dead or another process in the file, the run is live anyway, and responds.
    written["process"]["pid"] = 999_999.into();
    fs_err::write(&holder, written.to_string()).unwrap();
    let listed = events(&quick(scene.rlm(&["ps", "--json"])).stdout);
    assert_eq!((listed.len(), &listed[0]["responds"]), (1, &true.into()));
    quick(scene.rlm(&["stop"])).expect_code(0);
    running.wait(LONG).expect_code(7);
    // With the pid of a live process in the file, the run is dead anyway.
    written["process"]["pid"] = std::process::id().into();
    fs_err::write(&holder, written.to_string()).unwrap();
    quick(scene.rlm(&["stop", &scene.run_id()])).expect_code(10);
    quick(scene.rlm(&["stop", "--force"])).expect_code(10);
    assert_eq!(quick(scene.rlm(&["ps", "--json"])).stdout, "");
}

#[test]
fn x109a_steer_from_another_shell_is_recorded_delivered_and_seen() {
    let scene = Scene::new("say ready\ntool Bash make\nexpect-steer\ntool-end made\nsay so\nturn");
    let running = talks(&scene);
    let run = scene.run_id();
    let told = quick(scene.rlm(&["steer", &run, "use", "tabs, not spaces"])).expect_code(0);
    expect_in_order(
        &told.stdout,
        &["steer 1: recorded", "delivered", "seen by the agent"],
    );
    let message = scene.wait_until_received("use tabs, not spaces");
    assert_eq!(message.taken, Some(MessageState::Folded(1)));
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn x109d_steer_now_from_another_shell_interrupts_and_keeps_the_session() {
    let scene = Scene::new("say ready\nhang\nturn\nsay turned\nturn");
    let running = talks(&scene);
    let told = scene
        .rlm(&["steer", "--now", "--json", "-"])
        .input("go the other way\n");
    let told = events(&quick(told).expect_code(0).stdout);
    let answers: Vec<&str> = told
        .iter()
        .filter_map(|it| it["response"].as_str())
        .collect();
    assert_eq!(answers, ["recorded", "delivered", "applied"]);
    assert_eq!(told[0]["steer"], 1);
    running.wait(LONG).expect_code(0);
    let messages = scene.agent.messages();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[1].text.contains("go the other way"));
    assert_eq!(messages[0].session, messages[1].session);
    assert!(scene.controls().contains(&"interrupt".into()));
}

#[test]
fn x109c_recorded_steer_survives_a_crash_and_is_delivered_once() {
    let scene = Scene::new("print ready\n@1 hang\nprint done");
    let running = scene.ready(&["-n", "2"]);
    let told = quick(scene.rlm(&["steer", "use tabs, not spaces"])).expect_code(0);
    expect_in_order(&told.stdout, &["steer 1: recorded", "sent after this turn"]);
    crash(running);
    scene.wait_until_nothing_is_alive();
    let dead = quick(scene.rlm(&["steer", "too late"])).expect_code(10);
    assert!(dead.stderr.contains("no live run"), "{dead}");
    quick(scene.rlm(&["resume"])).expect_code(0);
    let prompts = scene.prompts();
    let told = prompts.iter().filter(|it| it.contains("use tabs"));
    assert_eq!(told.count(), 1, "{prompts:?}");
    assert!(!prompts.iter().any(|it| it.contains("too late")));
}

#[test]
fn steer_reaches_the_named_run() {
    let scene = Scene::new("print ready\nhang");
    let _running = scene.ready(&["--once"]);
    let run = scene.run_id();
    for (arguments, words) in [
        (&["steer", "use", "tabs"][..], "quote the text"),
        (&["steer", &run], "the message is missing"),
        (&["steer", " "], "the message is empty"),
    ] {
        let refused = quick(scene.rlm(arguments));
        assert_ne!(refused.code(), Some(0));
        assert!(refused.stderr.contains(words), "{refused}");
    }
    let most = "x".repeat(600_000);
    let refused = quick(scene.rlm(&["steer", "-"]).input(most)).expect_code(1);
    assert!(
        refused.stderr.contains("too many messages wait"),
        "{refused}"
    );
    let over = "x".repeat(1_100_000);
    let refused = quick(scene.rlm(&["steer", "-"]).input(over)).expect_code(2);
    assert!(refused.stderr.contains("longer than"), "{refused}");
}

#[test]
fn x118f_socket_is_private_and_removed_with_the_run() {
    let scene = Scene::new("print ready\n@1 hang");
    let running = scene.ready(&["-n", "1"]);
    let path = socket(&scene);
    let meta = fs_err::symlink_metadata(&path).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let folder = fs_err::metadata(path.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    // After a crash the socket remains without a listener, and the next process creates it again.
    crash(running);
    scene.wait_until_nothing_is_alive();
    assert!(path.exists());
    quick(scene.rlm(&["interrupt", &scene.run_id()])).expect_code(10);
    quick(scene.rlm(&["resume"])).expect_code(0);
    assert!(!path.exists(), "the socket is removed with the run");
}

#[test]
fn socket_works_below_a_long_path_and_leaves_no_file() {
    let scene = Scene::new("print ready\nhang");
    let deep = scene.file(&"a-long-name-of-a-folder/".repeat(6));
    fs_err::create_dir_all(&deep).unwrap();
    scene
        .sandbox
        .git(&["init", "-q", &deep.display().to_string()]);
    let place = deep.display().to_string();
    let run = scene.run(&["-C", &place, "--once"]);
    let running = until_ready(run);
    quick(scene.rlm(&["-C", &place, "ps"])).expect_code(0);
    quick(scene.rlm(&["-C", &place, "stop"])).expect_code(0);
    running.wait(LONG).expect_code(7);
    let none = quick(scene.rlm(&["-C", &place, "stop"]));
    assert!(
        none.stderr.contains(&format!("`rlm -C {place} status`")),
        "{none}"
    );
    let left: Vec<_> = fs_err::read_dir(scene.sandbox.path().join("run"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn x128b_next_save_recreates_the_control_socket() {
    let scene =
        Scene::new("print turn {start}\n@1 await go-1\n@2 await go-2\n@3 await go-3\n@4 hang");
    let mut running = scene.run(&["-n", "9"]).spawn();
    for (turn, deed) in [(1, "rm -rf .rlm"), (2, "rm .rlm/runs/*/control.sock")] {
        says(&mut running, &format!("turn {turn}"));
        let run = scene.run_id();
        let path = socket(&scene);
        quick(scene.sandbox.rlm("/bin/sh").args(["-c", deed])).expect_code(0);
        assert!(!path.exists());
        fs_err::write(scene.file(&format!("go-{turn}")), "").unwrap();
        says(&mut running, &format!("turn {}", turn + 1));
        assert!(path.exists(), "after {deed}");
        quick(scene.rlm(&["ps"])).expect_code(0);
        assert_eq!(scene.run_id(), run);
    }
    // A request waits while the socket is missing.
    fs_err::remove_file(socket(&scene)).unwrap();
    let stopping = scene.rlm(&["stop", "--wait", "20s"]).spawn();
    fs_err::write(scene.file("go-3"), "").unwrap();
    stopping.wait(LONG).expect_code(0);
    running.wait(LONG).expect_code(7);
    scene.expect_nothing_alive();
}

/// The case of an agent that deletes the directory and then works for an hour without a save.
#[test]
fn x128b_run_without_saves_recreates_its_control_socket() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let run = scene.run_id();
    quick(scene.sandbox.rlm("/bin/sh").args(["-c", "rm -rf .rlm"])).expect_code(0);
    let pid = running.pid().to_string();
    wait_for("the run in the list", LONG, || {
        let listed = quick(scene.rlm(&["ps"])).stdout;
        [&run, &pid]
            .iter()
            .all(|it| listed.contains(*it))
            .then_some(())
    });
    quick(scene.rlm(&["stop"])).expect_code(0);
    let ended = running.wait(LONG).expect_code(7);
    assert!(ended.stdout.contains("was removed"), "{ended}");
    scene.expect_nothing_alive();
}

#[test]
fn hostile_requests_are_answered_and_harmless() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let path = socket(&scene);
    let answer = |line: &str| ask(&path, line)[0]["response"].clone();
    assert_eq!(answer("{\"v\":1,\"request\":\"forward\"}\n"), "unsupported");
    assert_eq!(
        answer("{\"v\":1,\"request\":\"set\",\"key\":\"n\"}\n"),
        "malformed"
    );
    assert_eq!(answer("GET / HTTP/1.1\n"), "malformed");
    assert_eq!(answer(&"[".repeat(3 << 20)), "malformed");
    // Forty silent connections: the run drops the oldest, and still responds.
    let silent: Vec<_> = (0..40)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    let status = "{\"v\":1,\"request\":\"status\"}\n";
    let told = ask(&path, status);
    assert_eq!(told[0]["response"], "status");
    drop(silent);
    let told = &told[0];
    assert_eq!(told["run"], scene.run_id());
    assert_eq!(told["process"]["pid"], running.pid());
    assert_eq!(
        (&told["state"], &told["iteration"]),
        (&"running".into(), &1.into())
    );
    let environment = told.to_string();
    assert!(!environment.contains(PROMPT), "{environment}");
    quick(scene.rlm(&["stop"])).expect_code(0);
    running.wait(LONG).expect_code(7);
}
