//! The reports of a stopping run: what it waits for, and the remaining seconds.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rlm_tests::{Ended, Running, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::LONG;
use crate::scene::{STUBBORN_TREE, Scene, events, says, stop, until_ready};

/// A stop budget that ends during a test.
const BOUND: (&str, &str) = ("RLM_SHUTDOWN_TIMEOUT", "4s");
/// The budget of a stop that a second press ends.
const LATE: (&str, &str) = ("RLM_SHUTDOWN_TIMEOUT", "600s");

/// Returns a shell command that reports its start, and then ignores every request to end.
fn hangs(scene: &Scene) -> String {
    let file = scene.file("hangs");
    format!(
        "trap '' INT TERM HUP; touch {}; sleep 777; sleep 777",
        file.display()
    )
}

/// Returns the pid of the agent that was started last.
fn agent_pid(scene: &Scene) -> i32 {
    scene.agent.starts().last().unwrap().pid
}

/// Returns the remaining seconds in the lines with this text.
fn seconds_left(text: &str, of: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| line.contains(of));
    let left = lines.filter_map(|line| line.strip_suffix("s left")?.rsplit(' ').next());
    left.map(|seconds| seconds.parse().unwrap()).collect()
}

/// Expects that the first line of the stop names `what`, and that the countdown reached less than 4 s.
#[track_caller]
fn expect_countdown(ended: &Ended, what: &str) {
    let text = &ended.stdout;
    let first = format!("stopping: state saved; waiting for {what}, up to 4s");
    assert!(text.lines().any(|line| line == first), "{ended}");
    let left = seconds_left(text, &format!("stopping: waiting for {what}, "));
    assert!(!left.is_empty() && left[0] < 4, "{left:?} in {ended}");
    assert!(left.is_sorted_by(|a, b| a > b), "{left:?} in {ended}");
}

#[test]
fn j41a_j41c_a_stop_names_the_agent_and_its_pid() {
    let scene = Scene::new(STUBBORN_TREE);
    let running = until_ready(scene.run(&["--once"]).env(BOUND.0, BOUND.1));
    let agent = format!("the agent (pid {})", agent_pid(&scene));
    let ended = stop(running, Signal::TERM);
    expect_countdown(&ended, &agent);
    assert!(!ended.stdout.contains('\r'), "{ended}");
}

#[test]
fn j41a_stop_names_the_required_check() {
    let scene = Scene::new("print turn {start}");
    let gates = ["--once", "--gate", "true", "--gate", &hangs(&scene)];
    let running = scene.run(&gates).env(BOUND.0, BOUND.1).spawn();
    scene.wait_for_file("hangs");
    expect_countdown(&stop(running, Signal::TERM), "required check 2");
}

#[test]
fn j41a_a_stop_names_the_check() {
    let scene = Scene::new("print turn {start}");
    let check = ["--until", &hangs(&scene)];
    let running = scene.run(&check).env(BOUND.0, BOUND.1).spawn();
    scene.wait_for_file("hangs");
    expect_countdown(&stop(running, Signal::TERM), "the check");
}

#[test]
fn j41a_a_stop_names_the_commit() {
    let scene = Scene::new("touch work\nprint turn {start}");
    for (key, value) in [("user.name", "A. Tester"), ("user.email", "tester@invalid")] {
        scene.sandbox.git(&["config", key, value]);
    }
    let hook = scene.file(".git/hooks/pre-commit");
    fs_err::create_dir_all(hook.parent().unwrap()).unwrap();
    fs_err::write(&hook, format!("#!/bin/sh\n{}\n", hangs(&scene))).unwrap();
    fs_err::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let commit = ["-n", "3", "--commit"];
    let running = scene.run(&commit).env(BOUND.0, BOUND.1).spawn();
    scene.wait_for_file("hangs");
    expect_countdown(&stop(running, Signal::TERM), "the commit");
}

/// An `strace` that ends when this value is dropped. It holds the threads that it delays, even at the end of their process.
pub(crate) struct Tracer(std::process::Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _over = self.0.kill();
        let _over = self.0.wait();
    }
}

