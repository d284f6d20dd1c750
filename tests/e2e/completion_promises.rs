//! Done means evidence: completion promises, the checks behind them, and texts that are no promise.

use crate::LONG;
use crate::scene::{Scene, events, expect_in_order};

const PROMISE: &str = "<promise>ALL DONE</promise>";

fn promising(script: &str, arguments: &[&str]) -> (Scene, rlm_tests::Ended) {
    let scene = Scene::new(script);
    let all = [&["--completion-promise", "ALL DONE"], arguments].concat();
    let ended = scene.claude(&all).run(LONG);
    (scene, ended)
}

#[test]
fn x105a_x105b_completion_promise_starts_the_check_and_the_check_decides() {
    let script = format!("run echo work\n@2.. say It works. {PROMISE}\n@3 touch done\nturn");
    let script = script.replace("@3 touch done\n", "") + "\n";
    let script = format!("@3 touch done\n{script}");
    let (scene, ended) = promising(
        &script,
        &[
            "--until",
            "echo checked >> checks; echo not yet; test -e done",
        ],
    );
    let ended = ended.expect_code(0);
    let checks = fs_err::read_to_string(scene.file("checks")).unwrap();
    assert_eq!(
        checks.lines().count(),
        2,
        "the check runs only after a promise: {ended}"
    );
    assert_eq!(scene.start_count(), 3);
    let told = scene.received_messages();
    assert!(
        told[2].contains("not yet"),
        "the output of the check is in the next prompt: {}",
        told[2]
    );
    assert!(!told[1].contains("not yet"));
    expect_in_order(
        &ended.stdout,
        &[
            "iteration 2 ",
            "check did not pass",
            "iteration 3 ",
            "check passed",
            "done: the check passed",
        ],
    );
}

#[test]
fn x105c_completion_promise_without_check_finishes_the_run() {
    let script = format!("run echo work\nsay {PROMISE}\nturn");
    let (_, ended) = promising(&script, &[]);
    let ended = ended.expect_code(0);
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.contains("the agent promises it"), "{ended}");
    let (_, ended) = promising(&script, &["--json"]);
    let events = events(&ended.expect_code(0).stdout);
    assert_eq!(events.last().unwrap()["evidence"], "promise", "{events:?}");
}

#[test]
fn x105d_x105e_turns_without_progress_are_reported_and_three_are_stuck() {
    let scene = Scene::new("say I thought about it");
    let ended = scene
        .claude(&["-n", "9", "--until", "false"])
        .run(LONG)
        .expect_code(6);
    assert_eq!(scene.start_count(), 3, "{ended}");
    assert!(ended.stdout.contains("stuck"), "{ended}");
    let scene = Scene::new(
        "@1..2 say nothing\n@3 run echo work\n@4..5 say nothing\n@6 write new.txt x\n@7..8 say nothing\n@9 run echo work",
    );
    let ended = scene
        .claude(&["-n", "9", "--until", "false"])
        .run(LONG)
        .expect_code(3);
    assert_eq!(
        scene.start_count(),
        9,
        "a tool or a change is progress: {ended}"
    );
    let scene = Scene::new("print nothing");
    scene
        .run(&["-n", "5", "--until", "false"])
        .run(LONG)
        .expect_code(3);
    assert_eq!(
        scene.start_count(),
        5,
        "the progress of a command agent is unknown"
    );
}

#[test]
fn x105f_simultaneous_limit_wins_over_no_progress() {
    let scene = Scene::new("say I thought about it");
    scene
        .claude(&["-n", "3", "--until", "false"])
        .run(LONG)
        .expect_code(3);
}

#[test]
fn x106a_x106b_x106c_x106d_only_end_of_last_message_is_a_promise() {
    let quoted = [
        format!("tool Bash cat\ntool-end {PROMISE}\nsay still at it"),
        format!("run echo '{PROMISE}'\nsay still at it"),
        format!("run true\nsay I will say {PROMISE} when I am done, not now"),
        format!("say {PROMISE}\nrun true\nsay there is more"),
        format!("run true\nask Bash {PROMISE}\nsay no"),
    ];
    for script in quoted {
        let (scene, ended) = promising(&script, &["-n", "1"]);
        let ended = ended.expect_code(3);
        assert_eq!(scene.start_count(), 1, "{script}: {ended}");
    }
    let scene = Scene::new("run true\necho\nsay no more");
    let prompt = format!("Work. Say {PROMISE} when done.");
    let all = [
        "-n",
        "1",
        "--sleep",
        "0",
        "--completion-promise",
        "ALL DONE",
        "-p",
        &prompt,
    ];
    scene.claude_bare(&all).run(LONG).expect_code(3);
    let (_, ended) = promising(&format!("run true\nsay so:\\n{PROMISE}\\n"), &["-n", "1"]);
    ended.expect_code(0);
}
