//! Checks of interrupts, signals and deaths: the survivors of the agent's process tree, and the saved state.

use std::path::Path;
use std::time::Instant;

use fs_err as fs;
use rustix::process::{Pid, Signal, kill_process};

use super::scene::{BOUND, Check, Elapsed, LiveScene, RUN, expect, say};
use crate::{Process, Running, wait_for};

/// The checks by name.
pub(super) const CHECKS: [(&str, Check); 9] = [
    (
        "an interrupt while claude's tool runs, then a message",
        interrupted_in_a_tool,
    ),
    ("SIGTERM to rlm while claude's text streams", ended_in_text),
    ("SIGTERM to rlm while claude's tool runs", ended_in_a_tool),
    ("kill -9 of claude alone while its tool runs", agent_killed),
    (
        "kill -9 of the guard while claude's tool runs",
        guard_killed,
    ),
    ("kill -9 of rlm while claude's text streams", killed_in_text),
    ("a leftover of claude's tool", leftover),
    ("^Z and fg while claude's text streams", suspended),
    ("signals that rlm's parent ignores", ignored),
];

/// A tool that ignores SIGINT, with a child in the same session.
const TOOL: &str = "trap '' INT; touch begun; sleep 601 & sleep 601; wait";
/// A tool that only SIGKILL ends.
const STUBBORN: &str = "trap '' INT TERM; touch begun; sleep 601 & sleep 601; wait";

fn interrupted_in_a_tool(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = format!("Work. [[sh {TOOL}]] [[text never]]");
    let (running, terminal) = scene.watched(&prompt, &["--once", "--permissions", "all"]);
    scene.wait_for_file("begun");
    let count = scene.alive().len();
    let pressed = Instant::now();
    terminal.send("/interrupt\r");
    let gone = scene.gone("sleep", pressed);
    terminal.sees("interrupted", RUN);
    let waits = Elapsed::since(pressed);
    let left = scene.alive().len();
    say(&terminal, "Now briefly. [[text I am brief.]]");
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert_eq!(requests[0].session, requests[1].session);
    let marker = "[Request interrupted by user for tool use]";
    expect(
        &requests[1],
        &["Work.", "touch begun", marker, "Now briefly."],
    );
    let shown = terminal.scrolled();
    assert_eq!(shown.matches("agent runs (pid").count(), 1, "{shown}");
    format!(
        "the tool ended after {gone}, the run waited after {waits}; {left} of {count} processes continued"
    )
}

fn ended_in_text(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let (running, terminal) = scene.watched("Write. [[slow 50 60]]", &["--once"]);
    terminal.sees("tok9", RUN);
    let took = terminate(&scene, running);
    let logs = scene.rlm(&["logs"]).run(RUN).expect_code(0).stdout;
    assert!(logs.contains("tok5"), "{logs}");
    format!("all processes ended after {took}, the partial text is in the transcript")
}

fn ended_in_a_tool(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = format!("Work. [[sh {STUBBORN}]] [[text never]]");
    let running = scene
        .run(&prompt, &["--once", "--permissions", "all"])
        .spawn();
    scene.wait_for_file("begun");
    let count = scene.alive().len();
    let took = terminate(&scene, running);
    let logs = scene.rlm(&["logs"]).run(RUN).expect_code(0).stdout;
    assert!(logs.contains("touch begun"), "{logs}");
    format!("all {count} processes ended after {took}")
}

/// Ends `rlm` by SIGTERM, and expects that no process outlives it.
#[track_caller]
fn terminate(scene: &LiveScene, running: Running) -> Elapsed {
    let sent = Instant::now();
    running.signal(Signal::TERM);
    running.wait(RUN).expect_signal(Signal::TERM);
    let took = Elapsed::since(sent);
    scene.expect_nothing_alive();
    took
}

fn agent_killed(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let tool = format!("if ! test -e begun; then {STUBBORN}; fi; touch again");
    let prompt = format!("Work. [[sh {tool}]] [[text It is done.]]");
    let arguments = ["--permissions", "all", "--session", "continue"];
    let until = ["--until", "test -e again"];
    let mut running = scene.run(&prompt, &arguments).args(until).spawn();
    scene.wait_for_file("begun");
    let shown = running.stdout();
    let pid = shown
        .split("agent runs (pid ")
        .nth(1)
        .expect("the output has a pid");
    let pid = pid.split(')').next().and_then(|pid| pid.parse().ok());
    let pid = pid.and_then(Pid::from_raw).expect("the pid is a number");
    let killed = Instant::now();
    kill_process(pid, Signal::KILL).unwrap();
    let gone = scene.gone("sleep", killed);
    running.until("a second attempt", RUN, |running| {
        (running.stdout().matches("agent runs (pid").count() > 1).then_some(())
    });
    let ended = running.wait(RUN);
    let requests = scene.requests();
    let last = &requests[requests.len() - 1];
    expect(last, &["Work.", "touch begun", "outcome is unknown"]);
    assert_eq!(requests[0].session, last.session);
    let ended = ended.expect_code(0);
    assert!(ended.stdout.contains("killed by signal 9"), "{ended}");
    scene.expect_nothing_alive();
    format!("its tool ended after {gone}; the next attempt was informed of the unfinished call")
}