/// Delays each sync of the process by this number of seconds; `None` if that is impossible here.
fn slow_syncs(running: &Running, seconds: u32) -> Option<Tracer> {
    slow_calls(running, "fsync,fdatasync", &[], seconds)
}

/// Delays the system calls of the process that strace's `filter` selects by this number of seconds; `None` if that is impossible here.
pub(crate) fn slow_calls(
    running: &Running,
    calls: &str,
    filter: &[&str],
    seconds: u32,
) -> Option<Tracer> {
    let pid = running.pid().to_string();
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:delay_enter={seconds}000000");
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-e", &trace, "-e", &inject])
        .args(filter)
        .args(["-o", "/dev/null", "-p", &pid])
        .spawn()
        .ok()?;
    let mut strace = Tracer(strace);
    let status = format!("/proc/{pid}/status");
    wait_for("strace to trace or to fail", LONG, || {
        let is_over = strace.0.try_wait().unwrap().is_some();
        let status = fs_err::read_to_string(&status).unwrap();
        let tracer = status.lines().find_map(|it| it.strip_prefix("TracerPid:"));
        let is_traced = tracer.is_some_and(|it| it.trim() != "0");
        (is_over || is_traced).then_some(is_traced)
    })
    .then_some(strace)
}

#[test]
fn j41a_a_stop_names_the_save() {
    let scene = Scene::new("ignore INT\nprint ready\nhang");
    let mut running = until_ready(scene.run(&["--once"]).env(LATE.0, LATE.1));
    let Some(strace) = slow_syncs(&running, 3) else {
        return println!("skipped: strace is missing or may not trace here");
    };
    running.signal(Signal::TERM);
    says(&mut running, "stopping: waiting for the save, ");
    drop(strace);
    let saved = "stopping: state saved";
    says(&mut running, saved);
    let text = running.stdout();
    assert!(
        text.find("waiting for the save") < text.find(saved),
        "{text}"
    );
    running.signal(Signal::KILL);
    running.wait(LONG).expect_signal(Signal::KILL);
}

