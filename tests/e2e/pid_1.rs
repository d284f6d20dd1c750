//! `rlm` as PID 1 of a container, simulated by a pid namespace.

use std::process::Command;
use std::time::Duration;

use rlm_tests::{Process, Rlm, Running, poll_until, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{PROMPT, STUBBORN_TREE, Scene, TREE, TREE_SIZE, expect_in_order, says};
use crate::{LONG, RLM};

const CONTAINER: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

/// Whether this machine supports pid namespaces.
fn has_containers() -> bool {
    let status = Command::new("unshare").args(CONTAINER).arg("true").status();
    status.is_ok_and(|status| status.success())
}

/// Prepares `rlm run --once ARGUMENTS -- AGENT` as PID 1.
fn contained<'a>(scene: &'a Scene, arguments: &[&str]) -> Rlm<'a> {
    let run = [RLM, "run", "--once", "--prompt", PROMPT];
    let container = scene.sandbox.rlm("unshare").args(CONTAINER).args(run);
    container
        .args(arguments)
        .args(["--"])
        .args(scene.agent.argv())
}

fn ready(scene: &Scene) -> Running {
    let mut running = contained(scene, &[]).spawn();
    says(&mut running, "ready");
    assert_eq!(scene.start_count(), 1);
    running
}

/// Returns the only child of a process.
#[track_caller]
fn child(scene: &Scene, parent: i32) -> Process {
    let mut children = scene.alive();
    children.retain(|process| process.ppid == parent);
    assert_eq!(children.len(), 1, "{children:?}");
    children.remove(0)
}

fn send(to: &Process, signal: Signal) {
    kill_process(Pid::from_raw(to.pid).unwrap(), signal).unwrap();
}

#[test]
fn x113b_x113c_pid_1_of_a_container_saves_and_stops_gracefully() {
    if !has_containers() {
        return println!("skipped: no pid namespaces here");
    }
    let scene = Scene::new(TREE);
    let running = ready(&scene);
    let init = child(&scene, running.pid());
    assert_eq!(init.name, "agent-init");
    send(&init, Signal::TERM);
    let ended = running.wait(LONG).expect_code(143);
    let left = "all processes ended";
    expect_in_order(&ended.stdout, &["stopped by SIGTERM", left]);
    scene.expect_nothing_alive();
    assert_eq!(scene.status()["state"], "stopped");
    scene.agent.set_script("print turn {start}");
    let again = scene
        .sandbox
        .rlm("unshare")
        .args(CONTAINER)
        .args([RLM, "resume"]);
    again.run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn x113c_unnamed_signal_reaches_the_program() {
    if !has_containers() {
        return println!("skipped: no pid namespaces here");
    }
    let scene = Scene::new("print ready\nhang");
    let running = ready(&scene);
    // The stop signal of some container engines: SIGRTMIN + 3, in the kernel's numbering.
    let signal = 32 + 2 + 3;
    let init = child(&scene, running.pid()).pid;
    let kill = scene.sandbox.rlm("/bin/kill");
    kill.args([format!("-{signal}"), init.to_string()])
        .run(LONG)
        .expect_code(0);
    running.wait(LONG).expect_code(128 + signal);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn x113c_press_on_the_terminal_of_a_container_stops_the_run() {
    if !has_containers() {
        return println!("skipped: no pid namespaces here");
    }
    let scene = Scene::new("print ready\nhang");
    let (running, terminal) = contained(&scene, &["--no-input"]).spawn_on_terminal();
    terminal.wait_text("ready", 0, LONG);
    terminal.send(b"\x03");
    terminal.wait_text("all processes ended", 0, LONG);
    running.wait(LONG).expect_code(130);
    scene.expect_nothing_alive();
    assert_eq!(scene.status()["state"], "stopped");
}

#[test]
fn x113c_killed_rlm_ends_its_container_after_the_report_of_its_guard() {
    if !has_containers() {
        return println!("skipped: no pid namespaces here");
    }
    let scene = Scene::new(STUBBORN_TREE);
    let running = ready(&scene);
    let init = child(&scene, running.pid());
    send(&child(&scene, init.pid), Signal::KILL);
    running.wait(LONG).expect_code(137);
    scene.wait_until_nothing_is_alive();
    let word = scene.file(&format!(".rlm/runs/{}/survivors", scene.run_id()));
    let word = fs_err::read_to_string(word).unwrap();
    assert_eq!(word.matches("fake-agent").count(), TREE_SIZE, "{word}");
}

/// Lets a process enter the pid namespace and exit before its child, as `docker exec` may. Returns how often the child was a zombie at the end.
fn zombies_of_strangers(scene: &Scene, init: &Process) -> usize {
    let target = init.pid.to_string();
    let enter = ["--target", &target, "--pid", "--mount", "sh", "-c"];
    let orphan = "sh -c 'sleep 0.05 & exec true'; sleep 0.2";
    let entered = scene.sandbox.rlm("nsenter").args(enter).args([orphan]);
    entered.run(LONG).expect_code(0);
    let zombies = || {
        let mut alive = scene.alive();
        alive.retain(|process| process.ppid == init.pid && process.is_zombie());
        alive.len()
    };
    poll_until(Duration::from_secs(2), || (zombies() == 0).then_some(0)).unwrap_or_else(zombies)
}

#[test]
fn x113c_orphans_of_a_container_are_reaped() {
    if !has_containers() {
        return println!("skipped: no pid namespaces here");
    }
    let scene = Scene::new(TREE);
    let running = ready(&scene);
    let init = child(&scene, running.pid());
    assert_eq!(zombies_of_strangers(&scene, &init), 0);
    send(&init, Signal::TERM);
    running.wait(LONG).expect_code(143);
}

/// The control: a process that isn't an init leaves the orphan as a zombie.
#[test]
fn x113c_control_orphans_of_another_pid_1_stay_zombies() {
    if !has_containers() {
        return println!("skipped: no pid namespaces here");
    }
    let scene = Scene::new(TREE);
    let running = scene
        .sandbox
        .rlm("unshare")
        .args(CONTAINER)
        .args(["sleep", "600"])
        .spawn();
    let init = wait_for("the first process", LONG, || {
        scene
            .alive()
            .into_iter()
            .find(|process| process.name == "sleep")
    });
    assert_eq!(zombies_of_strangers(&scene, &init), 1);
    drop(running);
}
