//! An agent that has something running in the background when its turn ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, says};

/// A conversation in which the turn ends while a task runs. What the task does, and whether it ends, comes with it.
fn agent(scene: &Scene, task: &str) -> String {
    let script = format!(
        r#"#!/bin/sh
say() {{ printf '%s\n' "$1"; }}
tasks() {{ say '{{"type":"system","subtype":"background_tasks_changed","tasks":['"$1"']}}'; }}
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"request_id":"\([^"]*\)".*/\1/p')
  ok='{{"type":"control_response","response":{{"subtype":"success","request_id":"'"$id"'","response":{{}}}}}}'
  case $line in
  *'"subtype":"end_session"'*) say "$ok"; exit 0 ;;
  *'"subtype":"stop_task"'*) tasks ''; say "$ok" ;;
  *'"type":"control_request"'*) say "$ok" ;;
  *'"type":"user"'*)
    say '{{"type":"system","subtype":"init","claude_code_version":"0","model":"m"}}'
    say '{{"type":"system","subtype":"status","status":"requesting"}}'
    tasks '{{"task_id":"b"}}'
    say '{{"type":"assistant","message":{{"content":[{{"type":"text","text":"It will come."}}]}}}}'
    say '{{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":""}}'
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

#[test]
fn x105_what_the_agent_has_in_the_background_is_done_before_it_is_judged() {
    let scene = Scene::new("");
    let task = "sleep 1; touch whole; tasks ''";
    let ended = run(
        &scene,
        task,
        &[
            "-n",
            "1",
            "--gate",
            "test -f whole",
            "--until",
            "test -f whole",
        ],
    );
    let ended = ended.run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains("1 task in the background"),
        "a person is told what is waited for: {ended}"
    );
    scene.expect_nothing_alive();
}

#[test]
fn x114_a_signal_while_the_background_is_waited_for_stops_at_once_and_judges_nothing() {
    let scene = Scene::new("");
    let judge = ["-n", "2", "--until", "touch judged; false"];
    let mut running = run(&scene, "touch going", &judge).spawn();
    says(&mut running, "1 task in the background");
    scene.wait_for_file("going");
    running.signal(Signal::TERM);
    let ended = running.wait(LONG).expect_signal(Signal::TERM);
    // A hard exit at the end of the budget would have said nothing.
    assert!(ended.stdout.contains("stopped by SIGTERM"), "{ended}");
    assert!(!scene.sandbox.repo().join("judged").exists(), "{ended}");
    assert_eq!(scene.status()["state"], "stopped");
    scene.expect_nothing_alive();
}
