//! Checks of real Codex.

use std::path::Path;
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::process::Signal;

use super::real::RealAgent;
use super::scene::{BOUND, Check, Elapsed, LiveScene, RUN, expect, say};
use crate::{poll_until, wait_for};

/// The checks by the program of the agent, and by name.
pub(super) const CHECKS: [(&str, &str, Check); 13] = [
    ("codex", "codex: three iterations", three_iterations),
    (
        "codex",
        "codex: an interrupt in its text, then a message",
        interrupted,
    ),
    (
        "codex",
        "codex: an interrupt in its tool, with a child in its own session",
        interrupted_in_a_tool,
    ),
    (
        "codex",
        "codex: an interrupt in its text, with a command that continues",
        interrupted_beside,
    ),
    ("codex", "codex: a steer into its running tool", steered),
    ("codex", "codex: a steer into its text", steered_in_text),
    (
        "codex",
        "codex: kill -9 of rlm in its tool, then a resume",
        resumed,
    ),
    ("codex", "codex: two runs that resume one session", held),
    (
        "codex",
        "codex: a permission request, answered by a person and unattended",
        asked,
    ),
    (
        "codex",
        "codex: 429, 500 and a stream that is cut off",
        recovered,
    ),
    ("codex", "codex: 401: not logged in", not_logged_in),
    ("codex", "codex: a stream that falls silent", silent),
    ("codex", "codex: an MCP server that is a program", server),
];

const ALL: [&str; 3] = ["--once", "--permissions", "all"];
/// A tool that ignores SIGINT and SIGTERM, with one child in its own session and one in another. Codex ends the first one; the file shows that the
/// other one has left the session.
const STUBBORN: &str =
    "trap '' INT TERM; sleep 611 & setsid sh -c 'touch begun; exec sleep 611' & sleep 611; wait";

fn scene<'a>(rlm: &'a Path, agent: &'a Path) -> LiveScene<'a> {
    LiveScene::of(RealAgent::Codex, rlm, agent, "")
}

fn three_iterations(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let prompt = "Do the next step. [[sh echo line >> progress.txt]] [[text It is done.]]";
    let arguments = ["-n", "3", "--permissions", "all"];
    let ended = scene.run(prompt, &arguments).run(RUN).expect_code(0);
    let lines = fs::read_to_string(scene.file("progress.txt")).unwrap();
    assert_eq!(lines, "line\n".repeat(3), "{ended}");
    let mut sessions: Vec<String> = { scene.requests().into_iter() }
        .map(|request| request.session)
        .collect();
    sessions.dedup();
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    scene.expect_nothing_alive();
    "three lines, three sessions".into()
}

fn interrupted(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let (running, terminal) = scene.watched("Write slowly. [[slow 50 60]]", &ALL);
    terminal.sees("tok5", RUN);
    let pressed = Instant::now();
    terminal.send("/interrupt\r");
    terminal.sees("interrupted", RUN);
    let took = Elapsed::since(pressed);
    scene.until_first_request_is_dropped();
    say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert_eq!(requests[0].session, requests[1].session);
    let note = "<turn_aborted>";
    expect(&requests[1], &["Write slowly.", note, "Now briefly."]);
    let shown = terminal.scrolled();
    assert_eq!(shown.matches("agent runs (pid").count(), 1, "{shown}");
    format!(
        "the run waited after {took}; the next request has prompt and note, in the same process"
    )
}

fn interrupted_in_a_tool(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let prompt = format!("Work. [[sh {STUBBORN}]] [[text never]]");
    let (running, terminal) = scene.watched(&prompt, &ALL);
    scene.wait_for_file("begun");
    let count = scene.alive().len();
    let pressed = Instant::now();
    terminal.send("/interrupt\r");
    let gone = scene.gone("sleep", pressed);
    terminal.sees("interrupted", RUN);
    terminal.sees("commands that the interrupted turn left", RUN);
    let left = scene.alive().len();
    say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert_eq!(requests[0].session, requests[1].session);
    expect(&requests[1], &["Work.", "touch begun", "Now briefly."]);
    scene.expect_nothing_alive();
    let shown = terminal.scrolled();
    let line = shown.lines().find(|line| line.contains("ended commands"));
    format!(
        "the tool ended after {gone}; {left} of {count} processes continued; {:?}",
        line.unwrap_or_default().trim()
    )
}

