//! Runs that continue with another agent.

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{PROMPT, Scene, crash, expect_in_order, says, stop};

/// Leaves a run that was stopped in the first turn of this agent, in one session, after a message that the agent did not take.
fn stopped(scene: &Scene, agent: &str) {
    let run = ["-n", "2", "--session", "continue"];
    let mut running = scene.driven(agent, &run).spawn();
    says(&mut running, "ready");
    stop(running, Signal::TERM);
}

#[test]
fn other_agent_continues_in_a_new_session_and_it_is_reported() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2.. turn ..\n@2.. recall");
    stopped(&scene, "claude");
    let first = scene.agent.messages()[0].session.clone();

    let ended = scene
        .as_agent("codex", &["resume"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "resuming run",
            "codex continues the work of claude",
            &first,
            "the new agent gets",
        ],
    );
    assert!(!ended.stdout.contains("in session"), "{ended}");
    let messages = scene.agent.messages();
    let [_, second, third] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert!(second.session != first && second.session == third.session);
    expect_in_order(
        &second.text,
        &["another agent (claude)", "did not finish", PROMPT],
    );
    assert_eq!(
        third.text, PROMPT,
        "the prompt mentions the other agent only once"
    );

    let status = scene.status();
    assert_eq!(status["previous_agent"], "claude, up to attempt 1");
    let shown = scene.rlm(&["status"]).run(LONG);
    expect_in_order(&shown.stdout, &["agent   codex", "before  claude"]);
    let id = scene.run_id();
    let shown = scene.rlm(&["checkpoints", "show", &id, "--json"]).run(LONG);
    let words = [
        "\"handover\"",
        "\"from\":\"claude\"",
        "\"previous_agent\":\"claude\"",
    ];
    expect_in_order(&shown.stdout, &words);
    let logs = scene.rlm(&["logs", "--json"]).run(LONG);
    assert!(
        logs.stdout.contains("codex continues the work of claude"),
        "{logs}"
    );
}

#[test]
fn undelivered_steers_go_to_next_agent() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2.. turn ..\n@2.. say well");
    let mut running = scene
        .driven("codex", &["--once", "--session", "continue"])
        .spawn();
    says(&mut running, "ready");
    scene
        .rlm(&["steer", "mind the docs"])
        .run(LONG)
        .expect_code(0);
    crash(running);
    scene.as_agent("acp", &["resume"]).run(LONG).expect_code(0);
    let told = scene.received_messages().pop().unwrap();
    expect_in_order(&told, &["another agent (codex)", "mind the docs", PROMPT]);
}

#[test]
fn failed_agent_change_leaves_the_run_unchanged() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2.. turn ..\n@2.. say well");
    stopped(&scene, "claude");
    let before = scene.status();
    for (arguments, says) in [
        (
            &["resume", "--agent", "codex"][..],
            "`codex` was not found on PATH",
        ),
        (&["resume", "--agent", "command"], "no command"),
        (&["resume", "--agent", "acp"], "no program for agent acp"),
    ] {
        let ended = scene.talking(arguments).run(LONG).expect_code(2);
        assert!(ended.stderr.contains(says), "{ended}");
    }
    assert_eq!(scene.status()["agent"], before["agent"]);
    let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("in session"), "{ended}");
}

#[test]
fn a_run_that_waits_keeps_its_agent() {
    let scene = Scene::new("say ready\nhang");
    let mut running = scene.driven("codex", &["--once"]).spawn();
    says(&mut running, "ready");
    scene.rlm(&["interrupt"]).run(LONG).expect_code(0);
    wait_for("the run to wait", LONG, || {
        (scene.status()["state"] == "paused").then_some(())
    });
    let id = scene.run_id();
    let ended = scene
        .as_agent("claude", &["resume", &id])
        .run(LONG)
        .expect_code(2);
    assert!(ended.stderr.contains("continues unchanged"), "{ended}");
    stop(running, Signal::TERM);
}

#[test]
fn s24b_agent_and_model_of_resume_override_the_saved_ones() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2.. turn ..\n@2.. say well");
    let run = ["--once", "--model", "m-7", "--run-id", "one"];
    let mut running = scene.driven("codex", &run).spawn();
    says(&mut running, "ready");
    stop(running, Signal::TERM);
    let run = ["--once", "--resume-or-start", "--model", "m-8"];
    let ended = scene.driven("claude", &run).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("agent   claude (m-8): "), "{ended}");
    assert!(
        ended.stdout.contains("changed main: model: m-7 -> m-8"),
        "{ended}"
    );
}
