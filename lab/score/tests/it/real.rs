//! The controls of the cells with a real agent: a loop that breaks one promise is red in its cell and in no other.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::time::Duration;

use rlm_tests::{Sandbox, schema};
use serde_json::Value;

use crate::LAB;

/// The loop runner of these controls.
const LOOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/real_loop.sh");
/// The agent: its output says when the service failed, so a control can give up then.
const AGENT: &str = "codex";
/// Time limit of the five faults with one loop, and of the installation of the agent.
const LONG: Duration = Duration::from_secs(900);

const SCORES: [&str; 5] = ["stop", "resume", "done", "night", "control"];

#[test]
#[ignore = "installs an agent from npm, and takes minutes: cargo xtask nightly --only lab"]
fn each_promise_that_a_loop_breaks_with_a_real_agent_is_red_in_its_cell_and_in_no_other() {
    for fault in [""].into_iter().chain(SCORES) {
        let Some((broken, printed)) = broken_scores(fault) else {
            return;
        };
        let expected: Vec<&str> = { SCORES.into_iter() }.filter(|it| *it == fault).collect();
        assert_eq!(broken, expected, "fault {fault:?}: {printed}");
    }
}

/// Returns the scores whose cell is not kept, and the printed report. `None` if the agent, or a network with only loopback, is missing.
fn broken_scores(fault: &str) -> Option<(Vec<String>, String)> {
    let sandbox = Sandbox::new();
    let verbs = sandbox.path().join("loop.toml");
    let json = sandbox.path().join("report.json");
    let text = format!(
        "name = 'loop'\nstart = 'FAULT={fault} exec bash {LOOP} start {{agent}} {{prompt}} {{check}} {{iterations}}'\nmessage = 'exec bash {LOOP} message {{message}}'\n"
    );
    fs_err::write(&verbs, text).unwrap();
    let lab = sandbox.rlm(LAB).args(["--quick", "--real-agent", AGENT]);
    let lab = lab.args(["--verbs".as_ref(), verbs.as_os_str()]);
    let ended = lab.args(["--json".as_ref(), json.as_os_str()]).run(LONG);
    // Any other error of the lab is a failure of this test.
    let is_missing = |line: &&str| {
        line.starts_with("error: --real-agent") || line.starts_with("error: a real agent needs")
    };
    if let Some(why) = ended.stderr.lines().find(is_missing) {
        println!("skipped: {why}");
        return None;
    }
    let report: Value = serde_json::from_str(&fs_err::read_to_string(json).unwrap()).unwrap();
    schema::check(&schema::named("lab"), &report).unwrap();
    let scores = report["scores"].as_array().unwrap();
    let name = |score: &Value| score["score"].as_str().unwrap().to_owned();
    let names: Vec<String> = scores.iter().map(name).collect();
    assert_eq!(names, SCORES, "{ended}");
    let broken = { scores.iter() }.filter(|it| it["cells"][0]["verdict"] != "kept");
    Some((broken.map(name).collect(), ended.stdout))
}