fn interrupted_beside(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    // After this time Codex lets the command continue in parallel with the model.
    let call = serde_json::json!({"cmd": "trap '' INT TERM; touch begun; sleep 614", "yield_time_ms": 250});
    let prompt = format!("Work. [[tool exec_command {call}]] [[slow 50 60]]");
    let (running, terminal) = scene.watched(&prompt, &ALL);
    terminal.sees("tok5", RUN);
    assert_eq!(scene.named("sleep").len(), 1);
    let pressed = Instant::now();
    terminal.send("/interrupt\r");
    let gone = scene.gone("sleep", pressed);
    terminal.sees("commands that the interrupted turn left", RUN);
    terminal.sees("the session waits", RUN);
    say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(RUN).expect_code(0);
    scene.expect_nothing_alive();
    let shown = terminal.scrolled();
    let line = shown.lines().find(|line| line.contains("ended commands"));
    format!(
        "the command ended after {gone}: {:?}",
        line.unwrap_or_default().trim()
    )
}

fn steered(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let prompt = "Make it. [[sh touch begun; while ! test -e go; do sleep 0.05; done]] [[steered]]";
    let (running, terminal) = scene.watched(prompt, &ALL);
    scene.wait_for_file("begun");
    say(&terminal, "use tabs");
    terminal.sees("delivered", RUN);
    fs::write(scene.file("go"), "").unwrap();
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!((requests.len(), requests[1].turn), (2, 1), "{requests:#?}");
    expect(&requests[1], &["Make it.", "touch begun", "use tabs"]);
    let shown = terminal.scrolled();
    let note = "steered: Note from the person who runs the loop: use tabs";
    assert!(shown.contains(note), "{shown}");
    "in the same turn, after the tool's result".into()
}

fn steered_in_text(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let (running, terminal) = scene.watched("Write slowly. [[slow 50 60]]", &ALL);
    terminal.sees("tok9", RUN);
    let said = Instant::now();
    say(&terminal, "Stop that. [[text I turned.]]");
    scene.until_requests(2);
    let took = Elapsed::since(said);
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    scene.until_first_request_is_dropped();
    expect(&requests[1], &["Write slowly.", "Stop that."]);
    let shown = terminal.scrolled();
    assert!(shown.contains("I turned."), "{shown}");
    format!("its request came after {took}, and the stream was interrupted")
}

/// Leaves a run that was killed during its only turn, in a session that continues.
fn cut(scene: &LiveScene, tool: &str) -> Elapsed {
    let prompt = format!("Remember blue. [[sh touch begun; {tool}]] [[text never]]");
    let mut running = { scene.run(&prompt, &ALL).args(["--session", "continue"]) }.spawn();
    scene.wait_for_file("begun");
    // Codex reports a command when it has started.
    running.until("the report of the tool", RUN, |running| {
        running.stdout().contains("shell:").then_some(())
    });
    running.signal(Signal::KILL);
    let killed = Instant::now();
    running.wait(RUN).expect_signal(Signal::KILL);
    wait_for("the guard", BOUND * 10, || {
        scene.alive().is_empty().then_some(())
    });
    Elapsed::since(killed)
}

