//! The program: its output, its JSON, its exit codes, and no process of its own that is left.

use std::time::Duration;

use rlm_score::Tool;
use rlm_tests::{Ended, Sandbox, schema, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::LAB;

/// Time limit on a machine that is busy with other tests.
const LONG: Duration = Duration::from_secs(120);

fn run(sandbox: &Sandbox, arguments: &[&str]) -> Ended {
    sandbox.rlm(LAB).args(arguments).run(LONG)
}

#[test]
fn counted_loop_has_red_cells_in_the_table_and_in_valid_json() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("report.json");
    let words = [
        "--quick",
        "--only",
        "done",
        "--seed",
        "7",
        "--tool",
        "for i in $(seq {iterations}); do cat {prompt} | {agent}; done",
        "--json",
    ];
    let ended = run(&sandbox, &[&words[..], &[file.to_str().unwrap()]].concat()).expect_code(1);
    assert!(!ended.stdout.contains('\x1b'), "{ended}");
    for line in [
        "broken     lying agent ",
        "kept       honest agent",
        "skipped    failed check ",
        "done     2 of 7 kept, 2 skipped",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {ended}");
    }
    let report: Value = serde_json::from_str(&fs_err::read_to_string(file).unwrap()).unwrap();
    schema::check(&schema::named("lab"), &report).unwrap();
    assert_eq!(report["circumstances"]["seed"], 7);
    let cells = report["scores"][0]["cells"].as_array().unwrap();
    let lying = cells.iter().find(|it| it["cell"] == "lying agent").unwrap();
    assert_eq!(lying["verdict"], "broken");
}

#[test]
fn tool_that_never_starts_the_agent_has_no_kept_cell() {
    let sandbox = Sandbox::new();
    let words = ["--quick", "--only", "done", "--tool", "true {agent}"];
    let ended = run(&sandbox, &words).expect_code(1);
    let summary = "done     0 of 0 kept, 7 not shown, 2 skipped";
    assert!(ended.stdout.contains(summary), "{ended}");
}

#[test]
fn invalid_request_is_rejected() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("verbs.toml");
    fs_err::write(&file, "name = 'x'\nstart = 'x'").unwrap();
    for (arguments, word) in [
        (&["--tool", "true"][..], "{agent}"),
        (&["--verbs", file.to_str().unwrap()], "{agent}"),
        (&["--verbs", "/none"], "/none"),
        (&["--only", "speed"], "possible values"),
        (
            &["--real-agent", "cobol"],
            "claude, codex, gemini, opencode",
        ),
    ] {
        let ended = run(&sandbox, arguments).expect_code(2);
        assert!(ended.stderr.contains(word), "{ended}");
    }
    Tool::parse("name = 'x'\nstart = '{agent}'").unwrap();
    // A copy has no `rlm` beside it.
    let copy = sandbox.path().join("lab");
    fs_err::copy(LAB, &copy).unwrap();
    let ended = sandbox.rlm(&copy).run(LONG).expect_code(2);
    assert!(ended.stderr.contains("--tool or --verbs"), "{ended}");
}

#[test]
fn interrupted_measurement_leaves_no_process() {
    let sandbox = Sandbox::new();
    let words = ["--only", "done", "--tool", "while :; do {agent}; done"];
    let lab = sandbox.rlm(LAB).args(words).spawn();
    wait_for("agents of the first scenes", LONG, || {
        let alive = sandbox.survivors().scan();
        (alive.len() > 4).then_some(())
    });
    lab.signal(Signal::TERM);
    let ended = lab.wait(LONG).expect_code(130);
    assert!(
        ended.stdout.contains("all started processes were killed"),
        "{ended}"
    );
    assert_eq!(sandbox.survivors().scan(), []);
}

#[test]
#[ignore = "takes seconds of processor time: cargo xtask nightly --only lab"]
fn tool_with_too_many_processes_ends_and_leaves_none() {
    let sandbox = Sandbox::new();
    let bomb = "for i in $(seq 400); do sleep 300 & done; wait; {agent}";
    let words = ["--only", "done", "--jobs", "1", "--tool", bomb];
    let lab = sandbox.rlm(LAB).args(words).spawn();
    let ended = lab.wait(LONG).expect_code(1);
    assert!(ended.stdout.contains("7 not shown"), "{ended}");
    assert_eq!(sandbox.survivors().scan(), []);
}
