//! A run from its start to its end.

use rustix::process::Signal;
use serde_json::json;

use crate::LONG;
use crate::scene::{PROMPT, Scene, events, expect_in_order, says, stop, text};

#[test]
fn s1a_s1b_s1c_repeats_until_the_check_passes() {
    let scene = Scene::new("print turn {start}\n@3 touch done");
    let ended = scene
        .run(&["--until", "test -e done"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "iteration 1 ",
            "turn 1",
            "check did not pass",
            "iteration 1 complete",
            "iteration 2 ",
            "turn 2",
            "iteration 3 ",
            "turn 3",
            "check passed",
            "iteration 3 complete",
            "done: the check passed; all processes ended",
        ],
    );
    assert_eq!(scene.start_count(), 3);
    assert_eq!(ended.stderr, "");
    let status = scene.status();
    assert_eq!(
        (&status["state"], &status["iterations_complete"]),
        (&"ended".into(), &3.into())
    );
}

#[test]
fn s2c_completion_is_checked_before_the_sleep() {
    let scene = Scene::new("print once");
    let run = ["--prompt", PROMPT, "--sleep", "600", "--until", "true"];
    let ended = scene.run_bare(&run).run(LONG).expect_code(0);
    assert!(!ended.stdout.contains("next iteration"), "{ended}");
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn s2a_the_sleep_is_ten_seconds_by_default() {
    let scene = Scene::new("print once");
    let run = ["--prompt", PROMPT, "--json", "--until", "false"];
    let mut running = scene.run_bare(&run).spawn();
    says(&mut running, "\"event\":\"sleeping\"");
    let events = events(&stop(running, Signal::INT).stdout);
    assert_eq!(events[0]["settings"]["sleep_ms"], 10_000);
    assert_eq!(scene.start_count(), 1, "it really sleeps");
}

#[test]
fn s2b_sleep_zero_removes_the_sleep() {
    let scene = Scene::new("print turn {start}");
    let run = ["--prompt", PROMPT, "--json", "--sleep", "0", "-n", "3"];
    let ended = scene.run_bare(&run).run(LONG).expect_code(0);
    let events = events(&ended.stdout);
    assert_eq!(events[0]["settings"]["sleep_ms"], 0);
    assert!(
        events.iter().all(|event| event["event"] != "sleeping"),
        "{ended}"
    );
    assert_eq!(scene.start_count(), 3);
}

#[test]
fn s3a_s3b_s3c_the_iteration_limit_ends_with_its_own_code() {
    let scene = Scene::new("print turn {start}");
    let ended = scene
        .run(&["--max-iterations", "3", "--until", "false"])
        .run(LONG)
        .expect_code(3);
    assert_eq!(scene.start_count(), 3);
    let end = ended.stdout.lines().last().unwrap();
    assert!(end.starts_with("iteration limit (3) "), "{ended}");
    assert!(end.contains("to continue: rlm resume"), "{ended}");
    let check = json!({"phase": 0, "iteration": 3, "outcome": "failed"});
    assert_eq!(scene.status()["last_check"], check);
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0);
    let shown = "\n  check   failed (iteration 3)\n";
    assert!(status.stdout.contains(shown), "{status}");
}

