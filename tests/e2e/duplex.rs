//! An agent in a conversation, without a person: its messages, its failures, and its end.

use rlm_tests::agent::{MessageState, SessionEntry};
use rlm_tests::wait_for;
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{PROMPT, Scene, events, expect_in_order, says, stop, text};

/// Every turn fails.
const FAILS: &str = "turn ..\nretry 400 10 1";

#[test]
fn s1a_s1b_s1c_driven_agent_repeats_until_the_check_passes() {
    let scene = Scene::new("say turn {start}\nrun echo tool\n@3 touch done");
    let ended = scene
        .claude(&["--until", "test -e done"])
        .run(LONG)
        .expect_code(0);
    let words = [
        "iteration 1 ",
        "turn 1",
        "Bash: echo tool",
        "tool",
        "check did not pass",
        "iteration 3 ",
        "turn 3",
        "check passed",
        "done: the check passed; all processes ended",
    ];
    expect_in_order(&ended.stdout, &words);
    assert_eq!(ended.stderr, "");
    let messages = scene.agent.messages();
    let sessions: std::collections::BTreeSet<_> =
        messages.iter().map(|message| &message.session).collect();
    assert_eq!((messages.len(), sessions.len()), (3, 3), "{messages:?}");
    assert!(messages.iter().all(|message| message.text.contains(PROMPT)));
    scene.expect_nothing_alive();
}

#[test]
fn l96b_prompt_with_any_bytes_arrives_unchanged() {
    let odd =
        "\u{feff}first\n\n  \"quoted\" \\n {curly} \u{2028} tab\t\r\n\u{1f600} \u{0}\u{1} end";
    let scene = Scene::new("say understood");
    fs_err::write(scene.file("odd.md"), odd).unwrap();
    scene
        .claude_bare(&["-P", "odd.md", "--once"])
        .run(LONG)
        .expect_code(0);
    assert!(
        scene.received_messages()[0].contains(odd.trim()),
        "{:?}",
        scene.received_messages()
    );
}

#[test]
fn large_lines_pass_in_both_directions() {
    let scene = Scene::new("big 10M\nsay after it");
    let prompt = "0123456789 ".repeat(100_000);
    fs_err::write(scene.file("long.md"), &prompt).unwrap();
    let ended = scene
        .claude_bare(&["-P", "long.md", "--once"])
        .run(LONG * 2)
        .expect_code(0);
    let last = ended.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("finished: all planned"), "{last}");
    // The screen may omit text after such a line; the transcript does not.
    let logs = scene.rlm(&["logs"]).run(LONG).expect_code(0).stdout;
    assert!(
        logs.contains("after it") && logs.len() > 10_000_000,
        "{}",
        logs.len()
    );
    assert!(scene.received_messages()[0].contains(prompt.trim()));
}

