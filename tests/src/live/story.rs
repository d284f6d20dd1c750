//! An evening with a loop around the real CLI: what the screens showed is kept in `story.txt`, beside this file.

use std::path::Path;

use fs_err as fs;
use rustix::process::Signal;

use super::Check;
use super::checks::RUN;
use super::scene::{Scene, expect, say};
use crate::story::Story;
use crate::wait_for;

/// By name.
pub(super) const CHECKS: [(&str, Check); 1] = [(
    "an evening: run, steer, pause, kill -9, resume, stop, status",
    evening,
)];

const KEPT: &str = include_str!("story.txt");
/// The first attempt waits for the person, the others for ever.
const TOOL: &str =
    "touch begun$RLM_ATTEMPT; while ! test -e go$RLM_ATTEMPT; do sleep 0.05; done; echo it is tabs";

fn evening(rlm: &Path, agent: &Path) -> String {
    let (scene, mut story) = (Scene::new(rlm, agent), Story::default());
    let mut types = |command: &[&str]| {
        let ended = scene.rlm(command).run(RUN).expect_code(0);
        story.tells(command, &(ended.stdout + &ended.stderr));
    };
    types(&["init"]);
    fs::write(
        scene.file("PROMPT.md"),
        format!("Mend the parser. [[sh {TOOL}]] [[text It is done.]]\n"),
    )
    .unwrap();
    let run = [
        "run",
        "--until",
        "test -e done",
        "--sleep",
        "0",
        "--agent",
        "claude",
        "--permissions",
        "all",
    ];
    let (running, terminal) = scene.rlm(&run).spawn_on_terminal();
    scene.wait_for_file("begun1");
    say(&terminal, "use tabs");
    terminal.sees("delivered", RUN);
    types(&["pause", "--reason", "a look first", "--wait", "0"]);
    terminal.sees("will pause", RUN);
    fs::write(scene.file("go1"), "").unwrap();
    terminal.sees("paused", RUN);
    let paused = || {
        let status = scene.rlm(&["ps"]).run(RUN).stdout;
        status.contains("paused").then_some(())
    };
    wait_for("the pause", RUN, paused);
    types(&["ps"]);
    types(&["resume"]);
    scene.wait_for_file("begun2");
    running.signal(Signal::KILL);
    running.wait(RUN).expect_signal(Signal::KILL);
    let gone = || scene.alive().is_empty().then_some(());
    wait_for("the end of all that ran", RUN, gone);
    let first = terminal.scrolled();
    drop(terminal);
    types(&["status"]);
    let (running, terminal) = scene.rlm(&["resume"]).spawn_on_terminal();
    scene.wait_for_file("begun3");
    types(&["stop"]);
    running.wait(RUN).expect_code(7);
    let second = terminal.scrolled();
    types(&["status"]);
    story.tells(&run, &first);
    story.tells(&["resume"], &second);
    scene.expect_nothing_alive();
    let requests = scene.requests();
    let told = { requests.iter() }.filter(|request| request.last_user.contains("use tabs"));
    assert!(told.count() >= 1, "{requests:#?}");
    expect(&requests[requests.len() - 1], &["was cut because"]);
    let home = scene.sandbox.path().to_string_lossy();
    let url = scene.model.url();
    let told = story.stable(&[(&*home, "/HOME"), (&url, "MODEL")]);
    if let Some(place) = std::env::var_os("RLM_TEST_KEEP_STORY") {
        fs::write(Path::new(&place), &told).unwrap();
    }
    assert_eq!(told, KEPT, "the story is another one than in story.txt");
    format!("{} lines as they were kept", told.lines().count())
}
