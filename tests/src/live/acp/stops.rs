//! Checks of stops and deaths of real agents that speak the Agent Client Protocol, and of their leftovers.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::live::real::RealAgent;
use crate::live::scene::ACP_RUN;
use crate::live::scene::{Elapsed, LiveScene};
use crate::{Running, wait_for};

/// A tool that only SIGKILL ends.
const STUBBORN: &str = "trap '' INT TERM; touch begun; sleep 601 & sleep 601; wait";
const FAILS: [&str; 4] = ["--permissions", "all", "--max-failures", "1"];

pub(in crate::live) fn stopped(scene: &LiveScene) -> String {
    // By default Gemini restarts itself, below a process that ignores signals. The driver prevents that.
    if scene.real == RealAgent::Gemini {
        scene.settings("[gemini]\nenv = { GEMINI_CLI_NO_RELAUNCH = \"\" }\n");
    }
    let prompt = format!("Work. [[sh {STUBBORN}]] [[text never]]");
    let running = scene
        .run(&prompt, &["--once", "--permissions", "all"])
        .spawn();
    scene.wait_for_file("begun");
    let count = scene.alive().len();
    if scene.real == RealAgent::Gemini {
        assert_eq!(scene.named("node").len(), 2, "{:?}", scene.alive());
    }
    let sent = Instant::now();
    running.signal(Signal::TERM);
    running.wait(ACP_RUN).expect_signal(Signal::TERM);
    let took = Elapsed::since(sent);
    scene.expect_nothing_alive();
    format!("all {count} processes ended after {took}")
}

/// Returns the process id of the agent from the output.
fn pid(running: &Running) -> Pid {
    let shown = running.stdout();
    let pid = shown
        .split("agent runs (pid ")
        .nth(1)
        .expect("the output has a pid");
    let pid = pid.split(')').next().and_then(|pid| pid.parse().ok());
    pid.and_then(Pid::from_raw).expect("the pid is a number")
}

pub(in crate::live) fn agent_killed(scene: &LiveScene) -> String {
    let prompt = format!("Work. [[sh {STUBBORN}]] [[text never]]");
    let running = scene.run(&prompt, &FAILS).args(["--once"]).spawn();
    scene.wait_for_file("begun");
    let killed = Instant::now();
    kill_process(pid(&running), Signal::KILL).unwrap();
    let gone = scene.gone("sleep", killed);
    let ended = running.wait(ACP_RUN);
    assert!(ended.stdout.contains("killed by signal 9"), "{ended}");
    assert!(ended.code() != Some(0), "{ended}");
    scene.expect_nothing_alive();
    let line = ended.stdout.lines().find(|line| line.contains("failed"));
    format!("its tool ended after {gone}; {:?}: {line:?}", ended.code())
}

pub(in crate::live) fn agent_ended(scene: &LiveScene) -> String {
    let running = scene
        .run("Write. [[slow 50 60]]", &FAILS)
        .args(["--once"])
        .spawn();
    wait_for("text in its transcript", ACP_RUN, || {
        let logs = scene.rlm(&["logs"]).run(ACP_RUN).stdout;
        logs.contains("tok5 ").then_some(())
    });
    kill_process(pid(&running), Signal::TERM).unwrap();
    let ended = running.wait(ACP_RUN);
    assert!(ended.code() != Some(0), "{ended}");
    scene.expect_nothing_alive();
    let line = ended.stdout.lines().find(|line| line.contains("failed"));
    format!("{:?}: {line:?}", ended.code())
}

pub(in crate::live) fn leftover(scene: &LiveScene) -> String {
    let prompt = "Work. [[sh setsid sleep 602 >/dev/null 2>&1 & touch begun]] [[text It is done.]]";
    let ended = scene
        .run(prompt, &["--once", "--permissions", "all"])
        .run(ACP_RUN)
        .expect_code(0);
    scene.expect_nothing_alive();
    // An adapter's own agent may also be ending at that time.
    let named = |line: &&str| line.starts_with("ended ") && line.contains("(sleep)");
    let line = ended.stdout.lines().find(named);
    format!("{:?}", line.unwrap_or_else(|| panic!("{ended}")))
}
