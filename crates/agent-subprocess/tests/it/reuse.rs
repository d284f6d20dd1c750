//! A pid that was seen belongs to somebody else by the time it is signalled.

use crate::rules::works;
use crate::scene::{DEADLINE, Scene, own_test, wait_for};
use agent_subprocess::sweep;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::process::{Command, Stdio};

/// Not a test by itself: in a pid namespace of its own, it has a stranger take the pid of what a sweep has found.
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
    wait_for("the marked one", || {
        found = sweep::find(crate::scene::VARIABLE, &scope);
        !found.is_empty()
    });
    marked.kill().unwrap();
    marked.wait().unwrap();
    let mut stranger = None;
    wait_for("the pid to be taken", || {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut taker = sleep().spawn().unwrap();
        if taker.id() == pid {
            stranger = Some(taker);
        } else {
            taker.kill().unwrap();
            taker.wait().unwrap();
        }
        stranger.is_some()
    });
    let mut stranger = stranger.unwrap();
    let report = sweep::end(found, DEADLINE);
    let lives = stranger.try_wait().unwrap().is_none()
        && test_kill_process(Pid::from_raw(pid.cast_signed()).unwrap()).is_ok();
    stranger.kill().unwrap();
    let ended = stranger.wait().unwrap();
    assert_eq!(report.survivors, []);
    assert!(lives, "{ended}");
    println!("\nspared: {pid}");
}

#[test]
fn p51_a_sweep_spares_a_stranger_that_has_the_pid_by_now() {
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
    let test = own_test("reuse::helper_takes_a_pid");
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
