//! A pid that was found belongs to another process when it gets a signal.

use crate::rules::works;
use crate::scene::{DEADLINE, Scene, own_test, wait_for};
use agent_subprocess::{Containment, StopPolicy, TreeCommand, sweep};
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::process::{Child, Command, Stdio};

/// Not a test by itself: in a pid namespace of its own, it makes another process take the pid of a process that a sweep found.
#[test]
fn helper_takes_a_pid() {
    let Ok(scope) = std::env::var("AGENT_SUBPROCESS_TEST_REUSE") else {
        return;
    };
    let sleep = || {
        let mut sleep = Command::new("sleep");
        sleep.arg("627").stdin(Stdio::null());
        sleep
    };
    let mut marked = sleep()
        .env(crate::scene::VARIABLE, format!("{scope}.1"))
        .spawn()
        .unwrap();
    let pid = marked.id();
    let mut found = Vec::new();
    wait_for("the marked process", || {
        found = sweep::find(crate::scene::VARIABLE, &scope);
        !found.is_empty()
    });
    marked.kill().unwrap();
    marked.wait().unwrap();
    let stranger = taker(pid, sleep);
    let report = sweep::end(found, DEADLINE);
    assert_eq!(report.survivors, []);
    expect_spared(stranger);
}

/// Starts processes until one has this pid.
fn taker(pid: u32, stranger: impl Fn() -> Command) -> Child {
    let mut taken = None;
    wait_for("the pid to be taken", || {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut taker = stranger().spawn().unwrap();
        if taker.id() == pid {
            taken = Some(taker);
        } else {
            taker.kill().unwrap();
            taker.wait().unwrap();
        }
        taken.is_some()
    });
    taken.unwrap()
}

fn expect_spared(mut stranger: Child) {
    let pid = Pid::from_raw(stranger.id().cast_signed()).unwrap();
    let lives = stranger.try_wait().unwrap().is_none() && test_kill_process(pid).is_ok();
    stranger.kill().unwrap();
    let ended = stranger.wait().unwrap();
    assert!(lives, "{ended}");
    println!("\nspared: {}", stranger.id());
}

/// Not a test by itself: the same for an agent in a group. Its pid becomes that of the leader of another group.
#[tokio::test]
async fn helper_takes_the_pid_of_an_agent() {
    if std::env::var_os("AGENT_SUBPROCESS_TEST_REUSE").is_none() {
        return;
    }
    let command = TreeCommand::new("true").containment(Containment::Group);
    let mut agent = command.spawn().await.unwrap();
    assert!(agent.wait().await.success());
    let stranger = taker(agent.pid(), || {
        let mut sleep = Command::new("sh");
        sleep.args(["-c", "sleep 628 & wait"]).stdin(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut sleep, 0);
        sleep
    });
    assert_eq!(agent.leftovers().await, []);
    agent.resume().unwrap();
    let report = agent.stop(&StopPolicy::default()).await;
    drop(agent);
    assert_eq!((report.ended, report.survivors), (vec![], vec![]));
    expect_spared(stranger);
}

#[test]
fn p51_sweep_spares_a_process_that_reuses_the_pid() {
    spares("reuse::helper_takes_a_pid");
}

#[test]
fn p51_group_stop_spares_a_process_that_reuses_the_pid() {
    spares("reuse::helper_takes_the_pid_of_an_agent");
}

fn spares(helper: &str) {
    if !works(
        "unshare",
        &[
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            "echo 5 >/proc/sys/kernel/ns_last_pid",
        ],
    ) {
        return;
    }
    let scene = Scene::new();
    let test = own_test(helper);
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(test.get_program())
        .args(test.get_args());
    let output = command
        .env("AGENT_SUBPROCESS_TEST_REUSE", &scene.marker.scope)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("spared: "),
        "{said} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
