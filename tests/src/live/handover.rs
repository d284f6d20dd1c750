//! Checks of a run that continues with another real CLI.

use std::path::Path;

use rustix::process::Signal;

use super::install::present;
use super::real::RealAgent;
use super::scene::{Check, LiveScene, RUN, expect};

/// The checks by the program of the first agent, and by name.
pub(super) const CHECKS: [(&str, &str, Check); 1] = [(
    "codex",
    "a run that Codex begins and Claude Code ends",
    handed_over,
)];

fn handed_over(rlm: &Path, agent: &Path) -> String {
    let claude = match present("claude") {
        Ok(claude) => claude,
        Err(reason) => return format!("not checked without Claude Code: {reason}"),
    };
    let scene = LiveScene::of(RealAgent::Codex, rlm, agent, "");
    RealAgent::Claude.prepare(&scene.sandbox, &scene.model);
    let tool = "test -e begun || { touch begun; sleep 615; }";
    let prompt = format!("Remember blue. [[sh {tool}]] [[text It is done.]]");
    let run = ["--once", "--permissions", "all", "--session", "continue"];
    let running = scene.run(&prompt, &run).spawn();
    scene.wait_for_file("begun");
    running.signal(Signal::TERM);
    running.wait(RUN).expect_signal(Signal::TERM);
    scene.expect_nothing_alive();
    let count = scene.requests().len();

    let resume = scene.rlm(&["resume", "--agent", "claude"]);
    let variables = RealAgent::Claude
        .variables(&claude, &scene.model)
        .into_iter();
    let resume = variables.fold(resume, |rlm, (name, value)| rlm.env(name, value));
    let ended = resume.run(RUN).expect_code(0);
    assert!(
        ended.stdout.contains("claude continues the work of codex"),
        "{ended}"
    );
    let requests = scene.requests();
    let told = &requests[count];
    expect(told, &["another agent (codex)"]);
    expect(told, &["Remember blue."]);
    assert_ne!(requests[0].session, told.session);
    assert!(ended.stdout.contains("It is done."), "{ended}");
    scene.expect_nothing_alive();
    "its own session, with the prompt and the name of the previous agent; no process of that agent was left"
        .into()
}