#[test]
fn s4a_the_help_states_the_default_limits() {
    let scene = Scene::new("");
    let help = scene
        .rlm(&["run", "--help"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    let default = |option: &str| {
        let from = &help[help
            .find(option)
            .unwrap_or_else(|| panic!("{option}: {help}"))..];
        let from = from.split_once("[default: ").unwrap().1;
        from.split_once(']')
            .unwrap()
            .0
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(default("--max-iterations <"), "100");
    assert_eq!(default("--iteration-timeout <"), "1h");
    assert_eq!(default("--check-timeout <"), "15m");
    assert_eq!(default("--sleep <"), "10s");
    assert_eq!(default("--max-failures <"), "3");
}

/// Runs an agent that does not end, and returns the failure reason of its only iteration.
fn run_out_of_time(script: &str, option: &str) -> (Scene, String) {
    let scene = Scene::new(script);
    let ended = scene
        .run(&[option, "1s", "--max-failures", "1", "--until", "false"])
        .env("RLM_SHUTDOWN_TIMEOUT", "4s")
        .run(LONG)
        .expect_code(6);
    scene.expect_nothing_alive();
    assert_eq!(
        scene.agent.children().len(),
        2,
        "the process tree existed: {ended}"
    );
    let why = text(&scene.status()["last_outcome"]);
    (scene, why)
}

#[test]
fn s5a_s5c_iteration_timeout_ends_all_descendants() {
    // The constant output leaves only the time limit of the iteration.
    let talk = "print on\ndelay 50\n".repeat(100);
    let script = format!("child setsid\nchild daemon\n{talk}hang");
    let (_, why) = run_out_of_time(&script, "--iteration-timeout");
    assert_eq!(why, "iteration 1 failed: the turn took longer than 1s");
}

#[test]
fn s5b_s5c_idle_timeout_ends_all_descendants() {
    let (_, why) = run_out_of_time(
        "child setsid\nchild daemon\nprint on\nhang",
        "--idle-timeout",
    );
    assert_eq!(why, "iteration 1 failed: no output for 1s");
}

#[test]
fn s5a_s5c_agent_that_ignores_signals_is_killed() {
    let script =
        "ignore INT TERM\nchild setsid ignore INT TERM\nchild daemon ignore INT TERM\nhang";
    let (scene, why) = run_out_of_time(script, "--iteration-timeout");
    assert_eq!(why, "iteration 1 failed: the turn took longer than 1s");
    let agent = scene.agent.starts()[0].pid;
    let signals = scene.agent.signals();
    let asked = signals
        .iter()
        .filter(|got| got.pid == agent && got.signal != "CONT");
    let asked: Vec<&str> = asked.map(|got| &got.signal[..]).collect();
    assert_eq!(asked, ["INT", "TERM"], "it was asked before it was killed");
}

#[test]
fn s5b_agent_with_output_is_not_idle() {
    let scene = Scene::new(&"print on\ndelay 200\n".repeat(15));
    let limits = ["--idle-timeout", "1s", "--once"];
    scene.run(&limits).run(LONG).expect_code(0);
}

#[test]
fn s5e_check_that_times_out_fails() {
    let scene = Scene::new("print once");
    let check = "setsid sleep 600 & echo waiting; sleep 600";
    let ended = scene
        .run(&["--check-timeout", "1s", "-n", "1", "--until", check])
        .run(LONG)
        .expect_code(3);
    expect_in_order(
        &ended.stdout,
        &["check did not pass", "waiting", "iteration limit"],
    );
    scene.expect_nothing_alive();
}

#[test]
fn s5e_check_with_closed_output_has_the_same_timeout() {
    let scene = Scene::new("print once");
    let check = "exec >/dev/null 2>&1; sleep 5";
    let ended = scene
        .run(&["--check-timeout", "1s", "-n", "1", "--until", check])
        .run(LONG)
        .expect_code(3);
    expect_in_order(&ended.stdout, &["check did not pass", "longer than 1s"]);
    scene.expect_nothing_alive();
}

#[test]
fn s6a_a_failure_is_recorded_and_the_loop_continues() {
    let scene = Scene::new("@1 warn out of tokens\n@1 exit 3\nprint fine");
    let ended = scene.run(&["-n", "2"]).run(LONG).expect_code(0);
    let why = "iteration 1 failed: the agent ended: exit status 3 (out of tokens)";
    expect_in_order(&ended.stdout, &[why, "iteration 2 complete", "planned"]);
    assert_eq!(scene.start_count(), 2);
}

#[test]
fn s6b_only_failures_in_a_row_end_the_run() {
    let scene = Scene::new("@3.. exit 1");
    let ended = scene.run(&["-n", "9"]).run(LONG).expect_code(6);
    assert!(
        ended.stdout.contains("stuck: 3 failed turns in a row"),
        "{ended}"
    );
    assert_eq!(scene.start_count(), 5);

    let scene = Scene::new("@1..2 exit 1\n@4..5 die SEGV");
    scene.run(&["-n", "6"]).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 6);

    let scene = Scene::new("@1..4 exit 1");
    scene
        .run(&["-n", "5", "--max-failures", "0"])
        .run(LONG)
        .expect_code(0);
}

#[test]
fn s18a_run_without_stop_condition_is_refused() {
    let scene = Scene::new("print never");
    let ended = scene.run(&[]).run(LONG).expect_code(2);
    assert!(ended.stderr.contains("needs a stop condition"), "{ended}");
    assert_eq!(scene.start_count(), 0);
    assert!(!scene.file(".rlm").exists());
}

#[test]
fn s18c_plan_of_iterations_is_a_stop_condition() {
    let scene = Scene::new("print turn {start}");
    let ended = scene.run(&["-n", "5"]).run(LONG).expect_code(0);
    assert!(
        ended
            .stdout
            .lines()
            .last()
            .unwrap()
            .starts_with("finished: all planned"),
        "{ended}"
    );
    assert_eq!(scene.start_count(), 5);
    assert_eq!(
        scene.status()["reason"],
        "finished: all planned iterations ran"
    );
}

#[test]
fn s18b_s18d_once_is_one_iteration() {
    let scene = Scene::new("print turn {start}");
    scene.run(&["--once"]).run(LONG).expect_code(0);
    scene
        .run(&["--once", "--until", "false"])
        .run(LONG)
        .expect_code(3);
    assert_eq!(scene.start_count(), 2);
    scene.run(&["--once", "-n", "3"]).run(LONG).expect_code(2);
}

#[test]
fn plan_with_failed_last_turn_fails() {
    let scene = Scene::new("@2 exit 1");
    let ended = scene.run(&["-n", "2"]).run(LONG).expect_code(1);
    assert!(
        ended
            .stdout
            .contains("failed: the last planned iteration (2)"),
        "{ended}"
    );
}

#[test]
fn repeatedly_failing_required_checks_end_the_run() {
    let scene = Scene::new("print fine");
    let ended = scene
        .run(&["--gate", "false", "--until", "true"])
        .run(LONG)
        .expect_code(6);
    assert!(
        ended
            .stdout
            .contains("stuck: 3 failed required checks in a row"),
        "{ended}"
    );
    assert_eq!(scene.start_count(), 3);
}

#[test]
fn x125_banner_states_five_facts() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let run = ["-n", "7", "--until", "test -e go", "--permissions", "ask"];
    let (running, terminal) = scene.claude(&run).spawn_on_terminal();
    terminal.sees("ready", LONG);
    let screen = terminal.scrolled();
    let lines: Vec<&str> = screen.lines().collect();
    let begin = lines
        .iter()
        .position(|line| line.starts_with("ends "))
        .unwrap_or_else(|| panic!("{screen}"));
    let (ends, spends, agent) = (lines[begin], lines[begin + 1], lines[begin + 2]);
    let (pause, log) = (lines[begin + 3], lines[begin + 4]);
    assert!(
        ends.contains("test -e go") && ends.contains("7 iterations"),
        "{ends}"
    );
    assert!(spends.contains("1h"), "{spends}");
    assert!(
        agent.contains("claude") && agent.contains("asks you"),
        "{agent}"
    );
    assert!(
        pause.contains("Ctrl-C") && pause.contains("clos"),
        "{pause}"
    );
    assert!(log.contains(".rlm"), "{log}");
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
}

#[test]
fn title_of_a_run_is_shown_and_survives_a_resume() {
    let scene = Scene::new("print turn {start}");
    let title = "fix the \u{1b}[31mparser";
    let run = ["--title", title, "-n", "1", "--until", "false"];
    scene.run(&run).run(LONG).expect_code(3);
    assert_eq!(scene.status()["title"], title);
    let resume = ["resume", &scene.run_id(), "-n", "2"];
    scene.rlm(&resume).run(LONG).expect_code(3);
    assert_eq!(scene.status()["title"], title);
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0);
    assert!(status.stdout.contains("\n  title   fix the "), "{status}");
    assert!(!status.stdout.contains('\u{1b}'), "{status}");
}

#[test]
fn empty_or_overlong_title_is_refused() {
    let scene = Scene::new("print turn {start}");
    for (title, why) in [
        (String::new(), "a title has at least one character"),
        (
            "\u{fc}".repeat(81),
            "a title has at most 80 characters; this one has 81",
        ),
    ] {
        let ended = scene.run(&["--title", &title, "-n", "1"]);
        let ended = ended.run(LONG).expect_code(2);
        assert!(ended.stderr.contains(why), "{ended}");
    }
    let title = "\u{fc}".repeat(80);
    let run = ["--title", &title, "-n", "1"];
    scene.run(&run).run(LONG).expect_code(0);
    assert_eq!(scene.status()["title"], title);
}
