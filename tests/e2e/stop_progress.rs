//! `rlm stop` returns when no process is left, even if the process of the run does not respond.

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::control::{quick, socket};
use crate::scene::{
    PROMPT, STUBBORN_TREE, Scene, TREE, TREE_SIZE, events, expect_in_order, json, says, until_ready,
};

fn x101_rlm_stop(script: &str, arguments: &[&str]) {
    let scene = Scene::new(script);
    let run = scene
        .run(&["--until", "false"])
        .env("RLM_SHUTDOWN_TIMEOUT", "4s");
    let running = until_ready(run);
    assert_eq!(scene.tree_alive(), TREE_SIZE);
    let stopped = quick(scene.rlm(&[&["stop"], arguments].concat())).expect_code(0);
    // The command returned, so all processes have ended. Only the harness has not yet reaped the run itself.
    assert_eq!(scene.tree_alive(), 0);
    let left = "stopped by a person; all processes ended";
    expect_in_order(&stopped.stdout, &["recorded", left, "rlm resume"]);
    assert!(!stopped.stdout.contains("as far as"), "{stopped}");
    let ended = running.wait(LONG).expect_code(7);
    assert!(ended.stdout.contains(left), "{ended}");
    scene.expect_nothing_alive();
    assert_eq!(scene.status()["state"], "stopped");
}

#[test]
fn x101d_x101e_rlm_stop_leaves_no_process() {
    x101_rlm_stop(TREE, &[]);
}

#[test]
fn x101d_x101f_rlm_stop_ends_a_tree_that_ignores_every_signal() {
    x101_rlm_stop(STUBBORN_TREE, &[]);
}

#[test]
fn x101d_x101g_rlm_stop_of_a_paused_or_sleeping_run_is_immediate() {
    for pause in [true, false] {
        let scene = Scene::new("print turn {start}");
        let mut running = scene
            .run_bare(&["-p", PROMPT, "-n", "2", "--sleep", "600"])
            .spawn();
        says(&mut running, "next iteration");
        if pause {
            quick(scene.rlm(&["pause"])).expect_code(0);
        }
        let stopped = quick(scene.rlm(&["stop", "--json"])).expect_code(0);
        let last = events(&stopped.stdout).pop().unwrap();
        let found = (
            &last["response"],
            &last["state"],
            &last["left"],
            &last["proven"],
        );
        let gone = (
            &"process_gone".into(),
            &"stopped".into(),
            &0.into(),
            &true.into(),
        );
        assert_eq!(found, gone, "{stopped}");
        running.wait(LONG).expect_code(7);
        scene.expect_nothing_alive();
    }
}

#[test]
fn stop_after_iteration_lets_the_iteration_finish() {
    let scene = Scene::new("print turn {start}\nawait go");
    let mut running = scene.run(&["-n", "5"]).spawn();
    says(&mut running, "turn 1");
    let told = quick(scene.rlm(&["stop", "--after", "iteration", "--wait", "0"])).expect_code(0);
    assert!(
        told.stdout.contains("recorded; it will stop when"),
        "{told}"
    );
    assert!(quick(scene.rlm(&["status"])).stdout.contains("is stopping"));
    let mut following = scene
        .rlm(&["stop", "--after", "iteration", "--wait", "60"])
        .spawn();
    says(&mut following, "recorded");
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = following.wait(LONG).expect_code(0);
    assert!(
        ended
            .stdout
            .contains("stopped by a person; all processes ended"),
        "{ended}"
    );
    running.wait(LONG).expect_code(7);
    assert_eq!(scene.status()["iterations_complete"], 1);
}

#[test]
fn x101l_stuck_owner_is_named_with_hint_and_force_stopped() {
    let scene = Scene::new(TREE);
    let running = scene.ready(&["--until", "false"]);
    running.signal(Signal::STOP);
    let refused = quick(scene.rlm(&["stop", "--wait", "300ms"])).expect_code(1);
    let pid = running.pid();
    for words in [
        format!("kill -9 {pid}"),
        format!("kill -CONT {pid}"),
        "--force".into(),
    ] {
        assert!(refused.stderr.contains(&words), "{refused}");
    }
    // The wait lasts for the given time, and not longer.
    assert!(refused.stderr.contains("within 1s"), "{refused}");
    assert_eq!(scene.tree_alive(), TREE_SIZE);
    let forced = quick(scene.rlm(&["stop", "--force", "--wait", "5s"])).expect_code(0);
    // The process was continued and could stop gracefully. It already had the request.
    expect_in_order(&forced.stdout, &["stopped", "all processes ended"]);
    assert_eq!(scene.tree_alive(), 0);
    running.wait(LONG);
    scene.expect_nothing_alive();
}

