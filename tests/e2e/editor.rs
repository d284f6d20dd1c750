//! The prompt in an editor, opened from the menu.

use std::os::unix::fs::PermissionsExt;

use rlm_tests::wait_for;
use rustix::process::{Pid, Signal, kill_process};

use crate::LONG;
use crate::containment::sleeping;
use crate::menu::{ESC, MENU, PRESS, open};
use crate::scene::{PROMPT, Scene};

/// Returns an editor that appends a line to its file, and creates a marker file.
fn editor(scene: &Scene, script: &str) -> String {
    let path = scene.sandbox.path().join("editor");
    fs_err::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn s11b_edited_prompt_applies_to_the_next_iteration() {
    for from_file in [false, true] {
        let scene = Scene::new("@1 say ready\n@1 await go\nrun true\nturn");
        fs_err::write(scene.file("P.md"), PROMPT).unwrap();
        let editor = editor(&scene, "echo MORE WORK >> \"$1\"; touch edited");
        let prompt = if from_file {
            ["-P", "P.md"]
        } else {
            ["-p", PROMPT]
        };
        let arguments = [&["--sleep", "0", "-n", "2"], &prompt[..]].concat();
        let run = scene.claude_bare(&arguments).env("EDITOR", &editor);
        let (running, terminal) = run.spawn_on_terminal();
        terminal.sees("ready", LONG);
        open(&terminal);
        terminal.send("e");
        scene.wait_for_file("edited");
        terminal.sees_no(MENU, LONG);
        fs_err::write(scene.file("go"), "").unwrap();
        running.wait(LONG).expect_code(0);
        let told = scene.received_messages();
        assert!(
            !told[0].contains("MORE WORK") && told[1].contains("MORE WORK"),
            "{told:?}"
        );
    }
}

#[test]
fn failed_editor_returns_to_the_menu() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let run = scene
        .claude(&["--once"])
        .env("EDITOR", "/no/such/editor")
        .env("VISUAL", "");
    let (running, terminal) = run.spawn_on_terminal();
    terminal.sees("ready", LONG);
    let before = format!("{:?}", terminal.settings());
    open(&terminal);
    terminal.send("e");
    terminal.wait_screen("the reason, in the menu", LONG, |screen| {
        screen.contains(MENU) && (screen.contains("editor") || screen.contains("no/such"))
    });
    terminal.send(ESC);
    terminal.sees_no(MENU, LONG);
    wait_for("the terminal's own settings", LONG, || {
        (format!("{:?}", terminal.settings()) == before).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
}

#[test]
fn x132a_ctrl_c_inside_an_editor_is_no_press() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let editor = editor(
        &scene,
        "trap 'touch pressed' INT; touch open; while ! test -e close; do sleep 0.05; done",
    );
    let run = scene.claude(&["--once"]).env("VISUAL", &editor);
    let (running, terminal) = run.spawn_on_terminal();
    terminal.sees("ready", LONG);
    open(&terminal);
    terminal.send("e");
    scene.wait_for_file("open");
    for _ in 0..3 {
        terminal.send(PRESS);
        scene.wait_for_file("pressed");
        fs_err::remove_file(scene.file("pressed")).unwrap();
    }
    fs_err::write(scene.file("close"), "").unwrap();
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert!(!scene.controls().contains(&"interrupt".into()));
}

/// `rlm` adopts the server at the end of the editor. The server then looks like an orphan of the agent.
#[test]
fn w3_server_started_by_an_editor_outlives_a_killed_guard() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let editor = editor(
        &scene,
        "setsid sh -c 'echo $$ >new; mv new server; exec sleep 6708' </dev/null >/dev/null 2>&1 &
until test -e server; do sleep 0.02; done; touch edited",
    );
    let run = scene.claude(&["--once"]).env("VISUAL", &editor);
    let (running, terminal) = run.spawn_on_terminal();
    terminal.sees("ready", LONG);
    open(&terminal);
    terminal.send("e");
    scene.wait_for_file("edited");
    terminal.sees_no(MENU, LONG);
    let guard = Pid::from_raw(scene.agent.starts()[0].ppid).unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    let ended = running.wait(LONG);
    let alive = sleeping(&scene.file("server"), "6708");
    assert_eq!(alive.len(), 1, "{ended}\n{}", terminal.scrolled());
    assert_ne!(ended.code(), Some(8), "{}", terminal.scrolled());
}
