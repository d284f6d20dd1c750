//! The orphans of a killed guard become children of a host that is a child subreaper: the host ends them, and ignores its own children.

use crate::scene::{Scene, alone, kill, wait_for};
use agent_subprocess::guard::{OwnProgramScope, adopt_orphans};
use agent_subprocess::{ProcessTree, StopPolicy, StopReport, WarmGuard};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Child, Command};

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Reads a pid that an agent writes into a file.
fn pid_in(scene: &Scene, file: &str) -> u32 {
    wait_for("a pid", || scene.path(file).exists());
    let text = std::fs::read_to_string(scene.path(file)).unwrap();
    text.trim().parse().unwrap()
}

fn wait_for_zombie(pid: u32) {
    let stat = format!("/proc/{pid}/stat");
    wait_for("a zombie", || {
        std::fs::read_to_string(&stat).unwrap().contains(") Z ")
    });
}

async fn kill_guard_and_stop(agent: &mut ProcessTree) -> StopReport {
    kill(agent.guard().unwrap().pid, Signal::KILL);
    agent.stop(&StopPolicy::default()).await
}

/// Starts a program of the host in a session of its own.
fn in_own_session(script: &str) -> Child {
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", script]).spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The host ends the orphans of a killed guard, and ignores the processes that it started itself.
#[tokio::test]
async fn w3_a_killed_guard_leaves_no_child_with_a_cleared_environment() {
    // The subreaper setting applies to the whole process.
    if !alone("orphans::w3_a_killed_guard_leaves_no_child_with_a_cleared_environment") {
        return;
    }
    adopt_orphans().unwrap();
    let scene = Scene::new();
    let script = "setsid env -i sh -c 'echo $$ >new; mv new pid; exec sleep 651' & sleep 652";
    let mut plain = Command::new("sleep").arg("653").spawn().unwrap();
    let mut agent = scene.agent(script).spawn().await.unwrap();
    let pid = pid_in(&scene, "pid");
    // A process in a session of its own, as an editor can leave it behind.
    let own = OwnProgramScope::new();
    let mut daemon = in_own_session("exec sleep 654");
    drop(own);
    let report = kill_guard_and_stop(&mut agent).await;
    let is_gone = !exists(pid);
    if !is_gone {
        kill(pid, Signal::KILL);
    }
    let untouched = [&mut plain, &mut daemon].map(|it| it.try_wait().unwrap().is_none());
    [plain, daemon].into_iter().for_each(end);
    assert!(is_gone, "not even a zombie: {report:?}");
    assert!(report.guard_lost && report.survivors.is_empty(), "{report}");
    assert!(report.ended.iter().any(|it| it.pid == pid), "{report:?}");
    assert_eq!(untouched, [true, true], "{report:?}");
    scene.assert_no_process_is_left();
}

/// Each child in this test is ignored for exactly one reason.
#[tokio::test]
async fn w3_sweep_spares_each_own_child_of_the_host() {
    if !alone("orphans::w3_sweep_spares_each_own_child_of_the_host") {
        return;
    }
    adopt_orphans().unwrap();
    let scene = Scene::new();
    let older = in_own_session("exec sleep 661");
    // Waits for the next clock tick, in which the guard starts.
    drop(OwnProgramScope::new());
    let mut agent = scene.agent("exec sleep 662").spawn().await.unwrap();
    drop(OwnProgramScope::new());
    let in_the_session = Command::new("sleep").arg("663").spawn().unwrap();
    let own = OwnProgramScope::new();
    let in_a_span = in_own_session("exec sleep 664");
    drop(own);
    // The guard of this agent is also a child of the host in a session of its own.
    let second = Scene::new();
    let mut other = second.agent("exec sleep 665").spawn().await.unwrap();
    let report = kill_guard_and_stop(&mut agent).await;
    assert!(other.guard().unwrap().is_alive(), "{report:?}");
    let stopped = other.stop(&StopPolicy::default()).await;
    assert!(!stopped.guard_lost, "{stopped:?}");
    let alive = [older, in_the_session, in_a_span].map(|mut child| {
        let is_alive = child.try_wait().unwrap().is_none();
        end(child);
        is_alive
    });
    assert_eq!(alive, [true, true, true], "{report:?}");
    assert_eq!(report.survivors, [], "{report:?}");
}

/// The host started this child after the guard and before the program.
#[tokio::test]
async fn w3_sweep_spares_an_own_child_that_is_younger_than_the_warm_guard() {
    if !alone("orphans::w3_sweep_spares_an_own_child_that_is_younger_than_the_warm_guard") {
        return;
    }
    adopt_orphans().unwrap();
    let scene = Scene::new();
    let warm = WarmGuard::new(&scene.marker.scope);
    warm.want();
    wait_for("the guard", || warm.pid().is_some());
    drop(OwnProgramScope::new());
    let mut own = in_own_session("exec sleep 668");
    wait_for("its session", || {
        std::fs::read(format!("/proc/{}/cmdline", own.id())).is_ok_and(|it| it == b"sleep\x00668\0")
    });
    std::thread::park_timeout(std::time::Duration::from_millis(30));
    let script = "setsid env -i sh -c 'echo $$ >new; mv new pid; exec sleep 669' & sleep 667";
    let command = scene.agent(script).warm_guard(&warm);
    let mut agent = command.spawn().await.unwrap();
    let pid = pid_in(&scene, "pid");
    let report = kill_guard_and_stop(&mut agent).await;
    let is_untouched = own.try_wait().unwrap().is_none();
    end(own);
    assert!(is_untouched, "{report:?}");
    assert!(!exists(pid), "{report:?}");
}

/// A dead child in a session of its own looks like a process of the agent. Its owner still gets its exit.
#[tokio::test]
async fn w3_sweep_does_not_reap_an_own_child_of_the_host() {
    if !alone("orphans::w3_sweep_does_not_reap_an_own_child_of_the_host") {
        return;
    }
    adopt_orphans().unwrap();
    let scene = Scene::new();
    let script = "setsid env -i sh -c 'echo $$ >new; mv new pid; exec sleep 671' & sleep 672";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    let pid = pid_in(&scene, "pid");
    let mut plain = Command::new("sh").args(["-c", "exit 5"]).spawn().unwrap();
    let mut leader = in_own_session("exit 7");
    [plain.id(), leader.id()]
        .into_iter()
        .for_each(wait_for_zombie);
    let report = kill_guard_and_stop(&mut agent).await;
    assert!(!exists(pid) && !exists(agent.pid()), "{report:?}");
    let codes = [&mut plain, &mut leader].map(|it| it.wait().ok().and_then(|it| it.code()));
    assert_eq!(codes, [Some(5), Some(7)], "{report:?}");
}

/// The host reaps the processes of the agent's tree that were already dead, so that none stays a zombie.
#[tokio::test]
async fn w3_dead_processes_of_a_lost_tree_are_reaped() {
    if !alone("orphans::w3_dead_processes_of_a_lost_tree_are_reaped") {
        return;
    }
    adopt_orphans().unwrap();
    let scene = Scene::new();
    // The agent becomes `sleep`, which waits for no child.
    let script = "sh -c 'echo $$ >new; mv new pid; sleep 0.2' & exec sleep 681";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    let pid = pid_in(&scene, "pid");
    wait_for_zombie(pid);
    let report = kill_guard_and_stop(&mut agent).await;
    assert!(!exists(pid), "{report:?}");
    assert!(!exists(agent.pid()), "{report:?}");
}

/// While an editor is open, only the marker distinguishes an orphan of the agent from an orphan of the editor.
#[tokio::test]
async fn w3_orphan_started_beside_an_own_program_is_recognised_by_its_marker() {
    if !alone("orphans::w3_orphan_started_beside_an_own_program_is_recognised_by_its_marker") {
        return;
    }
    adopt_orphans().unwrap();
    let scene = Scene::new();
    let own = OwnProgramScope::new();
    let script = "setsid sh -c 'echo $$ >new; mv new pid; exec sleep 691' & sleep 692";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    let pid = pid_in(&scene, "pid");
    let report = kill_guard_and_stop(&mut agent).await;
    drop(own);
    assert!(!exists(pid), "not even a zombie: {report:?}");
    assert!(report.ended.iter().any(|it| it.pid == pid), "{report:?}");
    scene.assert_no_process_is_left();
}