#[test]
fn j41a_a_stop_during_a_save_names_it_before_it_ends() {
    let scene = Scene::new("ignore INT\nprint ready\nhang");
    let mut running = until_ready(scene.run(&["--once"]).env(LATE.0, LATE.1));
    let Some(strace) = slow_syncs(&running, 600) else {
        return println!("skipped: strace is missing or may not trace here");
    };
    // The run responds after the save, which hangs here, so no response arrives.
    let paused = scene.rlm(&["pause", "--wait", "1s"]).run(LONG);
    assert_ne!(paused.code(), Some(0), "{paused}");
    running.signal(Signal::TERM);
    says(&mut running, "stopping: waiting for the save, ");
    drop(strace);
    running.signal(Signal::KILL);
    running.wait(LONG).expect_signal(Signal::KILL);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn j41a_ps_shows_what_a_stop_waits_for() {
    let scene = Scene::new(STUBBORN_TREE);
    let mut running = until_ready(scene.run(&["--once"]).env(LATE.0, LATE.1));
    let pid = agent_pid(&scene);
    running.signal(Signal::TERM);
    says(&mut running, "stopping: state saved");
    let shown = scene.rlm(&["ps", "--json"]).run(LONG).expect_code(0);
    let shown = &events(&shown.stdout)[0]["stop_awaits"];
    let awaited = json!({"what": "agent", "pid": pid});
    assert_eq!(shown["waits_for"], awaited, "{shown}");
    assert!(shown["left_s"].as_u64().unwrap() <= 600, "{shown}");
    let words = scene.rlm(&["ps"]).run(LONG).expect_code(0);
    let words = words.stdout;
    let named = format!("stopping: waiting for the agent (pid {pid})");
    assert!(words.contains(&named), "{words}");
    running.signal(Signal::INT);
    running.wait(LONG).expect_signal(Signal::INT);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn j41b_a_terminal_counts_down_in_one_row() {
    let scene = Scene::new(STUBBORN_TREE);
    let run = scene.run(&["--once"]).env("RLM_SHUTDOWN_TIMEOUT", "6s");
    let (running, terminal) = run.size(24, 160).spawn_on_terminal();
    terminal.sees("ready", LONG);
    running.signal(Signal::TERM);
    let row = format!(
        "stopping: waiting for the agent (pid {}), ",
        agent_pid(&scene)
    );
    let seen = |screen: &str| {
        let rows = screen.lines().filter(|line| line.contains(&row));
        let rows: Vec<_> = rows.map(str::to_owned).collect();
        assert!(rows.len() <= 1, "{screen}");
        let left = rows.first()?.split(&row).nth(1)?.split("s left").next()?;
        left.parse::<u64>().ok()
    };
    let first = wait_for("the countdown", LONG, || seen(&terminal.screen()));
    assert!(first < 6, "{first}");
    let next = |below: u64| {
        wait_for("a lower countdown", LONG, || {
            let left = seen(&terminal.screen())?;
            assert!(left <= below, "{left} after {below}");
            (left < below).then_some(left)
        })
    };
    next(next(first));
    running.wait(LONG).expect_signal(Signal::TERM);
}

#[test]
fn j41d_hanging_process_is_killed_at_deadline() {
    let scene = Scene::new("print turn {start}");
    let check = ["--until", &hangs(&scene)];
    let run = scene.run(&check).env("RLM_SHUTDOWN_TIMEOUT", "2s");
    let running = run.spawn();
    scene.wait_for_file("hangs");
    let ended = stop(running, Signal::TERM);
    scene.expect_nothing_alive();
    assert!(
        ended.stdout.contains("waiting for the check, up to 2s"),
        "{ended}"
    );
    assert!(ended.stdout.contains("; all processes ended"), "{ended}");
}

#[test]
fn j41d_w20_hanging_save_is_given_up_at_the_deadline() {
    let cases: [(&str, &[&str]); 3] = [
        ("2s", &["--once"]),
        ("0", &["--once"]),
        ("600s", &["--once", "--shutdown-timeout", "2s"]),
    ];
    for (bound, words) in cases {
        let scene = Scene::new("ignore INT\nprint ready\nhang");
        let run = scene.run(words).env("RLM_SHUTDOWN_TIMEOUT", bound);
        let mut running = until_ready(run);
        let Some(strace) = slow_syncs(&running, 600) else {
            return println!("skipped: strace is missing or may not trace here");
        };
        running.signal(Signal::TERM);
        let words = "stopped immediately";
        running.until(words, LONG, |it| it.stderr().contains(words).then_some(()));
        // Without strace the save no longer hangs, and can end before the process does.
        let printed = running.stdout();
        drop(strace);
        let ended = running.wait(LONG);
        // If strace detaches while rlm sends itself the signal, the signal is lost, and rlm exits with the code of a shell instead.
        let is_terminated = ended.signal() == Some(Signal::TERM.as_raw());
        assert!(is_terminated || ended.code() == Some(128 + 15), "{ended}");
        assert!(!printed.contains("state saved"), "{printed}");
        scene.wait_until_nothing_is_alive();
    }
}

#[test]
fn j41e_countdown_is_in_json_output() {
    let scene = Scene::new(STUBBORN_TREE);
    let run = scene.run(&["--once", "--json"]).env(BOUND.0, BOUND.1);
    let running = until_ready(run);
    let awaited = json!({"what": "agent", "pid": agent_pid(&scene)});
    let ended = stop(running, Signal::TERM);
    assert!(!ended.stdout.contains('\r'), "{ended}");
    let all = events(&ended.stdout);
    let named =
        |name: &str| -> Vec<&Value> { all.iter().filter(|it| it["event"] == name).collect() };
    assert_eq!(named("stopping")[0]["waits_for"], awaited, "{ended}");
    let waiting = named("stop_progress");
    assert!(!waiting.is_empty(), "{ended}");
    assert_eq!(waiting[0]["waits_for"], awaited, "{ended}");
    let left = waiting.iter().map(|it| it["left_s"].as_u64().unwrap());
    assert!(left.clone().is_sorted_by(|a, b| a > b), "{ended}");
    assert!(left.max().unwrap() < 4, "{ended}");
}
