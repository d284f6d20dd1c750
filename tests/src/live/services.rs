//! Checks of a model service that is silent, refuses, fails or disconnects; of rate limits; and of an input that ends.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::scene::{Check, Elapsed, LiveScene, RUN, expect};

/// The checks by name.
pub(super) const CHECKS: [(&str, Check); 9] = [
    ("a stream that falls silent", silent),
    ("401: not logged in", not_logged_in),
    ("a long rate limit", limit),
    ("a stream that is cut off, and a 500", retried),
    ("a service that cannot be reached", unreachable),
    ("more requests than a turn may make", limited),
    ("usage within a turn", spent),
    ("usage in a resumed session", spent_again),
    ("an input that ends in the middle of a turn", closed),
];

fn silent(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let limits = ["--once", "--max-failures", "1", "--idle-timeout", "4"];
    let mut running = scene.run("Write. [[stall 9 600]]", &limits).spawn();
    running.until("a warning", RUN, |running| {
        running
            .stdout()
            .contains("no output from the agent for")
            .then_some(())
    });
    let warned = Instant::now();
    let ended = running.wait(RUN).expect_code(1);
    let took = Elapsed::since(warned);
    let says = "no output for 4s";
    assert!(ended.stdout.contains(says), "{ended}");
    let logs = scene.rlm(&["logs"]).run(RUN).expect_code(0).stdout;
    assert!(logs.contains("tok8"), "{logs}");
    scene.expect_nothing_alive();
    format!("warned, and {took} later ended with {says:?}; the partial text is in the transcript")
}

fn not_logged_in(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let begun = Instant::now();
    let prompt = "Try. [[status 401 - 1000]] [[text never]]";
    let ended = scene.run(prompt, &["--once"]).run(RUN);
    let took = Elapsed::since(begun);
    let mend = "log in with `claude` once in a terminal, or set ANTHROPIC_API_KEY";
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    assert!(shown.contains(mend), "{ended}");
    assert!(ended.code() != Some(0), "{ended}");
    let count = scene.requests().len();
    assert!(count < 10, "claude alone would make 11 requests: {count}");
    scene.expect_nothing_alive();
    format!(
        "exit code {:?} after {took} and {count} requests, with the hint",
        ended.code()
    )
}

fn limit(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let begun = Instant::now();
    let prompt = "Try. [[status 429 600 1000]] [[text never]]";
    // By default the run waits until a rate limit ends.
    let limits = ["--once", "--wait-on-limit", "0"];
    let ended = scene.run(prompt, &limits).run(RUN);
    let took = Elapsed::since(begun);
    let says = "and the run doesn't wait for it";
    assert!(
        ended.code() != Some(0) && ended.stdout.contains(says),
        "{ended}"
    );
    scene.expect_nothing_alive();
    let count = scene.requests().len();
    format!(
        "claude does not wait for 10 minutes: {count} request, exit code {:?} after {took}, {says:?}",
        ended.code()
    )
}

