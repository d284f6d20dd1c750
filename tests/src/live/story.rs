//! A whole evening with a loop around the real CLI. `story.txt`, beside this file, has the recorded screens.

use std::path::Path;

use fs_err as fs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::scene::{Check, LiveScene, RUN, expect, say};
use crate::story::{Story, fits};
use crate::wait_for;

/// The checks by name.
pub(super) const CHECKS: [(&str, Check); 1] = [(
    "an evening: run, attach, steer, pause, detach, kill -9, resume, stop, status",
    evening,
)];

const KEPT: &str = include_str!("story.txt");
/// The first iteration waits for the person, the second one hangs.
const TOOL: &str =
    "at=$RLM_ITERATION-$RLM_ATTEMPT; mkfifo ../go-$at; touch ../begun-$at; cat ../go-$at";

fn evening(rlm: &Path, agent: &Path) -> String {
    let (scene, mut story) = (LiveScene::new(rlm, agent), Story::default());
    types(&scene, &mut story, &["init"]);
    let prompt = format!("Fix the parser. [[sh {TOOL}]] [[text It is done.]]\n");
    fs::write(scene.file("PROMPT.md"), prompt).unwrap();
    let run = [
        "run",
        "--detach",
        "--until",
        "test -e done",
        "--sleep",
        "0",
        "--agent",
        "claude",
        "--permissions",
        "all",
    ];
    types(&scene, &mut story, &run);
    scene.wait_for_file("../begun-1-1");
    let (watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("Bash: at=", RUN);
    say(&terminal, "use tabs");
    terminal.sees("delivered", RUN);
    let pause = ["pause", "--reason", "a look first", "--wait", "0"];
    types(&scene, &mut story, &pause);
    terminal.sees("will pause", RUN);
    fs::write(scene.file("../go-1-1"), "it is tabs\n").unwrap();
    terminal.sees("paused", RUN);
    let live = || scene.rlm(&["ps", "--json"]).run(RUN).stdout;
    let paused = || live().contains("\"paused\"").then_some(());
    wait_for("the pause", RUN, paused);
    terminal.send(b"\x03");
    terminal.sees("detach: the run continues", RUN);
    terminal.send("d");
    watching.wait(RUN).expect_code(0);
    story.add(&["attach"], &terminal.scrolled());
    drop(terminal);
    types(&scene, &mut story, &["ps"]);
    types(&scene, &mut story, &["resume"]);
    scene.wait_for_file("../begun-2-1");
    let (watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("── iteration 2 ──", RUN);
    let of = |line: String| serde_json::from_str::<Value>(&line).ok()?["pid"].as_i64();
    let pid = of(live()).expect("a live run has a pid");
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("the pid is a number"), Signal::KILL).unwrap();
    let left = watching.wait(RUN);
    assert!(left.code() != Some(0), "{left}");
    let gone = || scene.alive().is_empty().then_some(());
    wait_for("the end of all processes", RUN, gone);
    story.add(&["attach"], &terminal.scrolled());
    drop(terminal);
    types(&scene, &mut story, &["status"]);
    // Wide enough for a line with the names of all processes.
    let resume = scene.rlm(&["resume"]).size(50, 240);
    let (running, terminal) = resume.spawn_on_terminal();
    scene.wait_for_file("../begun-2-2");
    types(&scene, &mut story, &["stop"]);
    running.wait(RUN).expect_code(7);
    story.add(&["resume"], &terminal.scrolled());
    scene.expect_nothing_alive();
    types(&scene, &mut story, &["status"]);
    let requests = scene.requests();
    expect(&requests[1], &["it is tabs", "use tabs"]);
    expect(&requests[requests.len() - 1], &["did not finish because"]);
    let home = scene.sandbox.path().to_string_lossy();
    let told = story.stable(&[(&*home, "/HOME")]);
    if let Err(why) = fits(KEPT, &told) {
        panic!("differs from story.txt: {why}\n{told}");
    }
    format!("{} lines match the recording", told.lines().count())
}

#[track_caller]
fn types(scene: &LiveScene<'_>, story: &mut Story, command: &[&str]) {
    let ended = scene.rlm(command).run(RUN).expect_code(0);
    story.add(command, &(ended.stdout + &ended.stderr));
}
