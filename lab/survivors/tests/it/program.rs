//! The program: its output, its exit codes, and no survivors of its own.

use rlm_tests::{Ended, Sandbox, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::{LONG, PROGRAM};

fn run(sandbox: &Sandbox, arguments: &[&str]) -> Ended {
    sandbox.rlm(PROGRAM).args(arguments).run(LONG)
}

#[test]
fn unavailable_score_is_a_failure_and_in_the_file() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("score.json");
    let words = ["--quick", "--tool", "true {agent}", "--json"];
    let ended = run(&sandbox, &[&words[..], &[file.to_str().unwrap()]].concat()).expect_code(1);
    let stdout = &ended.stdout;
    assert!(
        stdout.contains("Not clean. Some stops could not be judged"),
        "{ended}"
    );
    assert!(
        !stdout.contains('\x1b') && !ended.stderr.contains('\x1b'),
        "{ended}"
    );
    let score: Value = serde_json::from_str(&fs_err::read_to_string(file).unwrap()).unwrap();
    assert_eq!(
        (&score["clean"], &score["tool"]),
        (&false.into(), &"true {agent}".into())
    );
    let ways = score["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 8);
    assert!(
        ways.iter()
            .all(|way| way["runs"] == 2 && way["never_ready"] == 2)
    );
    assert_eq!(ways[0]["each"][1]["verdict"], "never_ready");
}

#[test]
fn invalid_request_is_rejected() {
    let sandbox = Sandbox::new();
    for (arguments, word) in [
        (&["--tool", "true"][..], "{agent}"),
        (&["--tool", "{agent}", "--moment", "gate"], "only for rlm"),
        (&["--tool", "a", "--agent-name", "a/b"], "not a path"),
        (&["--quick", "--runs", "3"], "cannot be used with"),
    ] {
        let ended = run(&sandbox, arguments).expect_code(2);
        assert!(ended.stderr.contains(word), "{ended}");
    }
}

#[test]
fn interrupted_measurement_leaves_no_process() {
    let sandbox = Sandbox::new();
    let words = [
        "--quick",
        "--jobs",
        "2",
        "--tool",
        "while :; do {agent}; done",
    ];
    let tool = sandbox.rlm(PROGRAM).args(words).spawn();
    wait_for("survivors of the first stops", LONG, || {
        let alive = sandbox.survivors().scan();
        let agents = alive
            .iter()
            .filter(|process| process.name == "survivors-agent");
        (agents.count() >= 4).then_some(())
    });
    tool.signal(Signal::TERM);
    let ended = tool.wait(LONG).expect_code(130);
    assert!(
        ended.stdout.contains("all started processes were killed"),
        "{ended}"
    );
    assert_eq!(sandbox.survivors().scan(), []);
}