fn retried(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Try. [[drop 5 1]] [[status 500 - 1]] [[text It went well.]]";
    let ended = scene.run(prompt, &["--once"]).run(RUN).expect_code(0);
    for words in ["tries again", "500", "It went well."] {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    let requests = scene.requests();
    assert_eq!(requests.len(), 3, "{requests:#?}");
    let shown = ended.stdout.lines();
    let retries: Vec<&str> = shown
        .filter(|line| line.contains("tries again"))
        .filter_map(|line| line.split('(').nth(1)?.split(')').next())
        .collect();
    format!("three requests, shown as {retries:?}")
}

fn unreachable(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let limits = ["--once", "--max-failures", "1"];
    let run = scene.run("Try.", &limits);
    // Port 9 (discard) has no server.
    let run = run.env("ANTHROPIC_BASE_URL", "http://127.0.0.1:9");
    let begun = Instant::now();
    let ended = run.env("CLAUDE_CODE_MAX_RETRIES", "2").run(RUN);
    let took = Elapsed::since(begun);
    assert!(ended.stdout.contains("tries again"), "{ended}");
    let ended = ended.expect_code(1);
    scene.expect_nothing_alive();
    let failed = ended.stdout.lines().find(|line| line.contains("failed:"));
    format!("after {took} {:?}", failed.expect("a failure"))
}

fn limited(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    scene.settings("[claude]\nmax-turns = 2\n");
    let prompt = "Work. [[sh echo 1]] [[sh echo 2]] [[sh echo 3]] [[text never]]";
    let arguments = ["--once", "--permissions", "all", "--max-failures", "1"];
    let ended = scene.run(prompt, &arguments).run(RUN).expect_code(1);
    assert_eq!(scene.requests().len(), 2, "{ended}");
    let failed = ended.stdout.lines().find(|line| line.contains("failed:"));
    format!("{:?}", failed.unwrap_or_else(|| panic!("{ended}")))
}

fn spent(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let limits = ["--once", "--permissions", "all", "--max-cost", "0.000001"];
    let prompt = "Work. [[sh touch made; sleep 600]] [[text never]]";
    let begun = Instant::now();
    let ended = scene.run(prompt, &limits).run(RUN).expect_code(4);
    let took = Elapsed::since(begun);
    let ending = ended.stdout.lines().find(|line| line.contains("USD used;"));
    let ending = ending.unwrap_or_else(|| panic!("{ended}"));
    let count = scene.requests().len();
    assert_eq!(count, 1, "{ended}");
    scene.expect_nothing_alive();
    format!("{took} and {count} request: {ending:?}")
}

/// rlm counts the usage of each process of a session only once, in every report.
fn spent_again(rlm: &Path, agent: &Path) -> String {
    let used = |scene: &LiveScene<'_>| {
        let status = scene.rlm(&["status", "--json"]).run(RUN).expect_code(0);
        let status: Value = serde_json::from_str(status.stdout.trim()).unwrap();
        let number = |name: &str| status[name].as_f64().unwrap();
        (number("cost_usd"), number("input_tokens"))
    };
    let answers = "[[sh true]] [[text Done.]]";
    let run = |plan: &[&str]| {
        let scene = LiveScene::answering(rlm, agent, answers);
        let more = [plan, &["--permissions", "all", "--max-cost", "9"]].concat();
        scene.run("Work.", &more).run(RUN).expect_code(0);
        (used(&scene), scene.requests().len())
    };
    let (once, first) = run(&["-n", "1"]);
    let (twice, both) = run(&["-n", "2", "--session", "continue"]);
    assert_eq!((first, both), (2, 4));
    // The second pair of turns reads a little more input than the first, not the sum of both.
    let share = (twice.0 / once.0, twice.1 / once.1);
    assert!(
        share.0 > 1.9 && share.0 < 2.4 && share.1 > 1.9 && share.1 < 2.4,
        "{share:?}"
    );
    format!(
        "{} and {} tokens once, {} and {} twice",
        once.0, once.1, twice.0, twice.1
    )
}

fn closed(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let prompt = "Work. [[sh sleep 1; touch made]] [[slow 50 1]]";
    let message =
        serde_json::json!({"type": "user", "message": {"role": "user", "content": prompt}});
    let claude = scene.program(&agent.join("claude"));
    let words = ["-p", "--input-format", "stream-json", "--verbose"];
    let more = ["--output-format", "stream-json"];
    let ended = claude
        .args(words)
        .args(more)
        .args(["--dangerously-skip-permissions"])
        .input(format!("{message}\n"))
        .run(RUN)
        .expect_code(0);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["type"], &last["is_error"]),
        (&"result".into(), &false.into())
    );
    assert!(scene.file("made").exists());
    expect(&scene.requests()[1], &["Work.", "touch made"]);
    "the turn ended with tool and text, then claude exited with 0".into()
}
