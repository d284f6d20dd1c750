//! Ordinary runs of `rlm`, and runs with a person.

use std::time::{Duration, Instant};

use fs_err as fs;

use crate::live::real::RealAgent;
use crate::live::scene::ACP_RUN;
use crate::live::scene::{Elapsed, LiveScene, expect, holds, say};
use crate::poll_until;

const ALL: [&str; 3] = ["--once", "--permissions", "all"];
const STEP: &str = "Do it. [[sh echo $RLM_ITERATION >> progress.txt]] [[text It is done.]]";

pub(in crate::live) fn iterations(scene: &LiveScene) -> String {
    let until = [
        "--permissions",
        "all",
        "--until",
        "test $(wc -l < progress.txt) -ge 3",
    ];
    let ended = scene.run(STEP, &until).run(ACP_RUN).expect_code(0);
    let lines = fs::read_to_string(scene.file("progress.txt")).unwrap();
    assert_eq!(lines, "1\n2\n3\n", "{ended}");
    assert_eq!(turns(scene), [1; 6], "{ended}");
    scene.expect_nothing_alive();
    format!(
        "three lines, three sessions; {} warnings",
        ended.stdout.matches("warning:").count()
    )
}

pub(in crate::live) fn continued(scene: &LiveScene) -> String {
    let arguments = ["--permissions", "all", "--session", "continue", "-n", "3"];
    let ended = scene.run(STEP, &arguments).run(ACP_RUN).expect_code(0);
    assert_eq!(turns(scene), [1, 1, 2, 2, 3, 3], "{ended}");
    let processes = ended.stdout.matches("agent runs (pid").count();
    format!("three turns in one session, by {processes} processes")
}

pub(in crate::live) fn interrupted(scene: &LiveScene) -> String {
    let (running, terminal) = scene.watched("Write slowly. [[slow 50 60]]", &ALL);
    terminal.sees("tok5", ACP_RUN);
    let pressed = Instant::now();
    terminal.send("/interrupt\r");
    terminal.sees("interrupted", ACP_RUN);
    let waits = Elapsed::since(pressed);
    scene.until_first_request_is_dropped();
    say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(ACP_RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    expect(&requests[1], &["Now briefly."]);
    let kept = ["Write slowly.", "tok0 tok1"].map(|word| holds(&requests[1], &[word]));
    // Gemini drops a cancelled turn with its prompt.
    let keeps = scene.real != RealAgent::Gemini;
    assert_eq!(kept, [keeps; 2], "{requests:#?}");
    let shown = terminal.scrolled();
    let processes = shown.matches("agent runs (pid").count();
    assert_eq!(processes, scene.real.processes(), "{shown}");
    format!("after {waits}, in one process; prompt and partial text are kept: {kept:?}")
}

pub(in crate::live) fn interrupted_in_a_tool(scene: &LiveScene) -> String {
    let tool = "trap '' INT; touch begun; sleep 601 & sleep 601; wait";
    let prompt = format!("Work. [[sh {tool}]] [[text never]]");
    let (running, terminal) = scene.watched(&prompt, &ALL);
    scene.wait_for_file("begun");
    let pressed = Instant::now();
    terminal.send("/interrupt\r");
    let gone = scene.gone("sleep", pressed);
    terminal.sees("interrupted", ACP_RUN);
    let waits = Elapsed::since(pressed);
    say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(ACP_RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    expect(&requests[1], &["Work.", "touch begun", "Now briefly."]);
    let shown = terminal.scrolled();
    let processes = shown.matches("agent runs (pid").count();
    assert_eq!(processes, scene.real.processes(), "{shown}");
    format!("the tool ended after {gone}, the run waited after {waits}, in one process")
}

pub(in crate::live) fn at_once(scene: &LiveScene) -> String {
    let (running, terminal) = scene.watched("Write slowly. [[slow 50 60]]", &ALL);
    terminal.sees("tok5", ACP_RUN);
    let said = Instant::now();
    let steer = ["steer", "--now", "Stop that. [[text I turned.]]"];
    scene.rlm(&steer).run(ACP_RUN).expect_code(0);
    terminal.sees("I turned.", ACP_RUN);
    let took = Elapsed::since(said);
    running.wait(ACP_RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    scene.until_first_request_is_dropped();
    expect(&requests[1], &["Stop that."]);
    format!("it was answered after {took}")
}

pub(in crate::live) fn word(scene: &LiveScene) -> String {
    let prompt =
        "Make it. [[sh touch begun; while ! test -e go; do sleep 0.05; done]] [[text Made.]]";
    let arguments = ["--permissions", "all", "-n", "2"];
    let (running, terminal) = scene.watched(prompt, &arguments);
    scene.wait_for_file("begun");
    say(&terminal, "use tabs");
    terminal.sees("use tabs", ACP_RUN);
    fs::write(scene.file("go"), "").unwrap();
    running.wait(ACP_RUN).expect_code(0);
    let requests = scene.requests();
    let told: Vec<bool> = requests
        .iter()
        .map(|request| holds(request, &["use tabs"]))
        .collect();
    // One agent would queue a second prompt in a turn; for another it would end the turn.
    assert_eq!(told[..2], [false, false], "{requests:#?}");
    assert!(told[2], "{requests:#?}");
    let turn = requests[2].turn;
    format!("not in the running turn but in the next one, which is turn {turn} of its session")
}

pub(in crate::live) fn permissions(scene: &LiveScene) -> String {
    let (tool, path) = match scene.real {
        RealAgent::Gemini => ("write_file", "file_path"),
        RealAgent::Opencode => ("write", "filePath"),
        RealAgent::Api => ("write", "path"),
        _ => ("Write", "file_path"),
    };
    let done = |permissions: &str| {
        let (written, ran) = (
            format!("written-{permissions}"),
            format!("ran-{permissions}"),
        );
        let file = scene.file(&written);
        let write = serde_json::json!({path: file, "content": "x"});
        let prompt = format!("Do. [[tool {tool} {write}]] [[sh env > {ran}]] [[text ok]]");
        let arguments = ["--once", "--permissions", permissions];
        let ended = scene.run(&prompt, &arguments).run(ACP_RUN).expect_code(0);
        let denied = ended.stdout.contains("denied:");
        (
            [&written, &ran].map(|name| scene.file(name).exists()),
            denied,
        )
    };
    assert_eq!(done("all"), ([true, true], false));
    assert_eq!(done("edits"), ([true, false], true));
    assert_eq!(done("deny"), ([false, false], true));
    "all: a file and a command; edits: a file; deny: neither, with a report".into()
}

pub(in crate::live) fn asked(scene: &LiveScene) -> String {
    let prompt = "Do it. [[sh touch permitted]] [[text ok]]";
    let (running, terminal) = scene.watched(prompt, &["--once", "--permissions", "ask"]);
    terminal.sees("allow?", ACP_RUN);
    assert!(!scene.file("permitted").exists());
    // rlm ignores keys that come before a person can read the prompt.
    assert!(poll_until(Duration::from_millis(1500), || None::<()>).is_none());
    terminal.send("y");
    running.wait(ACP_RUN).expect_code(0);
    assert!(scene.file("permitted").exists());
    let shown = terminal.scrolled();
    let allowed = { shown.lines() }.find(|line| line.contains("allowed"));
    format!("{:?}", allowed.unwrap_or_default().trim())
}

fn turns(scene: &LiveScene) -> Vec<usize> {
    scene
        .requests()
        .iter()
        .map(|request| request.turn)
        .collect()
}