fn guard_killed(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = format!("Work. [[sh {STUBBORN}]] [[text never]]");
    let arguments = ["--once", "--permissions", "all", "--max-failures", "1"];
    let running = scene.run(&prompt, &arguments).spawn();
    scene.wait_for_file("begun");
    let guard = scene.named("agent-guard");
    let guard = Pid::from_raw(guard[0].pid).expect("the pid is a number");
    let killed = Instant::now();
    kill_process(guard, Signal::KILL).unwrap();
    let gone = scene.gone("sleep", killed);
    let ended = running.wait(RUN);
    assert!(ended.code() != Some(0), "{ended}");
    scene.expect_nothing_alive();
    let line = ended.stdout.lines().find(|line| line.contains("failed:"));
    format!(
        "its process tree ended after {gone}, {:?}: {line:?}",
        ended.code()
    )
}

fn killed_in_text(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::answering(rlm, agent, "[[text It goes on.]]");
    let arguments = ["--once", "--session", "continue"];
    let (running, terminal) = scene.watched("Write. [[slow 50 60]]", &arguments);
    terminal.sees("tok40", RUN);
    running.signal(Signal::KILL);
    let killed = Instant::now();
    running.wait(RUN).expect_signal(Signal::KILL);
    wait_for("the guard", BOUND * 10, || {
        scene.alive().is_empty().then_some(())
    });
    let gone = Elapsed::since(killed);
    let logs = scene.rlm(&["logs"]).run(RUN).expect_code(0).stdout;
    // rlm writes the transcript every second, which is the time of 20 tokens.
    assert!(logs.contains("tok15"), "{logs}");
    let holds = |number: &i32| logs.contains(&format!("tok{number} "));
    let last = (0..60).rev().find(holds).expect("one of them");
    let ended = scene.rlm(&["resume"]).run(RUN).expect_code(0);
    assert!(ended.stdout.contains("It goes on."), "{ended}");
    let requests = scene.requests();
    let resumed = &requests[requests.len() - 1];
    expect(resumed, &["Write."]);
    assert_eq!(requests[0].session, resumed.session);
    format!(
        "all processes ended after {gone}; of tok0 to tok40 the transcript has those up to tok{last}; the session continues"
    )
}

fn leftover(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Work. [[sh setsid sleep 602 >/dev/null 2>&1 & touch begun]] [[text It is done.]]";
    let ended = scene
        .run(prompt, &["--once", "--permissions", "all"])
        .run(RUN)
        .expect_code(0);
    scene.expect_nothing_alive();
    let line = ended.stdout.lines().find(|line| line.contains("sleep ("));
    let named = { ended.stdout.lines() }.find(|line| line.starts_with("ended 1 process"));
    format!("{:?}", named.or(line).unwrap_or_else(|| panic!("{ended}")))
}

fn suspended(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let (shell, terminal) = scene.shell().spawn_on_terminal();
    terminal.sees("$ ", RUN);
    let prompt = "Write. [[slow 50 4]]";
    let arguments = "run --agent claude --sleep 0 --once";
    terminal.send(format!("{} {arguments} -p '{prompt}'\r", rlm.display()));
    terminal.sees("tok9", RUN);
    let pressed = Instant::now();
    terminal.send(b"\x1a");
    let running = || {
        let mut alive = scene.alive();
        // The guard must stay active to react to any event.
        let awake = |process: &Process| process.pid != shell.pid() && process.name != "agent-guard";
        alive.retain(|process| process.state != 'T' && awake(process));
        alive
    };
    wait_for("the suspension of all processes", BOUND * 10, || {
        running().is_empty().then_some(())
    });
    let stopped = Elapsed::since(pressed);
    wait_for("the shell in the foreground", RUN, || {
        (terminal.foreground() == Some(shell.pid())).then_some(())
    });
    // Longer than the rest of the text would have taken.
    assert!(crate::poll_until(std::time::Duration::from_secs(6), || None::<()>).is_none());
    terminal.send("fg\r");
    terminal.sees("planned", RUN);
    terminal.send("exit\r");
    shell.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 1, "no retry: {requests:#?}");
    let logs = scene.rlm(&["logs"]).run(RUN).expect_code(0).stdout;
    assert!(logs.contains("tok79"), "{logs}");
    format!("the tree was suspended after {stopped}; 6 s later it continued without a retry")
}

fn ignored(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let tool = "grep SigIgn /proc/self/status > tool; grep SigIgn /proc/$PPID/status > agent";
    let prompt = format!("Work. [[sh {tool}; touch begun; sleep 603]] [[text never]]");
    let script = r#"trap "" INT HUP QUIT TERM PIPE; exec "$0" "$@""#;
    let options = ["--agent", "claude", "--once", "--permissions", "all"];
    let running = scene
        .program(Path::new("/bin/sh"))
        .args(["-c", script])
        .args([rlm])
        .args(["run", "-p", &prompt])
        .args(options)
        .spawn();
    scene.wait_for_file("begun");
    let ignored = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let mask = text.split("SigIgn:").nth(1).expect("a line of it");
        let mask = mask.split_whitespace().next().expect("a mask");
        u64::from_str_radix(mask, 16).expect("a number")
    };
    let agents = ignored(scene.file("agent"));
    let tools = ignored(scene.file("tool"));
    let host = ignored(format!("/proc/{}/status", running.pid()).into());
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT, Signal::TERM] {
        let bit = 1 << (signal.as_raw() - 1);
        let ignored = (agents & bit, tools & bit);
        assert_eq!(ignored, (0, 0), "{signal:?} {agents:x} {tools:x}");
    }
    // The hangup is ignored, so another terminal must stop the run.
    let sent = Instant::now();
    scene.rlm(&["stop"]).run(RUN).expect_code(0);
    running.wait(RUN);
    let took = Elapsed::since(sent);
    scene.expect_nothing_alive();
    format!(
        "rlm ignores {host:x}, claude and its tool {agents:x} and {tools:x} (1000 is SIGPIPE, which claude ignores itself); `rlm stop` took {took}"
    )
}
