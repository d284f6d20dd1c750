//! Checks of real Claude Code in a conversation.

use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use rustix::process::Signal;

use super::scene::{BOUND, Check, LiveScene, RUN, claude_saved, expect, say};
use crate::model::Request;
use crate::{poll_until, wait_for};

/// The checks by name.
pub(super) const CHECKS: [(&str, Check); 6] = [
    ("a steer into claude's running tool", steered),
    (
        "an interrupt, then a message in the same process and session",
        interrupted,
    ),
    (
        "a permission request of claude's, answered by a person and unattended",
        asked,
    ),
    (
        "kill -9, then a resume that knows the conversation",
        resumed,
    ),
    ("429 and 529, recovered", recovered),
    ("a line of 1.5 MB", long_line),
];

fn steered(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Make it. [[sh touch begun; while ! test -e go; do sleep 0.05; done]] [[steered]]";
    let (running, terminal) = scene.watched(prompt, &["--once", "--permissions", "all"]);
    let begun = scene.sandbox.repo().join("begun");
    wait_for("the tool", RUN, || begun.exists().then_some(()));
    say(&terminal, "use tabs");
    terminal.sees("delivered", RUN);
    fs::write(scene.sandbox.repo().join("go"), "").unwrap();
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(
        (requests.len(), requests[1].turn),
        (2, 1),
        "one turn: {requests:#?}"
    );
    expect(&requests[1], &["Make it.", "touch begun", "use tabs"]);
    let shown = terminal.scrolled();
    assert!(
        shown.contains("steered:") && shown.contains("seen by the agent"),
        "{shown}"
    );
    "in the same turn, after the tool's result".into()
}

fn interrupted(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Write slowly. [[slow 50 60]]";
    let (running, terminal) = scene.watched(prompt, &["--once", "--permissions", "all"]);
    terminal.sees("tok5", RUN);
    terminal.send("/interrupt\r");
    terminal.sees("interrupted", RUN);
    scene.until_first_request_is_dropped();
    say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(RUN).expect_code(0);

    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert_eq!(requests[0].session, requests[1].session);
    expect(
        &requests[1],
        &[
            "Write slowly.",
            "tok0 tok1",
            "[Request interrupted by user]",
            "Now briefly.",
        ],
    );
    let shown = terminal.scrolled();
    assert_eq!(
        shown.matches("agent runs (pid").count(),
        1,
        "one process: {shown}"
    );
    let lines = scene.transcript();
    let acknowledged = lines.iter().position(|line| line.contains("still_queued"));
    let end = lines
        .iter()
        .position(|line| line.contains("aborted_streaming"));
    let (acknowledged, end) = (acknowledged.expect("a receipt"), end.expect("a result"));
    let late = lines[acknowledged..end]
        .iter()
        .filter(|line| line.contains("text_delta"))
        .count();
    assert_eq!(late, 0, "{:#?}", &lines[acknowledged..end]);
    "the next request has prompt, partial text and marker; no delta after the acknowledgement"
        .into()
}

fn asked(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Do it. [[sh touch permitted]] [[text ok]]";
    let (running, terminal) = scene.watched(prompt, &["--once", "--permissions", "ask"]);
    terminal.sees("allow? Bash: touch permitted", RUN);
    // rlm ignores keys that come before a person can read the prompt.
    assert!(poll_until(Duration::from_millis(1500), || None::<()>).is_none());
    terminal.send("y");
    running.wait(RUN).expect_code(0);
    assert!(scene.sandbox.repo().join("permitted").exists());

    let scene = LiveScene::new(rlm, agent);
    let ended = scene
        .run(prompt, &["--once", "--permissions", "ask"])
        .run(RUN)
        .expect_code(0);
    assert!(!scene.sandbox.repo().join("permitted").exists());
    assert!(ended.stdout.contains("denied:"), "{ended}");
    expect(
        &scene.requests()[1],
        &["touch permitted", "no person is attached"],
    );
    "allowed by a key; denied with a message to the model if unattended".into()
}

fn resumed(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Remember blue. [[sh touch begun; sleep 600]] [[text never]]";
    let run = ["--once", "--permissions", "all", "--session", "continue"];
    let mut running = scene.run(prompt, &run).spawn();
    let begun = scene.sandbox.repo().join("begun");
    running.until("the tool", RUN, |_| {
        let is_saved = claude_saved(&scene.sandbox, r#""type":"tool_use""#);
        (begun.exists() && is_saved).then_some(())
    });
    running.signal(Signal::KILL);
    running.wait(RUN).expect_signal(Signal::KILL);
    let gone = poll_until(BOUND * 10, || {
        scene.sandbox.survivors().scan().is_empty().then_some(())
    });
    assert!(gone.is_some(), "{:?}", scene.sandbox.survivors().scan());

    scene.rlm(&["resume"]).run(RUN).expect_code(0);
    let requests = scene.requests();
    let (first, last) = (&requests[0], &requests[requests.len() - 1]);
    assert_eq!(requests.len(), 2, "{requests:#?}");
    expect(last, &["Remember blue.", "touch begun"]);
    let told = last
        .items
        .iter()
        .filter(|item| item.role == "user" && item.text.contains("Remember blue."));
    assert_eq!(
        told.count(),
        1,
        "the prompt was sent once: {:#?}",
        last.items
    );
    let session = |request: &Request| -> Option<String> {
        let (_, rest) = request.session.split_once("session_id")?;
        Some(rest.to_owned())
    };
    assert_eq!(session(first), session(last));
    "one session with the unfinished call; the prompt was sent once".into()
}

fn recovered(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Try. [[status 429 1 2]] [[status 529 - 2]] [[text It went well.]]";
    let ended = scene.run(prompt, &["--once"]).run(RUN).expect_code(0);
    for words in ["429", "529", "It went well."] {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    let requests = scene.requests();
    assert_eq!(requests.len(), 5, "{requests:#?}");
    "two of each, and every retry was shown".into()
}

fn long_line(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let running = scene.run("Write. [[big 1500000]]", &["--once"]).spawn();
    running.wait(RUN + Duration::from_secs(60)).expect_code(0);
    let longest = scene
        .transcript()
        .iter()
        .map(String::len)
        .max()
        .unwrap_or(0);
    assert!(longest > 1_500_000, "{longest}");
    format!("the longest line of the transcript has {longest} bytes")
}