#[test]
fn x101l_force_kills_a_stuck_owner_with_its_tree() {
    let scene = Scene::new(STUBBORN_TREE);
    // The stop budget of this run is ten minutes.
    let run = scene
        .run(&["--until", "false"])
        .env("RLM_SHUTDOWN_TIMEOUT", "600s");
    let running = until_ready(run);
    let refused = quick(scene.rlm(&["stop", "--wait", "300ms"])).expect_code(1);
    assert!(
        refused
            .stderr
            .contains("received the request but has not exited yet"),
        "{refused}"
    );
    let forced = quick(scene.rlm(&["stop", "--force", "--wait", "300ms"])).expect_code(0);
    assert!(forced.stderr.contains("was killed"), "{forced}");
    assert!(forced.stdout.contains("all processes ended"), "{forced}");
    assert_eq!(scene.tree_alive(), 0);
    running.wait(LONG).expect_signal(Signal::KILL);
    scene.wait_until_nothing_is_alive();
    // The acknowledged request still applies: the run counts as stopped.
    assert_eq!(scene.status()["state"], "stopped");
}

/// Requests to a run without its socket fail; `--force` needs no socket.
#[test]
fn j49a_control_run_without_its_socket_is_unreachable() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    // A directory in place of the socket prevents the run from recreating it. The run may recreate it between the two calls, so they are repeated.
    wait_for("the directory in place of the socket", LONG, || {
        fs_err::remove_file(socket(&scene)).ok()?;
        fs_err::create_dir(socket(&scene)).ok()
    });
    let refused = quick(scene.rlm(&["stop", "--wait", "300ms"])).expect_code(1);
    assert!(refused.stderr.contains("it is not a socket"), "{refused}");
    assert_eq!(scene.tree_alive(), 1);
    quick(scene.rlm(&["stop", "--force"])).expect_code(0);
    running.wait(LONG).expect_signal(Signal::TERM);
    scene.expect_nothing_alive();
}

/// Another process resumes the run directly after the stop. The stop must still report its success, whether the resumed run works or has ended too.
#[test]
fn run_resumed_immediately_is_still_reported_as_stopped() {
    for (is_over, arguments) in [(false, &["stop"][..]), (true, &["stop", "--json"])] {
        let scene = Scene::new("@1 ignore INT\nprint ready\nhang");
        let run = scene.run(&["--until", "false", "--detach"]);
        let run = run.env("RLM_SHUTDOWN_TIMEOUT", "3s");
        quick(run).expect_code(0);
        scene.wait_until_started(1);
        let mut stop = scene.rlm(arguments).spawn();
        says(&mut stop, "recorded");
        // The stop command checks the state only after all of that.
        stop.signal(Signal::STOP);
        wait_for("the end of the run", LONG, || {
            (scene.status()["state"] == "stopped").then_some(())
        });
        quick(scene.rlm(&["resume", "--detach"])).expect_code(0);
        scene.wait_until_started(2);
        let listed = quick(scene.rlm(&["ps", "--json"])).expect_code(0);
        let pid = &json(listed.stdout.trim())["pid"];
        if is_over {
            quick(scene.rlm(&["stop"])).expect_code(0);
        }
        stop.signal(Signal::CONT);
        let stopped = stop.wait(LONG).expect_code(0);
        let words = ["stopped by a person", &pid.to_string()];
        expect_in_order(&stopped.stdout, &words);
        if is_over {
            let last = events(&stopped.stdout).pop().unwrap();
            assert_eq!(last["since_then"], *pid, "{stopped}");
        } else {
            assert!(stopped.stdout.contains("has resumed it since"), "{stopped}");
            assert_eq!(scene.tree_alive(), 1);
            quick(scene.rlm(&["stop"])).expect_code(0);
        }
        scene.wait_until_nothing_is_alive();
    }
}
