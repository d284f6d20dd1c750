//! The budgets of a run, and its waits for rate limits.

use rlm_tests::wait_for;
use rustix::process::Signal;
use serde_json::Value;

use crate::control::quick;
use crate::menu::open;
use crate::scene::{Scene, crash, events, expect_in_order, says, stop, text};
use crate::{FAKE_AGENT, LONG};

/// A call of the fake agent's model costs one cent and reads 100 tokens.
const CALLS: &str = "turn ..\nsay one\nsay two\nawait go\nsay three";

/// Returns the end of the wait of the only run, once the run waits.
fn waits_until(scene: &Scene) -> String {
    wait_for("a wait", LONG, || {
        let statuses = scene.statuses();
        let now = statuses.first()?["now"].as_str()?;
        now.contains("again at").then(|| now.to_owned())
    })
}

#[test]
fn x108a_turn_beyond_max_cost_is_interrupted_and_not_awaited() {
    let scene = Scene::new(CALLS);
    let run = scene.claude(&["--once", "--max-cost", "0.02"]);
    let ended = run.run(LONG).expect_code(4);
    let words = [
        "0.02 USD, as the agent reports",
        "0.02 of 0.02 USD used; stopping the agent",
        "budget: 0.02 of 0.02 USD used; ",
        "--max-cost MORE",
    ];
    expect_in_order(&ended.stdout, &words);
    // The agent's text may be printed after the line of the budget.
    assert!(ended.stdout.contains("two"), "{ended}");
    assert!(scene.controls().contains(&"interrupt".into()));
    let status = scene.status();
    assert_eq!(
        (&status["cost_usd"], &status["unfinished_attempts"]),
        (&0.02.into(), &1.into())
    );
    scene.expect_nothing_alive();
    // With a larger budget the run continues at the same place.
    fs_err::write(scene.file("go"), "").unwrap();
    let run = scene.run_id();
    let more = ["resume", &run, "--max-cost", "1", "--json"];
    let more = scene.talking(&more).run(LONG);
    let events = events(&more.expect_code(0).stdout);
    let told = |name: &str| events.iter().find(|event| event["event"] == name).unwrap();
    assert_eq!(told("iteration_ended")["usage"]["cost_usd"], 0.05);
    assert_eq!(told("run_ended")["usage"]["cost_usd"], 0.05);
    assert_eq!(scene.status()["max_cost_usd"], 1.0);
}

#[test]
fn x108c_usage_of_killed_turn_is_kept() {
    let scene = Scene::new(CALLS);
    let running = scene.claude(&["-n", "2", "--max-tokens", "1M"]).spawn();
    wait_for("two calls", LONG, || {
        (scene.statuses().first()?["cost_usd"] == 0.02).then_some(())
    });
    let listed = |words: &[&str]| scene.rlm(words).run(LONG).expect_code(0).stdout;
    let live = events(&listed(&["ps", "--json"])).remove(0);
    let cells = format!(" 0.02  {} ", live["tokens"]);
    expect_in_order(&listed(&["ps"]), &["USD", "TOKENS", "NOW", &cells]);
    crash(running);
    scene.wait_until_nothing_is_alive();
    assert_eq!(scene.status()["cost_usd"], 0.02);
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
    let words = [
        "tokens left",
        "iteration 1 complete (0.05 USD, ",
        "iteration 2 complete (0.03 USD, ",
        "finished: all planned",
        "; 0.08 USD, ",
    ];
    expect_in_order(&ended.stdout, &words);
    let status = scene.status();
    assert_eq!(status["cost_usd"], 0.08);
    let used = |name: &str| status[name].as_u64().unwrap();
    let cells = format!(" 0.08  {} ", used("input_tokens") + used("output_tokens"));
    let other = scene.rlm(&["run", "--once", "-p", "x", "--", "true"]);
    other.run(LONG).expect_code(0);
    expect_in_order(&listed(&["status"]), &["USD", "TOKENS", "NOW", &cells]);
}

