//! Output of an agent that could deceive the reader of a terminal.

use rlm_tests::Terminal;

use crate::LONG;
use crate::scene::Scene;

/// Bytes that must not reach a terminal, as the agent prints them.
const HOSTILE: &str = "\u{1b}[8mconcealed\u{1b}[0m \u{1b}[30;40mblack\u{1b}[0m c1\u{9b}31m del\u{7f} bidi\u{202e} zero\u{200b} tag\u{e0041} end";

#[track_caller]
fn expect_harmless(terminal: &Terminal, what: &str) {
    let bytes = terminal.bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.contains("tag") && text.contains("end"),
        "{what}: {text:?}"
    );
    let hidden = ['\u{9b}', '\u{7f}', '\u{202e}', '\u{200b}', '\u{e0041}'];
    assert!(!text.contains(hidden), "{what}: {text:?}");
    for sequence in ["\u{1b}[8m", "\u{1b}[30;40m"] {
        assert!(!text.contains(sequence), "{what}: {text:?}");
    }
}

#[test]
fn w1_w2_no_terminal_gets_text_that_hides_other_text() {
    let scene = Scene::new("");
    let agent = format!("printf '%s\\n' '{HOSTILE}'");
    let run = |json: &[&'static str]| {
        let mut words = vec!["run", "--sleep", "0", "--once", "-p", "x"];
        words.extend(json);
        words.extend(["--", "sh", "-c"]);
        words
    };
    let calls = [
        [run(&[]), vec![agent.as_str()]].concat(),
        [run(&["--json"]), vec![agent.as_str()]].concat(),
        vec!["logs"],
        vec!["logs", "--json"],
        vec!["report", "--json"],
    ];
    for words in calls {
        let (running, terminal) = scene.rlm(&words).env("TERM", "xterm").spawn_on_terminal();
        running.wait(LONG).expect_code(0);
        match words[0] {
            "report" => assert!(!terminal.text().contains('\u{202e}')),
            _ => expect_harmless(&terminal, &words.join(" ")),
        }
    }
    // JSON output has the same text.
    let logs = scene.rlm(&["logs", "--json"]).run(LONG).expect_code(0);
    let said = logs.stdout.lines().filter_map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["text"].as_str().map(str::to_owned)
    });
    assert!(said.into_iter().any(|text| text == HOSTILE), "{logs}");
}
