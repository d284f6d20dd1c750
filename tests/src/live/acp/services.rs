//! Checks of a model service that limits and refuses, and of MCP servers.

use std::time::Instant;

use fs_err as fs;
use rustix::process::Signal;

use crate::Rlm;
use crate::live::real::RealAgent;
use crate::live::scene::ACP_RUN;
use crate::live::scene::{Elapsed, LiveScene, expect};

const FAILS: [&str; 3] = ["--once", "--max-failures", "1"];

pub(in crate::live) fn limited_once(scene: &LiveScene) -> String {
    let begun = Instant::now();
    let prompt = "Try. [[status 429 1 1]] [[text It went well.]]";
    let ended = scene.run(prompt, &FAILS).run(ACP_RUN).expect_code(0);
    assert!(ended.stdout.contains("It went well."), "{ended}");
    assert_eq!(scene.requests().len(), 2, "{ended}");
    format!("it retries without a report; {}", Elapsed::since(begun))
}

pub(in crate::live) fn limited(scene: &LiveScene) -> String {
    let prompt = "Try. [[status 429 600 1000]] [[text never]]";
    // OpenCode waits for the reported time without a report.
    let says = match scene.real {
        RealAgent::Opencode => "no output for",
        _ => "the service limits the rate",
    };
    let idle = ["--idle-timeout", "60"];
    let begun = Instant::now();
    let mut running = scene.run(prompt, &FAILS).args(idle).spawn();
    let said = |shown: &str| { shown.lines().find(|line| line.contains(says)) }.map(str::to_owned);
    let poll = || said(&running.stdout()).map(|line| (line, Elapsed::since(begun)));
    let (line, took) = crate::wait_for("the limit", ACP_RUN, poll);
    // rlm waits for the end of a rate limit.
    if !running.has_ended() {
        running.signal(Signal::TERM);
    }
    running.wait(ACP_RUN);
    scene.expect_nothing_alive();
    let count = scene.requests().len();
    assert!(count > 0, "{line}");
    format!("after {took} and {count} requests {line:?}")
}

pub(in crate::live) fn refused(scene: &LiveScene) -> String {
    let prompt = "Try. [[status 401 - 1000]] [[text never]]";
    failed(
        scene,
        scene
            .run(prompt, &FAILS)
            .env("CLAUDE_CODE_MAX_RETRIES", "1"),
    )
}

pub(in crate::live) fn not_logged_in(scene: &LiveScene) -> String {
    let run = scene.run("Try. [[text never]]", &FAILS);
    match scene.real {
        RealAgent::Gemini => {
            fs::write(scene.sandbox.home().join(".gemini/settings.json"), "{}").unwrap();
            let run = run
                .env("GOOGLE_GEMINI_BASE_URL", "")
                .env("GEMINI_API_KEY", "");
            failed(scene, run)
        }
        // Without a key, OpenCode has models that need none.
        RealAgent::Opencode => {
            "impossible: OpenCode always finds a model that needs no login".into()
        }
        _ => failed(scene, run.env("ANTHROPIC_API_KEY", "")),
    }
}

/// Expects the run to end because the agent is not logged in.
fn failed(scene: &LiveScene, run: Rlm<'_>) -> String {
    let begun = Instant::now();
    let ended = run.run(ACP_RUN);
    let took = Elapsed::since(begun);
    assert!(ended.code() != Some(0), "{ended}");
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    let line = shown.lines().find(|line| line.contains("not logged in"));
    let line = line.unwrap_or_else(|| panic!("{ended}"));
    scene.expect_nothing_alive();
    format!(
        "{:?} after {took} and {} requests: {line:?}",
        ended.code(),
        scene.requests().len()
    )
}

pub(in crate::live) fn mcp(scene: &LiveScene) -> String {
    let tool = match scene.real {
        RealAgent::Gemini => "mcp_tracker_recall",
        RealAgent::Opencode => "tracker_recall",
        _ => "mcp__tracker__recall",
    };
    let server = scene.rlm.with_file_name("fake-model").display().to_string();
    scene.settings(&format!(
        "[mcp-servers.tracker]\ncommand = {server:?}\nargs = [\"--tools\"]\nenv = {{ FAKE_TOOLS_WORD = \"${{TRACKER_WORD}}\" }}\n"
    ));
    let prompt = format!("Ask it. [[tool {tool} {{}}]] [[text It is done.]]");
    let run = || {
        let run = scene.run(&prompt, &["--once", "--permissions", "all"]);
        run.env("TRACKER_WORD", "s3cret-word")
    };
    let mut trust: &[&str] = &[];
    if scene.real == RealAgent::Gemini {
        let ended = run().run(ACP_RUN).expect_code(0);
        let says = "the agent doesn't trust this folder and uses no MCP servers in it";
        assert!(ended.stdout.contains(says), "{ended}");
        trust = &["--", "--skip-trust"];
    }
    let before = scene.requests().len();
    let ended = run().args(trust).run(ACP_RUN).expect_code(0);
    assert!(ended.stdout.contains("It is done."), "{ended}");
    let requests = scene.requests().split_off(before);
    let offered = &requests[0].offered;
    assert_eq!(requests.len(), 2, "{offered:?} {ended}");
    expect(&requests[1], &["Ask it.", "the word is s3cret-word"]);
    scene.expect_nothing_alive();
    format!("as {tool:?}, with its secret; with {trust:?}")
}