#[test]
fn x108a_every_agent_is_interrupted_at_its_budget() {
    let tokens = r#"event {"method": "thread/tokenUsage/updated", "params": {"tokenUsage": {"total": {"inputTokens": 900, "outputTokens": 100}, "last": {"inputTokens": 900, "outputTokens": 100}}}}"#;
    let cost = r#"event {"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": {"amount": 0.5, "currency": "USD"}}"#;
    for (agent, told, option, limit, says) in [
        (
            "claude",
            "say one",
            "--max-tokens",
            "100",
            " of 100 tokens used",
        ),
        (
            "codex",
            tokens,
            "--max-tokens",
            "1k",
            "1000 of 1000 tokens used",
        ),
        (
            "opencode",
            cost,
            "--max-cost",
            "0.4",
            "0.50 of 0.40 USD used",
        ),
    ] {
        let scene = Scene::new(&format!("say ready\n{told}\nawait go\nsay never"));
        let ended = scene
            .driven(agent, &["--once", option, limit])
            .run(LONG)
            .expect_code(4);
        let more = format!("{option} MORE");
        expect_in_order(
            &ended.stdout,
            &["ready", says, "; stopping the agent", "budget: ", &more],
        );
        assert!(!ended.stdout.contains("never"), "{agent}: {ended}");
        scene.expect_nothing_alive();
    }
}

#[test]
fn x129a_x129b_budget_without_usage_reports_is_a_usage_error() {
    let cost: &[&str] = &["--max-cost", "1"];
    let tokens: &[&str] = &["--max-tokens", "1k"];
    for (agent, budget, mend) in [
        ("codex", cost, "--max-tokens"),
        ("gemini", cost, "--max-tokens"),
        ("acp", cost, "--max-duration"),
        ("acp", tokens, "--max-duration"),
    ] {
        let scene = Scene::new("say never");
        let refused = scene.driven(agent, &[&["--once"], budget].concat());
        let refused = refused.run(LONG).expect_code(2);
        assert!(
            refused.stderr.contains(budget[0]) && refused.stderr.contains(mend),
            "{refused}"
        );
        assert_eq!((scene.start_count(), scene.statuses().len()), (0, 0));
    }
    let scene = Scene::new("print never");
    for budget in [cost, tokens] {
        let refused = scene.run(&[&["--once"], budget].concat()).run(LONG);
        assert!(refused.expect_code(2).stderr.contains(budget[0]));
    }
    // A resume can't set such a budget, or select such an agent, either.
    let scene = Scene::new("say one\nsay two");
    scene
        .claude(&["-n", "1", "--max-cost", "1"])
        .run(LONG)
        .expect_code(0);
    let run = scene.run_id();
    let other = [
        "resume",
        &run,
        "-n",
        "2",
        "--agent",
        "codex",
        "--agent-bin",
        FAKE_AGENT,
    ];
    let refused = scene.talking(&other).run(LONG).expect_code(2);
    assert!(refused.stderr.contains("--max-cost"), "{refused}");
}

#[test]
fn x107d_x107f_another_terminal_ends_a_rate_limit_wait() {
    let scene = Scene::new("@1 retry 429 3600\n@2 say well");
    let mut running = scene.driven("codex", &["--once"]).spawn();
    says(&mut running, "waiting until");
    waits_until(&scene);
    let told = quick(scene.rlm(&["resume", &scene.run_id()])).expect_code(0);
    assert!(told.stdout.contains("continues"), "{told}");
    let ended = running.wait(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["attempt 2", "well", "iteration 1 complete"],
    );
    let status = scene.status();
    assert_eq!(
        (
            &status["unfinished_attempts"],
            &status["iterations_complete"]
        ),
        (&1.into(), &1.into())
    );
}

