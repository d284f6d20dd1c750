//! Presses with an action that the project sets, instead of the menu.

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::menu::{ESC, MENU, PRESS};
use crate::permissions::answer;
use crate::presses::pause;
use crate::scene::{PROMPT, Scene, says, until_ready};

fn with(script: &str, on_press: &str) -> Scene {
    let scene = Scene::new(script);
    fs_err::write(scene.file("rlm.toml"), format!("on-press = {on_press}\n")).unwrap();
    scene
}

#[test]
fn j48a_each_scope_has_its_own_action() {
    let scene = with(
        "say ready\nawait go\nturn",
        "{ turn = \"continue\", sleep = \"stop\" }",
    );
    let run = ["--sleep", "600", "--prompt", PROMPT, "-n", "3"];
    let (running, terminal) = scene.claude_bare(&run).spawn_on_terminal();
    terminal.sees("ready", LONG);
    for _ in 0..3 {
        pause();
        terminal.send(PRESS);
        terminal.sees("the run continues, as set in rlm.toml", LONG);
    }
    assert!(!terminal.text().contains(MENU), "{}", terminal.scrolled());
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the sleep", LONG, || {
        (scene.status()["iterations_complete"] == 1).then_some(())
    });
    pause();
    terminal.send(PRESS);
    running.wait(LONG).expect_signal(Signal::INT);
    assert!(!terminal.text().contains(MENU), "{}", terminal.scrolled());
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn j48a_open_prompt_handles_presses_before_its_turn() {
    let scene = with(
        "say ready\nask Bash touch made\nsay asked\nawait go\nturn",
        "{ default = \"abort\", turn = \"continue\" }",
    );
    let (running, terminal) = scene
        .claude(&["--once", "--permissions", "ask"])
        .spawn_on_terminal();
    terminal.sees("allow? Bash: touch made", LONG);
    pause();
    terminal.send(PRESS);
    terminal.sees(MENU, LONG);
    pause();
    terminal.send(ESC);
    answer(&terminal, "Bash: touch made", "n");
    terminal.sees("asked", LONG);
    pause();
    terminal.send(PRESS);
    terminal.sees("the run continues, as set in rlm.toml", LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
}

#[test]
fn j48a_steer_action_prompts_and_abort_action_stops_immediately() {
    let scene = with("say ready\nawait go\nturn", "{ default = \"steer\" }");
    let (running, terminal) = scene.claude(&["--once"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    pause();
    terminal.send(PRESS);
    terminal.sees("steer>", LONG);
    pause();
    terminal.send(PRESS);
    terminal.sees(MENU, LONG);
    terminal.send("x");
    running.wait(LONG).expect_code(7);

    let scene = with("say ready\nawait go\nturn", "{ turn = \"abort\" }");
    let (running, terminal) = scene.claude(&["--once"]).spawn_on_terminal();
    terminal.sees("ready", LONG);
    pause();
    terminal.send(PRESS);
    running.wait(LONG).expect_code(7);
}

#[test]
fn j48b_press_without_terminal_stops_unless_configured() {
    for (on_press, goes_on) in [("prompt", false), ("steer", false), ("continue", true)] {
        let scene = with(
            "print ready\nawait go\nprint turn {start}",
            &format!("{{ default = \"{on_press}\" }}"),
        );
        let mut run = until_ready(scene.run(&["--once"]));
        run.signal(Signal::INT);
        if goes_on {
            says(&mut run, "the run continues");
            fs_err::write(scene.file("go"), "").unwrap();
            run.wait(LONG).expect_code(0);
        } else {
            run.wait(LONG).expect_signal(Signal::INT);
        }
    }
}
