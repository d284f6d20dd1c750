//! Checks of Claude's sessions: used twice, lost, locked; and of messages that interrupt a turn.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use fs_err as fs;
use rustix::process::Signal;

use super::scene::{BOUND, Check, Elapsed, LiveScene, RUN, expect};
use crate::{Ended, wait_for};

/// The checks by name.
pub(super) const CHECKS: [(&str, Check); 5] = [
    ("a steer --now while claude's text streams", at_once),
    ("a steer --now while claude's tool runs", at_once_in_a_tool),
    ("a session that no longer exists", lost),
    ("a session id that was used before", used),
    ("two runs that resume one session", held),
];

fn at_once(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let (running, terminal) = scene.watched("Write slowly. [[slow 50 60]]", &["--once"]);
    terminal.sees("tok9", RUN);
    let said = Instant::now();
    let steer = ["steer", "--now", "Stop that. [[text I turned.]]"];
    let told = scene.rlm(&steer).run(RUN).expect_code(0);
    scene.until_requests(2);
    let took = Elapsed::since(said);
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    scene.until_first_request_is_dropped();
    assert_eq!(requests[0].session, requests[1].session);
    let words = ["Write slowly.", "tok0 tok1", "Stop that."];
    expect(&requests[1], &words);
    let shown = terminal.scrolled();
    assert!(shown.contains("I turned."), "{shown}");
    assert_eq!(shown.matches("agent runs (pid").count(), 1, "{shown}");
    let steps: Vec<&str> = told.stdout.lines().collect();
    format!(
        "its request came {took} after the start of the command, which printed {steps:?}; it has prompt and partial text"
    )
}

fn at_once_in_a_tool(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Work. [[sh touch begun; sleep 609]] [[text never]]";
    let arguments = ["--once", "--permissions", "all"];
    let running = scene.run(prompt, &arguments).spawn();
    scene.wait_for_file("begun");
    // A steer sent earlier must not get lost either.
    scene
        .rlm(&["steer", "Use tabs.", "--wait", "0"])
        .run(RUN)
        .expect_code(0);
    let said = Instant::now();
    let steer = ["steer", "--now", "Stop that. [[text I turned.]]"];
    scene.rlm(&steer).run(RUN).expect_code(0);
    scene.until_requests(2);
    let took = Elapsed::since(said);
    let gone = scene.gone("sleep", said);
    let ended = running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests[0].session, requests[1].session);
    let last = &requests[requests.len() - 1];
    expect(last, &["Work.", "touch begun", "Use tabs.", "Stop that."]);
    assert!(ended.stdout.contains("I turned."), "{ended}");
    format!(
        "its request came after {took}, the tool was gone after {gone}; the earlier message is in it too"
    )
}

/// Starts a run with `--session continue`, and kills it during its only turn.
fn cut(scene: &LiveScene, tool: &str) {
    let prompt = format!("Remember blue. [[sh touch begun; {tool}]] [[text It is done.]]");
    let arguments = ["--once", "--permissions", "all", "--session", "continue"];
    let running = scene.run(&prompt, &arguments).spawn();
    scene.wait_for_file("begun");
    running.signal(Signal::KILL);
    running.wait(RUN).expect_signal(Signal::KILL);
    wait_for("the guard", BOUND * 10, || {
        scene.alive().is_empty().then_some(())
    });
}

fn lost(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    cut(&scene, "test -e lost || sleep 604");
    fs::remove_dir_all(scene.sandbox.home().join(".claude/projects")).unwrap();
    fs::write(scene.file("lost"), "").unwrap();
    let ended = scene.rlm(&["resume"]).run(RUN).expect_code(0);
    let says = "the session no longer exists; a fresh session gets the prompt";
    assert!(ended.stdout.contains(says), "{ended}");
    let requests = scene.requests();
    let last = &requests[requests.len() - 1];
    expect(last, &["Remember blue.", "touch begun"]);
    assert_ne!(requests[0].session, last.session);
    "rlm reports it, and a fresh session got the prompt".into()
}

fn used(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    // The wrapper replaces every chosen id by this one.
    let wrapper = scene.file("wrapper");
    let id = "11111111-2222-4333-8444-555555555555";
    let script = format!(
        "#!/bin/bash\nwords=()\nfor word; do case $word in --session-id=*) word=--session-id={id};; esac; words+=(\"$word\"); done\nexec claude \"${{words[@]}}\"\n"
    );
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = wrapper.display().to_string();
    let run = |prompt: &str| -> Ended {
        let arguments = ["--once", "--max-failures", "1", "--agent-bin", &program];
        scene.run(prompt, &arguments).run(RUN)
    };
    run("One. [[text First.]]").expect_code(0);
    let begun = Instant::now();
    let ended = run("Two. [[text Second.]]").expect_code(1);
    let took = Elapsed::since(begun);
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    let line = shown.lines().find(|line| line.contains("already in use"));
    let line = line.unwrap_or_else(|| panic!("{ended}"));
    assert_eq!(scene.requests().len(), 1);
    format!("after {took} {line:?}")
}

fn held(rlm: &Path, agent: &Path) -> String {
    let again = "[[sh touch begun; sleep 606]] [[text never]]";
    let scene = LiveScene::answering(rlm, agent, again);
    cut(&scene, "sleep 605");
    let copy = scene.copy();
    fs::remove_file(scene.file("begun")).unwrap();
    let first = scene.rlm(&["resume"]).spawn();
    scene.wait_for_file("begun");
    let at_work = scene.named("claude");
    let begun = Instant::now();
    let second = scene.rlm(&["resume"]).dir(&copy).run(RUN);
    let took = Elapsed::since(begun);
    let shown = format!("{}{}", second.stdout, second.stderr);
    let says = format!("is in use by process {}", first.pid());
    let line = shown.lines().find(|line| line.contains(&says));
    let line = line.unwrap_or_else(|| panic!("{second}"));
    assert_eq!((at_work.len(), scene.named("claude")), (1, at_work));
    first.signal(Signal::TERM);
    first.wait(RUN).expect_signal(Signal::TERM);
    scene.expect_nothing_alive();
    format!(
        "the second ended after {took} with {:?}: {line:?}",
        second.code()
    )
}
