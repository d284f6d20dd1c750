//! Ctrl-C works on a terminal where something turned it off: an agent that changes the modes of the terminal, or a parent that ignores the signal.

use rlm_tests::{Rlm, Terminal, wait_for};
use rustix::process::Signal;
use rustix::termios::LocalModes;

use crate::menu::{MENU, PRESS, open};
use crate::presses::pause;
use crate::scene::{PROMPT, Scene};
use crate::{LONG, RLM};

/// The shell code that finds the terminal of the loop: the parent is the guard, and the guard's parent is the loop.
const LOOP: &str = "loop=$(cut -d' ' -f4 /proc/$PPID/stat); ";

/// Starts a run whose agent changes the terminal `/proc/$loop/fd/0` by `does`, then reports it and continues.
fn run(scene: &Scene, arguments: &[&str], does: &str) -> (rlm_tests::Running, Terminal) {
    let agent = format!("{LOOP} {does}; sleep 600");
    let run = [
        &["run", "-p", PROMPT, "--once"],
        arguments,
        &["--", "sh", "-c", &agent],
    ];
    scene.rlm(&run.concat()).spawn_on_terminal()
}

fn is_armed(terminal: &Terminal) -> bool {
    let settings = terminal.settings();
    settings.local_modes.contains(LocalModes::ISIG)
}

fn leave(scene: &Scene, running: rlm_tests::Running, terminal: &Terminal, before: &str) {
    terminal.send("x");
    running.wait(LONG).expect_code(7);
    assert_eq!(format!("{:?}", terminal.settings()), before);
    scene.wait_until_nothing_is_alive();
}

/// The agent changes the terminal once. A press a moment later opens the menu; so does a press before `rlm` noticed the change.
fn w4_disarmed_once(stty: &str, presses_at_once: bool) {
    let scene = Scene::new("");
    let does = format!(
        "while ! test -e go; do sleep 0.02; done; stty -F /proc/$loop/fd/0 {stty}; touch disarmed"
    );
    let (running, terminal) = run(&scene, &[], &does);
    terminal.sees("agent runs", LONG);
    let before = format!("{:?}", terminal.settings());
    fs_err::write(scene.file("go"), "").unwrap();
    scene.wait_for_file("disarmed");
    if presses_at_once {
        terminal.send(PRESS);
    } else {
        terminal.sees("turned Ctrl-C off", LONG);
        assert!(is_armed(&terminal));
        terminal.send(PRESS);
    }
    terminal.sees(MENU, LONG);
    leave(&scene, running, &terminal, &before);
}

#[test]
fn w4a_ctrl_c_works_after_an_agent_disabled_it() {
    w4_disarmed_once("-isig", false);
}

#[test]
fn w4b_press_while_isig_is_off_counts() {
    w4_disarmed_once("-isig", true);
}

#[test]
fn w4c_changed_interrupt_key_and_line_mode_are_restored() {
    w4_disarmed_once("intr undef", false);
    w4_disarmed_once("-isig -icanon min 255", false);
}

#[test]
fn w4d_agent_that_keeps_disabling_ctrl_c_is_stopped() {
    let scene = Scene::new("");
    let does = "while :; do stty -F /proc/$loop/fd/0 -isig; done";
    let (running, terminal) = run(&scene, &[], does);
    terminal.sees("turned Ctrl-C off", LONG);
    open(&terminal);
    pause();
    terminal.send("x");
    running.wait(LONG).expect_code(7);
    assert_eq!(terminal.text().matches("turned Ctrl-C off").count(), 1);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn w4e_ctrl_c_is_restored_while_the_menu_is_open() {
    let scene = Scene::new("");
    let does =
        "while ! test -e go; do sleep 0.02; done; stty -F /proc/$loop/fd/0 -isig; touch disarmed";
    let (running, terminal) = run(&scene, &[], does);
    terminal.sees("agent runs", LONG);
    open(&terminal);
    fs_err::write(scene.file("go"), "").unwrap();
    scene.wait_for_file("disarmed");
    wait_for("Ctrl-C to be on again", LONG, || {
        is_armed(&terminal).then_some(())
    });
    terminal.send(PRESS);
    running.wait(LONG);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn w4f_run_without_prompts_keeps_ctrl_c() {
    let scene = Scene::new("");
    let does = "stty -F /proc/$loop/fd/0 -isig";
    let (running, terminal) = run(&scene, &["--no-input"], does);
    terminal.sees("turned Ctrl-C off", LONG);
    wait_for("Ctrl-C to be on again", LONG, || {
        is_armed(&terminal).then_some(())
    });
    terminal.send(PRESS);
    running.wait(LONG).expect_signal(Signal::INT);
    scene.wait_until_nothing_is_alive();
}

/// A shell without job control starts background commands with the signals of the terminal's keys ignored, and every program below inherits that.
fn with_ignored_keys(scene: &Scene) -> Rlm<'_> {
    let ignores = "trap '' INT QUIT HUP; exec \"$@\"";
    let shell = scene.sandbox.rlm("/bin/sh").args(["-c", ignores, "sh"]);
    shell.args([RLM])
}

#[test]
fn ctrl_c_opens_the_menu_although_the_parent_ignores_it() {
    let scene = Scene::new("");
    let agent = ["run", "-p", PROMPT, "--once", "--", "sleep", "600"];
    let (running, terminal) = with_ignored_keys(&scene).args(agent).spawn_on_terminal();
    terminal.sees("agent runs", LONG);
    let before = format!("{:?}", terminal.settings());
    let (watching, screen) = with_ignored_keys(&scene)
        .args(["attach"])
        .spawn_on_terminal();
    screen.sees("agent runs", LONG);
    screen.send(PRESS);
    screen.sees(MENU, LONG);
    screen.send("d");
    watching.wait(LONG).expect_code(0);
    terminal.send(PRESS);
    terminal.sees(MENU, LONG);
    leave(&scene, running, &terminal, &before);
}
