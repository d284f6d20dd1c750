//! Changes of the limits of a live run from another terminal.

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::control::quick;
use crate::scene::{Scene, expect_in_order, says, stop};

#[test]
fn set_limit_is_in_effect_and_survives_a_resume() {
    let scene = Scene::new("print turn {start}\nawait go");
    let mut running = scene.run(&["-n", "1"]).spawn();
    says(&mut running, "turn 1");
    let told = quick(scene.rlm(&["set", "max-iterations=3", "sleep=0", "max-failures=7"]));
    let told = told.expect_code(0).stdout;
    assert!(told.contains("recorded: iterations: 3"), "{told}");
    assert!(told.contains("in effect: failures in a row: 7"), "{told}");
    says(&mut running, "iterations: 3");
    // The changed limit also survives an option of `resume` that derives new rules from the saved settings.
    stop(running, Signal::INT);
    fs_err::write(scene.file("go"), "").unwrap();
    quick(scene.rlm(&["resume", "--max-duration", "1h"])).expect_code(0);
    assert_eq!(scene.status()["iterations_complete"], 3);
    let shown = quick(scene.rlm(&["checkpoints", "show", &scene.run_id(), "--json"]));
    assert!(shown.stdout.contains("\"max_failures\":7"), "{shown}");
}

#[test]
fn x117h_unknown_set_key_changes_nothing() {
    let scene = Scene::new("print turn {start}\nawait go");
    let mut running = scene.run(&["-n", "2"]).spawn();
    says(&mut running, "turn 1");
    for (words, code, why) in [
        (&["sleeep=3"][..], 2, "did you mean `sleep`?"),
        (
            &["max-iterations=5", "sleep=soon"],
            2,
            "sleep: `soon` is not",
        ),
        (&["max-iterations"], 2, "the key is missing"),
        (
            &["max-iterations=-1"],
            2,
            "max-iterations: `-1` is not a number",
        ),
        (&["max-iterations=0"], 2, "not a number from 1 to"),
        (&["max-iterations=none"], 1, "needs a stop condition"),
        (&["sleep=1", "max-cost=3"], 1, "already set: sleep=1"),
        (&["no-such-run", "sleep=1"], 10, "no live run"),
    ] {
        let words: Vec<&str> = ["set"].iter().chain(words).copied().collect();
        let refused = quick(scene.rlm(&words)).expect_code(code);
        assert!(refused.stderr.contains(why), "{refused}");
    }
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.status()["iterations_complete"], 2);
}

#[test]
fn c75b_c75c_c75f_pause_after_a_tool_keeps_the_session() {
    let scene = Scene::new(
        "@1 say ready\n@1 tool Bash make\n@1 await go\n@1 tool-end\n@1 hang\nturn\nsay on\nturn",
    );
    let running = scene.claude(&["-n", "2", "--no-input"]).spawn();
    scene.wait_until_recorded("make");
    let pause = [
        "pause", "--after", "tool", "--reason", "look", "--wait", "0",
    ];
    let told = quick(scene.rlm(&pause)).expect_code(0).stdout;
    assert!(told.contains("when no tool runs"), "{told}");
    assert_eq!(scene.controls(), ["initialize"], "the tool goes on");
    let again = scene.rlm(&["pause", "--after", "tool"]).spawn();
    wait_for("the response to the second request", LONG, || {
        again.stdout().contains("recorded").then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    let told = again.wait(LONG).expect_code(0).stdout;
    expect_in_order(&told, &["recorded", "paused; to continue: rlm resume"]);
    assert_eq!(scene.controls(), ["initialize", "interrupt"]);
    let status = scene.status();
    assert_eq!(
        (&status["state"], &status["pause_reason"]),
        (&"paused".into(), &"look".into())
    );
    // The run has paused once, and does not pause again.
    quick(scene.rlm(&["resume"])).expect_code(0);
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.status()["iterations_complete"], 2);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn c75f_turn_without_tool_pauses_at_its_end_and_command_agent_refuses() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let running = scene.claude(&["-n", "2", "--no-input"]).spawn();
    scene.wait_until_recorded("ready");
    quick(scene.rlm(&["pause", "--after", "tool", "--wait", "0"])).expect_code(0);
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the pause", LONG, || {
        (scene.status()["state"] == "paused").then_some(())
    });
    assert_eq!(scene.status()["iterations_complete"], 1);
    stop(running, Signal::INT);
    let plain = Scene::new("print ready\nhang");
    let running = plain.ready(&["--once"]);
    let refused = quick(plain.rlm(&["pause", "--after", "tool"])).expect_code(1);
    assert!(refused.stderr.contains("can't be interrupted"), "{refused}");
    drop(running);
}

#[test]
fn c75g_resume_needs_a_name_if_several_runs_are_paused() {
    let scene = Scene::new("print turn {start}\nawait go");
    let [one, two] = ["one", "two"].map(|name| {
        let own = ["-n", "2", "--worktree", "--run-id", name];
        let mut running = scene.run(&own).spawn();
        says(&mut running, "turn ");
        quick(scene.rlm(&["pause", name, "--wait", "0"])).expect_code(0);
        running
    });
    // Both runs have a requested pause.
    let refused = quick(scene.rlm(&["resume"])).expect_code(2).stderr;
    assert!(refused.contains("name one: one, two"), "{refused}");
    for name in ["one", "two"] {
        quick(scene.rlm(&["resume", name])).expect_code(0);
        let tree = scene.file(".rlm/worktrees").join(name);
        fs_err::write(tree.join("go"), "").unwrap();
    }
    one.wait(LONG).expect_code(0);
    two.wait(LONG).expect_code(0);
}