#[test]
fn l96e_unknown_events_are_stored_and_harmless() {
    let scene = Scene::new(
        "noise this is no JSON\nunknown-event\nevent {\"type\": \"assistant\", \"message\": 7}\nsay fine",
    );
    let ended = scene.claude(&["--once"]).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("fine"), "{ended}");
    let logs = scene
        .rlm(&["logs", "--json"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    for word in ["this is no JSON", "of_a_later_version"] {
        assert!(logs.contains(word), "{logs}");
    }
}

#[test]
fn l91c_p40_agent_that_dies_during_its_turn_fails_with_any_exit_code() {
    for (death, said) in [("die KILL", "signal 9"), ("exit 0", "exit status 0")] {
        let script = format!("say half a thought\n@1 warn last words\n@1 {death}\n@2 touch done");
        let scene = Scene::new(&script);
        let ended = scene
            .claude(&["--until", "test -e done"])
            .run(LONG)
            .expect_code(0);
        let words = [
            "iteration 1 ",
            "half a thought",
            "failed",
            said,
            "iteration 2 ",
            "done: ",
        ];
        expect_in_order(&ended.stdout, &words);
        assert_eq!(scene.start_count(), 2);
        scene.expect_nothing_alive();
    }
    let scene = Scene::new("exit 0");
    let ended = scene.claude(&["-n", "9"]).run(LONG).expect_code(6);
    assert_eq!(scene.start_count(), 3);
    assert!(
        ended.stdout.contains("stuck: 3 failed turns in a row"),
        "{ended}"
    );
}

#[test]
fn s6b_failed_turn_with_success_subtype_is_a_failure() {
    let scene = Scene::new(FAILS);
    let ended = scene
        .claude(&["-n", "9", "--max-failures", "2"])
        .run(LONG)
        .expect_code(6);
    assert!(
        ended.stdout.contains("stuck: 2 failed turns in a row"),
        "{ended}"
    );
    assert!(ended.stdout.contains("API Error: 400"), "{ended}");
}

#[test]
fn logged_out_agent_ends_the_run_with_a_hint() {
    // The second script retries for minutes unless `rlm` stops it.
    for script in ["not-logged-in", "retry 401 10"] {
        let scene = Scene::new(script);
        let ended = scene.claude(&["-n", "9"]).run(LONG).expect_code(1);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(
            all.contains("not logged in") && all.contains("log in with"),
            "{ended}"
        );
        assert_eq!(scene.start_count(), 1, "trying again is pointless");
        scene.expect_nothing_alive();
    }
}

#[test]
fn agent_start_failure_shows_the_text_of_the_agent() {
    let scene = Scene::new("refuse error: something of its own");
    let ended = scene.claude(&["-n", "9"]).run(LONG).expect_code(1);
    assert!(ended.stdout.contains("something of its own"), "{ended}");
    let missing = [
        "run",
        "--once",
        "-p",
        "x",
        "--agent",
        "claude",
        "--agent-bin",
        "./nothing",
    ];
    let ended = scene.rlm(&missing).run(LONG).expect_code(2);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(ended.stderr.contains("./nothing"), "{ended}");
}

#[test]
fn j45_c56c_press_ends_the_wait_before_a_retry() {
    let scene = Scene::new("retry 529 9 600000\nsay never");
    let mut running = scene.claude(&["--once"]).spawn();
    says(&mut running, "529");
    let ended = stop(running, Signal::INT);
    assert!(ended.stdout.contains("stopped by a person"), "{ended}");
    scene.expect_nothing_alive();
}

#[test]
fn temporary_service_failure_costs_only_time() {
    let scene = Scene::new("retry 429 2 10\nsay recovered");
    let ended = scene.claude(&["--once"]).run(LONG).expect_code(0);
    expect_in_order(&ended.stdout, &["429", "429", "recovered"]);
}

#[test]
fn j47a_c71a_c71b_signal_interrupts_the_turn_before_ending_processes() {
    for signal in [Signal::INT, Signal::TERM] {
        let scene = Scene::new("say 600000 half an answer");
        let mut running = scene.claude(&["--once", "--json"]).spawn();
        says(&mut running, "half ");
        let ended = stop(running, signal);
        assert!(
            scene.controls().contains(&"interrupt".into()),
            "{:?}",
            scene.controls()
        );
        let session = &scene.agent.messages()[0].session;
        let memories = scene.agent.session(session);
        let partial = SessionEntry::Agent("half ".into());
        assert!(
            memories.contains(&partial),
            "the agent has stored the partial text: {memories:?}"
        );
        let marked = |memory: &SessionEntry| matches!(memory, SessionEntry::Marker(_));
        assert!(memories.iter().any(marked), "{memories:?}");
        let signals = scene.agent.signals();
        assert!(
            signals.is_empty(),
            "the agent ended without a signal: {signals:?}"
        );
        assert!(
            events(&ended.stdout)
                .iter()
                .any(|event| event["event"] == "message" && event["partial"] == true),
            "{ended}"
        );
        let status = scene.status();
        assert_eq!(
            (&status["state"], &status["iterations_complete"]),
            (&"stopped".into(), &0.into())
        );
        assert!(
            text(&status["next"]).contains("iteration 1 again"),
            "{status}"
        );
        scene.expect_nothing_alive();
    }
}

#[test]
fn x101b_x101c_x101e_stop_ends_all_processes_of_a_driven_agent() {
    let children = "child plain\nchild setsid\nchild daemon\nchild holder";
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let scene = Scene::new(&format!("{children}\ntool Bash make\nsay ready\nhang"));
        let mut running = scene.claude(&["--once"]).spawn();
        says(&mut running, "ready");
        assert_eq!(scene.tree_alive(), 5);
        let ended = stop(running, signal);
        assert!(ended.stdout.contains("all processes ended"), "{ended}");
        scene.expect_nothing_alive();
    }
}

