//! A person at a terminal chooses one of several runs.

use rlm_tests::{Rlm, Running, Terminal};
use rustix::process::Signal;

use crate::LONG;
use crate::menu::PRESS;
use crate::scene::{Scene, expect_in_order, says};

/// The question below the list.
const QUESTION: &str = "which run? 1 to 2, or Enter for none:";
const AMBIGUOUS: &str = "several runs match `night`; write more of one: night-1, night-2";

fn on_terminal(rlm: Rlm<'_>) -> (Running, Terminal) {
    let (running, terminal) = rlm.spawn_on_terminal();
    terminal.sees(QUESTION, LONG);
    (running, terminal)
}

#[test]
fn several_matching_runs_are_listed_and_a_number_chooses_one() {
    let scene = Scene::new("print turn {start}");
    for name in ["night-2", "night-1"] {
        let run = [
            "--once",
            "--run-id",
            name,
            "--title",
            &format!("Task of {name}"),
        ];
        scene.run(&run).run(LONG).expect_code(0);
    }
    let (running, terminal) = on_terminal(scene.rlm(&["status", "night"]));
    // The newest is the first.
    let list = [
        "1",
        "night-1",
        "ended",
        "Task of night-1",
        "2",
        "night-2",
        "Task of night-2",
    ];
    expect_in_order(&terminal.screen(), &list);
    for wrong in ["3\r", "0\r"] {
        terminal.send(wrong);
        let seen = format!("{QUESTION} {}", wrong.trim_end());
        terminal.wait_screen("another question", LONG, |screen| {
            screen.contains(&seen) && screen.trim_end().ends_with(QUESTION)
        });
    }
    terminal.send("2\r");
    running.wait(LONG).expect_code(0);
    assert!(
        terminal.scrolled().contains("night-2  ended, iteration 1"),
        "{}",
        terminal.scrolled()
    );

    // Nothing is a default: an empty line, the end of the input and wrong answers choose no run.
    for answer in ["\r", "\u{4}", "x\r9\r-1\r"] {
        let (running, terminal) = on_terminal(scene.rlm(&["clean", "night", "--yes"]));
        for line in answer.split_inclusive('\r') {
            terminal.send(line);
        }
        running.wait(LONG).expect_code(2);
        assert!(
            terminal.scrolled().contains(AMBIGUOUS),
            "{}",
            terminal.scrolled()
        );
    }
    let (running, terminal) = on_terminal(scene.rlm(&["clean", "night", "--yes"]));
    terminal.send(PRESS);
    running.wait(LONG).expect_signal(Signal::INT);
    assert_eq!(scene.statuses().len(), 2, "no run was deleted");

    // A program gets the error.
    let refused = scene.rlm(&["status", "night"]).run(LONG).expect_code(2);
    assert!(refused.stderr.contains(AMBIGUOUS), "{refused}");
    let (running, terminal) = scene
        .rlm(&["status", "night", "--json"])
        .spawn_on_terminal();
    running.wait(LONG).expect_code(2);
    assert!(
        !terminal.scrolled().contains("which run?"),
        "{}",
        terminal.scrolled()
    );
}

#[test]
fn stop_and_resume_without_a_run_ask_if_several_are_possible() {
    let scene = Scene::new("print ready\nhang");
    let start = |name: &str| {
        let run = ["--once", "--run-id", name, "--worktree"];
        let mut running = scene.run(&run).spawn();
        says(&mut running, "ready");
        running
    };
    let (first, mut second) = (start("one"), start("two"));
    let stop = || on_terminal(scene.rlm(&["stop"]));
    let (running, terminal) = stop();
    terminal.send("\r");
    running.wait(LONG).expect_code(2);
    let (running, terminal) = stop();
    expect_in_order(
        &terminal.screen(),
        &["1", "two", "running", "2", "one", "running"],
    );
    terminal.send("2\r");
    running.wait(LONG).expect_code(0);
    first.wait(LONG).expect_code(7);
    assert!(!second.has_ended());
    scene.rlm(&["stop"]).run(LONG).expect_code(0);
    second.wait(LONG).expect_code(7);

    let (running, terminal) = on_terminal(scene.rlm(&["resume"]));
    terminal.send(PRESS);
    running.wait(LONG).expect_signal(Signal::INT);
    let (running, terminal) = scene.rlm(&["resume", "--no-input"]).spawn_on_terminal();
    running.wait(LONG).expect_code(2);
    assert!(
        !terminal.scrolled().contains("which run?"),
        "{}",
        terminal.scrolled()
    );
    let (running, terminal) = on_terminal(scene.rlm(&["resume"]));
    terminal.send("1\r");
    terminal.sees("ready", LONG);
    assert!(
        terminal.scrolled().contains("two"),
        "{}",
        terminal.scrolled()
    );
    scene.rlm(&["stop", "two"]).run(LONG).expect_code(0);
    running.wait(LONG).expect_code(7);
}
