//! A waiting loop needs almost no resources.

use std::time::Duration;

use rlm_tests::poll_until;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{PROMPT, Scene, says, stop};

/// Returns the processor time of a process, in ticks.
pub(crate) fn ticks(pid: i32) -> u64 {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Returns the number of context switches of all threads of a process.
fn switches(pid: i32) -> u64 {
    let tasks = fs_err::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status =
        tasks.map(|task| fs_err::read_to_string(task.unwrap().path().join("status")).unwrap());
    status
        .map(|text| {
            let count = text
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.unwrap().trim().parse::<u64>().unwrap()
        })
        .sum()
}

pub(crate) fn memory(pid: i32, field: &str) -> u64 {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim_start_matches(':')
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Returns the most memory that a process has used, in KiB, without the pages of its program: an unoptimised build has many.
pub(crate) fn peak_memory(pid: i32) -> u64 {
    memory(pid, "VmHWM") - memory(pid, "RssFile")
}

/// Observes an idle process for two seconds.
fn expect_idle(pid: i32) {
    // Its last activity may need a moment to end.
    poll_until(Duration::from_millis(300), || None::<()>);
    let (before, woken) = (ticks(pid), switches(pid));
    poll_until(Duration::from_secs(2), || None::<()>);
    assert_eq!(ticks(pid), before, "it used the processor");
    let woken = switches(pid) - woken;
    assert!(woken <= 4, "it was woken {woken} times in two seconds");
    // The resident part of the program file depends on the build, so it does not count.
    let resident = memory(pid, "RssAnon");
    assert!(resident < 10 << 10, "{resident} KiB are resident");
}

#[test]
fn sleeping_loop_uses_no_cpu_and_little_memory() {
    let scene = Scene::new("flood 1M");
    let mut running = scene
        .run_bare(&["-p", PROMPT, "--sleep", "600", "-n", "2"])
        .spawn();
    says(&mut running, "next iteration");
    expect_idle(running.pid());
    stop(running, Signal::INT);
}

#[test]
fn loop_and_guard_use_no_cpu_while_the_agent_thinks() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    // The transcript is flushed a second after the last line.
    drop(running.stdout());
    poll_until(Duration::from_millis(1200), || None::<()>);
    let guard = scene.agent.starts()[0].ppid;
    let (before, woken) = (ticks(guard), switches(guard));
    expect_idle(running.pid());
    assert_eq!((ticks(guard), switches(guard)), (before, woken));
    assert!(memory(guard, "RssAnon") < 10 << 10);
    stop(running, Signal::INT);
    scene.rlm(&["status"]).run(LONG).expect_code(0);
}