fn resumed(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let gone = cut(&scene, "trap '' INT TERM; setsid sleep 612 & sleep 612");
    scene.rlm(&["resume"]).run(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    expect(&requests[1], &["Remember blue.", "touch begun", "aborted"]);
    let told = { requests[1].items.iter() }
        .filter(|item| item.role == "user" && item.text.contains("Remember blue."));
    assert_eq!(told.count(), 1, "{:#?}", requests[1].items);
    assert_eq!(requests[0].session, requests[1].session);
    scene.expect_nothing_alive();
    format!(
        "all processes ended after {gone}; one session with the unfinished call; the prompt was sent once"
    )
}

fn held(rlm: &Path, agent: &Path) -> String {
    let again = "[[sh touch begun; sleep 613]] [[text never]]";
    let scene = LiveScene::of(RealAgent::Codex, rlm, agent, again);
    cut(&scene, "sleep 613");
    let copy = scene.copy();
    fs::remove_file(scene.file("begun")).unwrap();
    let first = scene.rlm(&["resume"]).spawn();
    scene.wait_for_file("begun");
    let at_work = scene.named("codex");
    let begun = Instant::now();
    let second = scene.rlm(&["resume"]).dir(&copy).run(RUN);
    let took = Elapsed::since(begun);
    let shown = format!("{}{}", second.stdout, second.stderr);
    let says = "already has an active writer; wait for that process";
    let line = shown.lines().find(|line| line.contains(says));
    let line = line.unwrap_or_else(|| panic!("{second}"));
    assert_eq!((at_work.len(), scene.named("codex")), (1, at_work));
    let sent = Instant::now();
    scene.rlm(&["stop"]).run(RUN).expect_code(0);
    first.wait(RUN);
    let stopped = Elapsed::since(sent);
    scene.expect_nothing_alive();
    format!(
        "the second ended after {took} with {:?}: {line:?}; `rlm stop` of the first took {stopped}",
        second.code()
    )
}

fn asked(rlm: &Path, agent: &Path) -> String {
    let prompt = "Do it. [[sh touch permitted]] [[text ok]]";
    let ask = ["--once", "--permissions", "ask"];
    let one = scene(rlm, agent);
    let (running, terminal) = one.watched(prompt, &ask);
    terminal.sees("allow?", RUN);
    // rlm ignores keys that come before a person can read the prompt.
    assert!(poll_until(Duration::from_millis(1500), || None::<()>).is_none());
    terminal.send("y");
    running.wait(RUN).expect_code(0);
    assert!(one.file("permitted").exists());

    let none = scene(rlm, agent);
    let ended = none.run(prompt, &ask).run(RUN).expect_code(0);
    assert!(!none.file("permitted").exists());
    assert!(ended.stdout.contains("denied:"), "{ended}");
    // Codex's answers have no field for a reason, so the driver sends the reason first, as a message.
    expect(
        &none.requests()[1],
        &[
            "touch permitted",
            "rejected by user",
            "no person is attached",
        ],
    );
    "allowed by a key; denied with a message to the model if unattended".into()
}

fn recovered(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let prompt = "Try. [[status 429 1 2]] [[status 500 - 1]] [[drop 5 1]] [[text It went well.]]";
    let ended = scene.run(prompt, &["--once"]).run(RUN).expect_code(0);
    for words in ["(429,", "tries again", "It went well."] {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    let requests = scene.requests();
    assert_eq!(requests.len(), 5, "{requests:#?}");
    let told = ended.stdout.matches("tries again").count();
    format!("four failures, {told} of them reported by codex, then success")
}

fn not_logged_in(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let begun = Instant::now();
    let prompt = "Try. [[status 401 - 1000]] [[text never]]";
    let ended = scene.run(prompt, &["--once"]).run(RUN);
    let took = Elapsed::since(begun);
    assert!(ended.code() != Some(0), "{ended}");
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    assert!(shown.contains("codex login"), "{ended}");
    scene.expect_nothing_alive();
    let count = scene.requests().len();
    format!(
        "exit code {:?} after {took} and {count} requests, with the hint",
        ended.code()
    )
}

fn silent(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let limits = ["--once", "--max-failures", "1", "--idle-timeout", "4"];
    let ended = scene
        .run("Write. [[stall 9 600]]", &limits)
        .run(RUN)
        .expect_code(1);
    let says = "no output for 4s";
    assert!(ended.stdout.contains(says), "{ended}");
    let logs = scene.rlm(&["logs"]).run(RUN).expect_code(0).stdout;
    assert!(logs.contains("tok8"), "{logs}");
    scene.expect_nothing_alive();
    format!("ended with {says:?}; the partial text is in the transcript")
}

fn server(rlm: &Path, agent: &Path) -> String {
    let scene = scene(rlm, agent);
    let server = rlm.with_file_name("fake-model").display().to_string();
    scene.settings(&format!("[mcp-servers.tracker]\ncommand = {server:?}\nargs = [\"--tools\"]\nenv = {{ FAKE_TOOLS_WORD = \"${{TRACKER_WORD}}\" }}\n"));
    let word = "s3cret-word";
    let prompt = "Ask it. [[tool mcp__tracker__recall {}]] [[sh touch begun; while ! test -e go; do sleep 0.05; done]] [[text It is done.]]";
    let running = scene.run(prompt, &ALL).env("TRACKER_WORD", word).spawn();
    scene.wait_for_file("begun");
    let count = scene.expect_hidden(word);
    fs::write(scene.file("go"), "").unwrap();
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    expect(&requests[1], &["Ask it.", &format!("the word is {word}")]);
    scene.expect_nothing_alive();
    format!("called, its secret arrived; in no command line of {count} processes")
}
