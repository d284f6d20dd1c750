//! Killing the loop, its guard, or both leaves no process.

use std::time::Duration;

use rlm_tests::{poll_until, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::LONG;
use crate::scene::{STUBBORN_TREE, Scene, TREE, TREE_SIZE, crash, expect_in_order, says, stop};

#[test]
fn l98e_x102a_a_kill_of_the_loop_ends_the_tree() {
    for tree in [TREE, STUBBORN_TREE] {
        let scene = Scene::new(tree);
        let running = scene.ready(&["--until", "false"]);
        assert_eq!(scene.tree_alive(), TREE_SIZE);
        crash(running);
        scene.wait_until_nothing_is_alive();
        assert_eq!(scene.status()["state"], "crashed");
    }
}

#[test]
fn x102a_killed_loop_ends_its_required_check_and_check() {
    let tools = "sleep 600 & setsid sleep 600 & touch begun; sleep 600";
    for option in ["--gate", "--until"] {
        let scene = Scene::new("child daemon");
        let running = scene.run(&["-n", "1", option, tools]).spawn();
        scene.wait_for_file("begun");
        // The shell has forked its children, but they may not have executed `sleep` yet.
        wait_for("the tools of the command", LONG, || {
            let alive = scene.alive();
            let sleeping = alive.iter().filter(|process| process.name == "sleep");
            (sleeping.count() >= 2).then_some(())
        });
        crash(running);
        scene.wait_until_nothing_is_alive();
    }
}

#[test]
fn x102f_control_without_a_guard_the_tree_outlives_a_kill() {
    let scene = Scene::new(TREE);
    let argv = scene.agent.argv();
    let looping = r#""$@" & wait"#;
    let mut shell = scene
        .sandbox
        .rlm("/bin/sh")
        .args(["-c", looping, "sh"])
        .args(argv)
        .spawn();
    says(&mut shell, "ready");
    crash(shell);
    // Longer than a guard needs.
    let gone = poll_until(Duration::from_secs(3), || {
        (scene.tree_alive() < TREE_SIZE).then_some(())
    });
    assert!(gone.is_none(), "{:?}", scene.alive());
}

/// Returns the guard of the agent's first start: its parent.
fn guard(scene: &Scene) -> Pid {
    Pid::from_raw(scene.agent.starts()[0].ppid).unwrap()
}

#[test]
fn x102b_resume_after_a_kill_of_loop_and_guard_ends_and_names_the_rest() {
    let scene = Scene::new(&format!(
        "@1 {}\nprint turn {{start}}",
        TREE.replace('\n', "\n@1 ")
    ));
    let running = scene.ready(&["--once"]);
    // Suspended, so that it can't clean up after its guard.
    running.signal(Signal::STOP);
    kill_process(guard(&scene), Signal::KILL).unwrap();
    crash(running);
    let left = scene.children_alive(1);
    assert!(
        left.len() >= 3,
        "processes without a guard are still alive: {left:?}"
    );

    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 2);
    expect_in_order(
        &ended.stdout,
        &[
            "left alive by an earlier process",
            "iteration 1, attempt 2",
            "turn 2",
        ],
    );
    let named = ended
        .stdout
        .lines()
        .find(|line| line.contains("left alive by an earlier"))
        .unwrap();
    assert!(
        left.iter()
            .all(|process| named.contains(&process.pid.to_string())),
        "{named}\n{left:?}"
    );
    scene.expect_nothing_alive();
}

#[test]
fn j53d_x102b_x102c_next_run_ends_remaining_processes_before_its_agent_starts() {
    let scene =
        Scene::new("@1 child setsid\n@1 child daemon\n@1 print ready\n@1 hang\nprint ready\nhang");
    let running = scene.ready(&["--once", "--run-id", "first"]);
    running.signal(Signal::STOP);
    kill_process(guard(&scene), Signal::KILL).unwrap();
    crash(running);
    assert_eq!(scene.children_alive(1).len(), 2);
    let next = scene.ready(&["--once"]);
    assert_eq!(
        scene.children_alive(1),
        [],
        "two agents never work in one working tree"
    );
    let line = "ended 2 processes of run first left alive by an earlier process: ";
    assert!(next.stdout().contains(line), "{}", next.stdout());
    stop(next, Signal::INT);
}

#[test]
fn x102d_processes_ended_by_guard_are_named() {
    let scene = Scene::new(&format!(
        "@1 {}\nprint turn {{start}}",
        TREE.replace('\n', "\n@1 ")
    ));
    crash(scene.ready(&["--once"]));
    scene.wait_until_nothing_is_alive();
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let named = ended
        .stdout
        .lines()
        .find(|line| line.contains("by their guard"))
        .unwrap();
    let children = scene.agent.children();
    assert!(children.len() >= 4, "{children:?}");
    for child in &children {
        assert!(named.contains(&child.pid.to_string()), "{named}\n{child:?}");
    }
}

#[test]
fn x102e_killed_guard_fails_the_turn_and_leaves_no_process() {
    let scene = Scene::new(&format!(
        "@1 {}\n@2 print ready\n@2 hang",
        TREE.replace('\n', "\n@1 ")
    ));
    let mut running = scene.ready(&["-n", "2"]);
    kill_process(guard(&scene), Signal::KILL).unwrap();
    says(&mut running, "iteration 1 failed");
    scene.wait_until_started(2);
    assert_eq!(scene.children_alive(1), []);
    stop(running, Signal::TERM);
    scene.expect_nothing_alive();
}

#[test]
fn x102e_process_tree_with_suspended_guard_ends_with_the_loop() {
    for signals in [&[Signal::TERM][..], &[Signal::TERM; 2], &[Signal::KILL]] {
        let scene = Scene::new(STUBBORN_TREE);
        let running = scene.ready(&["--until", "false"]);
        kill_process(guard(&scene), Signal::STOP).unwrap();
        for signal in signals {
            running.signal(*signal);
        }
        running.wait(LONG);
        scene.wait_until_nothing_is_alive();
    }
}

#[test]
fn x102b_unfinished_guard_work_is_named() {
    let script = format!(
        "@1 {}\nprint turn {{start}}",
        STUBBORN_TREE.replace('\n', "\n@1 ")
    );
    let scene = Scene::new(&script);
    crash(scene.ready(&["--once"]));
    // The guard would wait for the processes that ignore SIGTERM.
    kill_process(guard(&scene), Signal::STOP).unwrap();
    let left = scene.children_alive(1);
    let ended = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let words = ["left alive by an earlier process", "iteration 1, attempt 2"];
    expect_in_order(&ended.stdout, &words);
    assert!(!left.is_empty());
    for process in left {
        assert!(
            ended.stdout.contains(&process.pid.to_string()),
            "{process:?}: {ended}"
        );
    }
    scene.expect_nothing_alive();
}
