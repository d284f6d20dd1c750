//! The time at which a guard kills a process tree by itself.

use crate::scene::{
    DEADLINE, Scene, TREE, is_gone, kill, own_test, wait_for, wait_for_line, wait_for_tree,
};
use agent_subprocess::{Containment, StopPolicy, StopStage};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

const HOST: &str = "AGENT_SUBPROCESS_TEST_KILL_TIME";
/// The time from which the host moves the kill away, again and again.
const TIME: Duration = Duration::from_millis(500);

fn now() -> Duration {
    clock_gettime(ClockId::Boottime).try_into().unwrap()
}

/// Not a test by itself: if the variable is set, this process moves the kill time of an agent until a test suspends it.
#[tokio::test]
async fn helper_host_that_moves_the_kill_time() {
    let Ok(scope) = std::env::var(HOST) else {
        return;
    };
    let mut scene = Scene::new();
    scene.marker.scope = scope;
    let mut agent = scene.agent(TREE).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let begun = now();
    let mut is_reported = false;
    let end = begun + DEADLINE;
    while now() < end {
        // After its end, there is nothing to move.
        let _ended = agent.kill_at(now() + TIME);
        // Without the moves, the guard would have killed the agent by now.
        if now() > begun + 2 * TIME && !is_reported {
            is_reported = true;
            println!("\nhost: {} {}", agent.pid(), agent.has_exited());
        }
        std::thread::park_timeout(TIME / 10);
    }
}

#[test]
fn guard_kills_at_its_time_while_the_host_is_suspended() {
    let scene = Scene::new();
    let mut command = own_test("kill_time::helper_host_that_moves_the_kill_time");
    command.env(HOST, &scene.marker.scope);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut host = command.spawn().unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let line = lines
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .unwrap();
    assert!(line.ends_with(" false"), "killed although it moved: {line}");
    let members = wait_for_tree(&scene);
    kill(host.id(), Signal::STOP);
    wait_for("the kill without the host", || {
        scene.members().is_empty() && members.iter().all(is_gone)
    });
    kill(host.id(), Signal::CONT);
    host.kill().unwrap();
    host.wait().unwrap();
}

#[tokio::test]
async fn kill_time_in_the_past_kills_now() {
    let scene = Scene::new();
    let mut agent = scene.agent(TREE).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    agent.kill_at(now() + DEADLINE).unwrap();
    agent.kill_at(Duration::ZERO).unwrap();
    let exit = tokio::time::timeout(DEADLINE, agent.wait()).await.unwrap();
    assert_eq!(exit.signal, Some(9));
    let report = agent.stop(&StopPolicy::default()).await;
    assert_eq!(report.stage, StopStage::Kill, "{report:?}");
    assert!(report.survivors.is_empty(), "{report:?}");
    scene.assert_no_process_is_left();
    // The process tree has ended, so there is nothing to kill.
    agent.kill_at(Duration::ZERO).unwrap();
}

#[tokio::test]
async fn kill_time_of_a_command_holds_from_its_start() {
    let scene = Scene::new();
    let command = scene.agent("exec sleep 617").kill_at(now() + TIME);
    let mut agent = command.spawn().await.unwrap();
    let exit = tokio::time::timeout(DEADLINE, agent.wait()).await.unwrap();
    assert_eq!(exit.signal, Some(9));
    let refused = scene.agent("exec sleep 618").kill_at(now() + DEADLINE);
    let refused = refused.containment(Containment::Group).spawn().await;
    assert!(refused.unwrap_err().is_unsupported());
    scene.wait_for_the_end_of_all();
}

#[tokio::test]
async fn kill_time_needs_a_guard() {
    let scene = Scene::new();
    let command = scene.agent(TREE).containment(Containment::Group);
    let mut agent = command.spawn().await.unwrap();
    let refused = agent.kill_at(Duration::ZERO).unwrap_err();
    assert!(refused.is_unsupported(), "{refused}");
    agent.stop(&StopPolicy::kill()).await;
}
