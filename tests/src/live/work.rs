//! Checks of Claude's other work: background tasks, sub-agents, consecutive sessions, and parallel runs.

use std::path::Path;
use std::time::Instant;

use fs_err as fs;

use super::scene::{Check, Elapsed, LiveScene, RUN, expect};

/// The checks by name.
pub(super) const CHECKS: [(&str, Check); 6] = [
    ("a background task of claude's that does not end", endless),
    ("a background task of claude's that ends", task),
    ("a sub-agent of claude's, interrupted in its tool", subagent),
    (
        "one session over three iterations, with a completion promise",
        continued,
    ),
    ("a prompt of 1 MB", large),
    ("two parallel runs in one home", beside),
];

const ALL: [&str; 3] = ["--once", "--permissions", "all"];

/// Returns the script of a turn that leaves a background task of Claude's.
fn background(command: &str) -> String {
    let call =
        serde_json::json!({"command": command, "description": "Wait", "run_in_background": true});
    format!("Begin. [[tool Bash {call}]] [[text It runs.]]")
}

fn task(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = background("sleep 3; touch made");
    let begun = Instant::now();
    scene.run(&prompt, &ALL).run(RUN).expect_code(0);
    let took = Elapsed::since(begun);
    scene.expect_nothing_alive();
    assert!(scene.file("made").exists());
    let requests = scene.requests();
    assert_eq!(requests.len(), 3, "{requests:#?}");
    expect(&requests[2], &["It runs.", "<status>completed</status>"]);
    format!("rlm waited for it, and for the turn with its notification: {took}")
}

fn endless(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let begun = Instant::now();
    let prompt = background("touch begun; sleep 607");
    let run = scene.run(&prompt, &ALL).args(["--background-wait", "5"]);
    run.run(RUN).expect_code(0);
    let took = Elapsed::since(begun);
    scene.expect_nothing_alive();
    format!("rlm waited for it, and ended it after {took}")
}

fn subagent(rlm: &Path, agent: &Path) -> String {
    let part = "[[sh trap '' INT; touch begun; sleep 608]] [[text never]]";
    let scene = LiveScene::answering(rlm, agent, part);
    let call = serde_json::json!({"description": "A part", "prompt": "Do the part.", "subagent_type": "general-purpose", "run_in_background": false});
    let prompt = format!("Begin. [[tool Agent {call}]] [[text never]]");
    let (running, terminal) = scene.watched(&prompt, &ALL);
    scene.wait_for_file("begun");
    let pressed = Instant::now();
    terminal.send("/interrupt\r");
    let gone = scene.gone("sleep", pressed);
    terminal.sees("interrupted", RUN);
    super::scene::say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    let last = &requests[requests.len() - 1];
    expect(last, &["Begin.", "Now briefly."]);
    format!(
        "its tool was gone after {gone}, {} requests",
        requests.len()
    )
}

fn continued(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let step = "echo line >> progress.txt; test $(wc -l < progress.txt) -lt 3 || touch finished";
    fs::write(
        scene.file("PROMPT.md"),
        format!("Do it. [[sh {step}]] [[text <promise>READY</promise>]]"),
    )
    .unwrap();
    let arguments = [
        "run",
        "--agent",
        "claude",
        "--sleep",
        "0",
        "--permissions",
        "all",
    ];
    let ends = [
        "--session",
        "continue",
        "--completion-promise",
        "READY",
        "--until",
        "test -e finished",
    ];
    let ended = scene.rlm(&arguments).args(ends).run(RUN).expect_code(0);
    let requests = scene.requests();
    let turns: Vec<usize> = requests.iter().map(|request| request.turn).collect();
    assert!(
        requests
            .iter()
            .all(|request| request.session == requests[0].session),
        "{ended}"
    );
    assert_eq!(turns, [1, 1, 2, 2, 3, 3], "{ended}");
    "three turns in one session, each with a check for its promise".into()
}

fn large(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let filler: String = (0..140_000).map(|number| format!("w{number} ")).collect();
    let prompt = format!("{filler}[[text It is read.]]");
    fs::write(scene.file("PROMPT.md"), &prompt).unwrap();
    let ended = scene
        .rlm(&["run", "--agent", "claude", "--once"])
        .run(RUN)
        .expect_code(0);
    assert!(ended.stdout.contains("It is read."), "{ended}");
    let requests = scene.requests();
    let came = &requests[0].last_user;
    assert!(
        came.contains(filler.trim()),
        "{} of {} bytes",
        came.len(),
        prompt.len()
    );
    format!("{} bytes arrived whole", came.len())
}

fn beside(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let second = scene.sandbox.path().join("second");
    fs::create_dir(&second).unwrap();
    let prompt = "Work. [[sh echo line >> progress.txt]] [[text It is done.]]";
    let run = || {
        scene.rlm(&[
            "run",
            "--agent",
            "claude",
            "--sleep",
            "0",
            "--permissions",
            "all",
            "-n",
            "3",
            "-p",
            prompt,
        ])
    };
    let (one, two) = (run().spawn(), run().dir(&second).spawn());
    one.wait(RUN).expect_code(0);
    two.wait(RUN).expect_code(0);
    for folder in [scene.sandbox.repo(), second] {
        let lines = fs::read_to_string(folder.join("progress.txt")).unwrap();
        assert_eq!(lines, "line\n".repeat(3));
    }
    assert_eq!(scene.requests().len(), 12);
    "three iterations each".into()
}