#[test]
fn x102a_killed_host_leaves_no_process_of_a_driven_agent() {
    let scene = Scene::new("child setsid\nchild daemon\ntool Bash make\nsay ready\nhang");
    let mut running = scene.claude(&["--once"]).spawn();
    says(&mut running, "ready");
    stop(running, Signal::KILL);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn x127b_processes_of_a_tool_are_ended_and_named() {
    let scene = Scene::new("@1 run sleep 600 >/dev/null 2>&1 & echo $! > pid\nsay on\nturn");
    let ended = scene.claude(&["-n", "2"]).run(LONG).expect_code(0);
    let pid = fs_err::read_to_string(scene.file("pid")).unwrap();
    let named = format!("left running by the agent: {} (sleep)", pid.trim());
    let words = [&named, "iteration 1 complete", "iteration 2"];
    expect_in_order(&ended.stdout, &words);
    assert_eq!(scene.start_count(), 2);
    scene.expect_nothing_alive();
}

#[test]
fn s5b_s5d_silent_agent_is_interrupted_unless_a_tool_runs() {
    let scene = Scene::new(
        "@1 say ready\n@1 hang\n@2 tool Bash make\n@2 delay 2500\n@2 tool-end\n@2 touch done",
    );
    let ended = scene
        .claude(&["--idle-timeout", "1s", "--until", "test -e done"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["iteration 1 ", "ready", "failed", "iteration 2 ", "done: "],
    );
    assert_eq!(scene.start_count(), 2, "{ended}");
    assert!(scene.controls().contains(&"interrupt".into()));
}

#[test]
fn s5a_a_turn_that_takes_too_long_is_interrupted() {
    let scene = Scene::new(
        "@1 say 100 a b c d e f g h i j k l m n o p q r s t u v w x y z\n@1 hang\n@2 touch done",
    );
    let ended = scene
        .claude(&["--iteration-timeout", "1s", "--until", "test -e done"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["iteration 1 ", "failed", "iteration 2 ", "done: "],
    );
    let memories = scene.agent.session(&scene.agent.messages()[0].session);
    assert!(
        memories
            .iter()
            .any(|memory| matches!(memory, SessionEntry::Marker(_))),
        "{memories:?}"
    );
}

#[test]
fn x115a_agent_output_is_harmless() {
    let nasty = "\\e[2J\\e]0;owned\\x07\\e[?1049h\\x08\\x9b31m";
    let script = format!(
        "say good {nasty} bad\ntool Bash echo {nasty}\ntool-end {nasty}\nask Bash {nasty}\nretry 500 1 1\nturn"
    );
    let scene = Scene::new(&script);
    let ended = scene.claude(&["--once"]).run(LONG).expect_code(0);
    for bad in [
        "\u{1b}[2J",
        "\u{1b}]0",
        "\u{1b}[?1049h",
        "\u{8}",
        "\u{9b}",
        "\u{7}",
    ] {
        assert!(!ended.stdout.contains(bad), "{bad:?}: {:?}", ended.stdout);
    }
    assert!(
        ended.stdout.contains("good") && ended.stdout.contains("bad"),
        "{ended}"
    );
    let (running, terminal) = scene.claude(&["--once"]).spawn_on_terminal();
    running.wait(LONG).expect_code(0);
    let text = terminal.text();
    for bad in [
        "\u{1b}[2J",
        "\u{1b}]0;owned",
        "\u{1b}[?1049h",
        "\u{8}",
        "\u{9b}",
    ] {
        assert!(!text.contains(bad), "{bad:?}: {text:?}");
    }
}

#[test]
fn s19a_s19b_the_status_shows_where_the_run_is() {
    let scene = Scene::new("say one two three\n@1 turn\n@2 hang");
    let mut running = scene.claude(&["-n", "5"]).spawn();
    scene.wait_until_started(2);
    wait_for("the second iteration in the status", LONG, || {
        (scene.status()["iteration"] == 2).then_some(())
    });
    let status = scene.status();
    let messages = wait_for("the second message", LONG, || {
        let messages = scene.agent.messages();
        (messages.len() == 2).then_some(messages)
    });
    assert_eq!(status["session"], messages[1].session.as_str(), "{status}");
    assert_eq!(status["state"], "running");
    assert_eq!(status["iterations_complete"], 1);
    assert_eq!(status["last_outcome"], "iteration 1 complete");
    assert!(
        status["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0),
        "{status}"
    );
    let shown = scene.rlm(&["status"]).run(LONG).expect_code(0).stdout;
    assert!(shown.contains("running, iteration 2"), "{shown}");
    assert!(shown.contains("age     "), "{shown}");
    assert!(status["age_s"].is_u64(), "{status}");
    for value in [&status["run"], &status["session"], &status["last_outcome"]] {
        assert!(shown.contains(&text(value)), "{value}: {shown}");
    }
    assert!(!running.has_ended());
    stop(running, Signal::INT);
}

#[test]
fn every_line_of_json_output_is_an_event_object() {
    let scene = Scene::new(
        "say one two\nrun echo hi\nask Bash rm\nevent {\"type\": \"rate_limit_event\", \"rate_limit_info\": {\"status\": \"allowed_warning\"}}\nsay end",
    );
    let ended = scene.claude(&["--once", "--json"]).run(LONG).expect_code(0);
    let events = events(&ended.stdout);
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!(
        (
            of("message"),
            of("tool_started"),
            of("tool_finished"),
            of("permission_denied")
        ),
        (2, 2, 2, 1),
        "{ended}"
    );
    let said: String = events
        .iter()
        .filter(|event| event["event"] == "text")
        .map(|event| text(&event["text"]))
        .collect();
    assert_eq!(said, "one twoend");
    let end: &Value = events.last().unwrap();
    assert_eq!(
        (&end["event"], &end["exit_code"]),
        (&"run_ended".into(), &0.into()),
        "{end}"
    );
}

#[test]
fn run_leaves_no_undelivered_message() {
    let scene = Scene::new("say one");
    scene.claude(&["-n", "3"]).run(LONG).expect_code(0);
    let taken: Vec<_> = scene
        .agent
        .messages()
        .iter()
        .map(|message| message.taken)
        .collect();
    assert_eq!(taken, [Some(MessageState::Began(1)); 3]);
}
