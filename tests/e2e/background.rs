//! Agents with a background task at the end of their turn.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rlm_tests::Running;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, says};

/// Returns the script of a conversation whose turn ends while a task runs; `task` has the actions and the end of the task.
fn agent(scene: &Scene, task: &str) -> String {
    let script = format!(
        r#"#!/bin/sh
say() {{ printf '%s\n' "$1"; }}
tasks() {{ say '{{"type":"system","subtype":"background_tasks_changed","tasks":['"$1"']}}'; }}
begin() {{
  say '{{"type":"system","subtype":"init","claude_code_version":"0","model":"m"}}'
  say '{{"type":"system","subtype":"status","status":"requesting"}}'
}}
# A task has ended, and the agent reads its result.
look() {{
  say '{{"type":"system","subtype":"task_notification","status":"completed"}}'
  tasks ''
  begin
}}
words() {{ say '{{"type":"assistant","message":{{"content":[{{"type":"text","text":"'"$1"'"}}]}}}}'; }}
good() {{ say '{{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":""}}'; }}
bad() {{ say '{{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"model_error","result":"the model is out"}}'; }}
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"request_id":"\([^"]*\)".*/\1/p')
  ok='{{"type":"control_response","response":{{"subtype":"success","request_id":"'"$id"'","response":{{}}}}}}'
  case $line in
  *'"subtype":"end_session"'*) say "$ok"; exit 0 ;;
  *'"subtype":"stop_task"'*) tasks ''; say "$ok" ;;
  *'"type":"control_request"'*) say "$ok" ;;
  *'"type":"user"'*)
    begin
    tasks '{{"task_id":"b"}}'
    words 'It will come.'
    good
    {task} ;;
  esac
done
"#
    );
    let path = scene.sandbox.home().join("agent");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn run<'a>(scene: &'a Scene, task: &str, arguments: &[&str]) -> rlm_tests::Rlm<'a> {
    let agent = agent(scene, task);
    let run = ["run", "--agent", "claude", "--agent-bin", &agent, "-p", "x"];
    scene.rlm(&[&run, arguments].concat())
}

/// Runs until the run waits for a task that does not end by itself.
fn waiting(scene: &Scene, task: &str, arguments: &[&str]) -> Running {
    let mut running = run(scene, task, &[&["--run-id", "r1"], arguments].concat()).spawn();
    says(&mut running, "waiting for 1 background task");
    scene.wait_for_file("going");
    running
}

/// A required check and a check that test whether the work is complete.
const JUDGE: [&str; 6] = [
    "-n",
    "1",
    "--gate",
    "test -f whole",
    "--until",
    "test -f whole",
];

#[test]
fn x105g_background_tasks_finish_before_checks() {
    let scene = Scene::new("");
    let ended = run(&scene, "sleep 1; touch whole; tasks ''", &JUDGE);
    let ended = ended.run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains("waiting for 1 background task"),
        "the output names the task: {ended}"
    );
    scene.expect_nothing_alive();
}

#[test]
fn x114b_turn_started_by_the_agent_is_awaited_and_shown() {
    let scene = Scene::new("");
    // The turn takes longer than the limit for a task.
    let task = "look; sleep 3; touch whole; words 'I looked.'; good";
    let patience = ["--background-wait", "1s"];
    let ended = run(&scene, task, &[&JUDGE, &patience[..]].concat());
    let ended = ended.run(LONG).expect_code(0);
    assert!(ended.stdout.contains("I looked."), "{ended}");
    assert!(!ended.stdout.contains("warning"), "{ended}");
    let logged = scene.rlm(&["logs"]).run(LONG).expect_code(0);
    assert!(logged.stdout.contains("I looked."), "{logged}");
    assert_eq!(scene.status()["attempts"], 1);
    scene.expect_nothing_alive();
}

#[test]
fn x114b_end_of_turn_started_by_the_agent_keeps_previous_result() {
    let scene = Scene::new("");
    let ended = run(&scene, "look; touch whole; bad", &JUDGE);
    let ended = ended.run(LONG).expect_code(0);
    let told = "a turn that the agent started by itself failed";
    assert!(ended.stdout.contains(told), "{ended}");
    assert!(ended.stdout.contains("iteration 1 complete"), "{ended}");
}

#[test]
fn x105g_completion_promise_after_background_task_counts() {
    let scene = Scene::new("");
    let task = "look; words '<promise>DONE</promise>'; good";
    let ended = run(&scene, task, &["-n", "1", "--completion-promise", "DONE"]);
    let ended = ended.run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains("done: the agent promises it"),
        "{ended}"
    );
}

#[test]
fn x114c_silent_background_tasks_are_given_up() {
    let scene = Scene::new("");
    let patience = ["--background-wait", "1s", "-n", "1"];
    let ended = run(&scene, "touch going", &patience);
    let ended = ended.run(LONG).expect_code(0);
    let told = "no report from 1 task in the background for 1s";
    assert!(ended.stdout.contains(told), "{ended}");
    scene.expect_nothing_alive();
}

#[test]
fn x114d_signal_during_background_wait_stops_without_checks() {
    let scene = Scene::new("");
    let judge = ["-n", "2", "--until", "touch judged; false"];
    let running = waiting(&scene, "touch going", &judge);
    running.signal(Signal::TERM);
    let ended = running.wait(LONG).expect_signal(Signal::TERM);
    // A hard exit at the end of the budget would not have printed this.
    assert!(ended.stdout.contains("stopped by SIGTERM"), "{ended}");
    assert!(!scene.sandbox.repo().join("judged").exists(), "{ended}");
    assert_eq!(scene.status()["state"], "stopped");
    scene.expect_nothing_alive();
}

#[test]
fn s19d_status_names_background_task_and_interrupt_ends_the_wait() {
    let scene = Scene::new("");
    let running = waiting(
        &scene,
        "touch going",
        &["-n", "1", "--background-wait", "1h"],
    );
    for command in ["status", "ps"] {
        let told = scene.rlm(&[command]).run(LONG).expect_code(0);
        let waits = "waits for 1 background task";
        assert!(told.stdout.contains(waits), "{told}");
    }
    let told = scene.rlm(&["interrupt"]).run(LONG).expect_code(0);
    assert!(told.stdout.contains("interrupted"), "{told}");
    assert_eq!(scene.status()["state"], "paused");
    running.signal(Signal::TERM);
    running.wait(LONG).expect_signal(Signal::TERM);
    scene.expect_nothing_alive();
}

#[test]
fn x109a_steer_during_background_wait_reaches_the_agent_at_once() {
    let scene = Scene::new("");
    let task = "if test -f going; then tasks ''; fi; touch going";
    let running = waiting(&scene, task, &["-n", "1", "--background-wait", "1h"]);
    let told = scene.rlm(&["steer", "never mind"]).run(LONG);
    let told = told.expect_code(0);
    assert!(told.stdout.contains("seen by the agent"), "{told}");
    let ended = running.wait(LONG).expect_code(0);
    assert_eq!(ended.stdout.matches("It will come.").count(), 2, "{ended}");
    assert_eq!(scene.status()["attempts"], 1);
}