#[test]
fn x107c_x107d_wait_counts_down_and_ends_with_a_key_or_a_steer() {
    // Short enough for a countdown in seconds.
    let scene = Scene::new("@1 retry 429 55\n@2 retry 429 55\n@3 say well");
    let [record, script] = scene.agent.variables();
    let run = scene.driven("codex", &["--once"]);
    let (running, terminal) = run
        .env(record.0, record.1)
        .env(script.0, script.1)
        .spawn_on_terminal();
    let left = || {
        let screen = terminal.screen();
        let (_, left) = screen.split_once("rate limit, continues in ")?;
        Some(left.split(' ').next()?.to_owned())
    };
    let first = wait_for("a wait", LONG, left);
    wait_for("a lower countdown", LONG, || {
        left().filter(|now| *now != first)
    });
    open(&terminal);
    terminal.sees("skip the wait: try now", LONG);
    terminal.send("k");
    scene.wait_until_started(2);
    terminal.sees("rate limit, continues in", LONG);
    terminal.send("\r");
    terminal.sees("steer>", LONG);
    terminal.send("/skip\r");
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 3);
}

#[test]
fn c56c_c77b_press_ends_a_rate_limit_wait() {
    let scene = Scene::new("retry 429 3600\nturn\nsay never");
    let run = scene.driven("codex", &["--once"]).env("TZ", "UTC");
    let mut running = run.spawn();
    says(&mut running, "waiting until");
    let until = waits_until(&scene);
    let (_, until) = until.split_once("again at ").unwrap();
    let ended = stop(running, Signal::INT);
    let shown = format!("waiting until {}:", &until["2026-01-01T".len()..][..8]);
    assert!(ended.stdout.contains(&shown), "{shown}: {ended}");
    assert_eq!(scene.status()["state"], "stopped");
    scene.expect_nothing_alive();
}

#[test]
fn x107b_rate_limit_wait_survives_a_crash_with_the_same_end() {
    let scene = Scene::new("@1 retry 429 3600\n@2 say never");
    let running = scene.driven("codex", &["--once"]).spawn();
    let until = waits_until(&scene);
    crash(running);
    scene.wait_until_nothing_is_alive();
    let mut again = scene.talking(&["resume"]).spawn();
    says(&mut again, "waiting until");
    assert_eq!(waits_until(&scene), until);
    stop(again, Signal::TERM);
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn x107h_text_about_limits_is_no_rate_limit() {
    let words = "API Error: 429 rate limit: 5-hour limit reached, usage limit, too many requests";
    let script = format!("run echo {words}\nsay {words}\nturn");
    for agent in ["claude", "codex", "gemini", "opencode", "acp"] {
        let scene = Scene::new(&script.replace(": ", " "));
        let run = ["run", "--sleep", "0", "--prompt", words, "--once"];
        let ended = scene.as_agent(agent, &run).run(LONG).expect_code(0);
        assert!(
            ended.stdout.contains("iteration 1 complete"),
            "{agent}: {ended}"
        );
        assert_eq!(scene.status()["unfinished_attempts"], 0, "{agent}");
    }
}

#[test]
fn x107j_outage_of_a_service_that_answered_before_is_awaited() {
    let scene = Scene::new("@1 say hello\n@1 retry 529 10 1\n@2 say well");
    let mut running = scene
        .claude(&["--once", "--json", "--max-failures", "1"])
        .spawn();
    says(&mut running, "\"waiting\"");
    waits_until(&scene);
    quick(scene.rlm(&["resume", &scene.run_id()])).expect_code(0);
    let ended = running.wait(LONG).expect_code(0);
    let events = events(&ended.stdout);
    let wait: &Value = { events.iter() }
        .find(|event| event["event"] == "waiting")
        .unwrap();
    assert!(text(&wait["what"]).contains("529"), "{wait}");
    assert_eq!(scene.status()["iterations_complete"], 1);
    // An outage without a reported time is retried soon.
    let scene = Scene::new("@1 retry 529 10 1\n@2 say well");
    let ended = scene.claude(&["--once", "--max-failures", "1"]).run(LONG);
    expect_in_order(
        &ended.expect_code(0).stdout,
        &["trying again at", "attempt 2", "well"],
    );
}
