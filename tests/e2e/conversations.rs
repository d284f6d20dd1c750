//! The fake agent in a conversation behaves like recordings of the real CLI.

use rlm_tests::agent::{FakeAgent, MessageState, SessionEntry};
use rlm_tests::{Sandbox, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent_pipes::AgentPipes;
use crate::{FAKE_AGENT, LONG};

fn scene(script: &str) -> (Sandbox, FakeAgent) {
    let sandbox = Sandbox::new();
    let agent = sandbox.fake_agent(FAKE_AGENT, script);
    (sandbox, agent)
}

#[test]
fn turn_has_the_lines_of_the_real_cli_in_order() {
    let (sandbox, agent) = scene("say hello to you\nrun echo hi; exit 3\nsay done");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    assert!(
        talk.lines.try_recv().is_err(),
        "it writes only after a message"
    );
    talk.say("go");
    let result = talk.result();
    assert_eq!(result["result"], "done");
    assert_eq!(result["total_cost_usd"], 0.03);
    talk.until("completion", |line| line["state"] == "completed");
    insta::assert_snapshot!(talk.names());
    talk.say("again");
    assert_eq!(
        talk.result()["total_cost_usd"],
        0.04,
        "a turn without a script is one call"
    );
    assert_eq!(talk.end(), (Some(0), String::new()));
    let turns: Vec<_> = agent
        .messages()
        .iter()
        .map(|message| message.taken)
        .collect();
    assert_eq!(
        turns,
        [Some(MessageState::Began(1)), Some(MessageState::Began(2))]
    );
}

#[test]
fn message_joins_turn_during_tool_and_waits_during_text() {
    let (sandbox, agent) = scene(
        "tool Bash make\nexpect-steer\nexpect-steer\ntool-end made\nsay 5 a b\nawait go\nturn\necho",
    );
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    let first = talk.say("go");
    talk.until("tool", |line| {
        line["message"]["content"][0]["type"] == "tool_use"
    });
    let second = talk.say("use tabs");
    let result_of_tool = |line: &Value| line["message"]["content"][0]["content"] == "made";
    talk.until("the tool's end", result_of_tool);
    talk.until_delta("b");
    let third = talk.say("and be quick");
    let fourth = talk.say("please");
    wait_for("all four", LONG, || {
        (agent.messages().len() == 4).then_some(())
    });
    fs_err::write(sandbox.repo().join("go"), "").unwrap();
    assert_eq!(talk.result()["user_message_uuids"], json!([first, second]));
    let result = talk.result();
    assert_eq!(result["user_message_uuids"], json!([third, fourth]));
    assert_eq!(
        result["result"], "and be quick | please",
        "one turn for all queued messages"
    );
    let taken: Vec<_> = agent
        .messages()
        .iter()
        .filter_map(|message| message.taken)
        .collect();
    assert_eq!(
        taken,
        [
            MessageState::Began(1),
            MessageState::Folded(1),
            MessageState::Began(2),
            MessageState::Began(2)
        ]
    );
    insta::assert_snapshot!(talk.names());
}

#[test]
fn an_interrupt_keeps_the_partial_text_and_the_process() {
    let (sandbox, agent) = scene("say 600000 one two\nhang\nturn\nsay next");
    let mut talk = AgentPipes::begin(
        &sandbox,
        &agent,
        &["--session-id=6a4c8b1e-0d5f-4f8e-9a33-0d2d7c1b9f10"],
    );
    talk.say("go");
    talk.until_delta("one ");
    let queued = talk.say("then this");
    talk.until("receipt", |line| line["state"] == "queued");
    talk.control(&json!({"subtype": "interrupt"}));
    let receipt = talk.until("receipt", |line| line["type"] == "control_response");
    assert_eq!(
        receipt["response"]["response"]["still_queued"],
        json!([queued])
    );
    talk.names();
    let result = talk.result();
    assert_eq!(
        (&result["is_error"], &result["result"]),
        (&true.into(), &Value::Null)
    );
    assert!(
        !talk.show().contains("content_block_delta"),
        "{}",
        talk.show()
    );
    assert_eq!(talk.result()["result"], "next");
    insta::assert_snapshot!(talk.names());
    let said = agent.session("6a4c8b1e-0d5f-4f8e-9a33-0d2d7c1b9f10");
    assert!(
        matches!(&said[1..4], [SessionEntry::User(_), SessionEntry::Agent(partial), SessionEntry::Marker(_)] if partial == "one "),
        "{said:?}"
    );
    talk.control(&json!({"subtype": "interrupt"}));
    let idle = talk.until("receipt", |line| line["type"] == "control_response");
    assert_eq!(idle["response"]["response"]["still_queued"], json!([]));
    assert_eq!(
        talk.end().0,
        Some(0),
        "an interrupt without a turn has no effect"
    );
}

#[test]
fn interrupt_can_drop_queued_messages_and_ends_the_tool_tree() {
    let (sandbox, agent) = scene("run trap '' INT TERM; sleep 600 & sleep 600");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    talk.say("go");
    talk.until("tool", |line| line["type"] == "assistant");
    wait_for("the sleeps", LONG, || {
        let alive = sandbox.survivors().scan();
        (alive
            .iter()
            .filter(|process| process.name == "sleep")
            .count()
            == 2)
            .then_some(())
    });
    talk.say("never");
    talk.control(&json!({"subtype": "interrupt", "cancel_queued": true}));
    assert_eq!(talk.result()["terminal_reason"], "aborted_tools");
    insta::assert_snapshot!(talk.names());
    wait_for("the end of the tool", LONG, || {
        let alive = sandbox.survivors().scan();
        (alive.iter().filter(|process| !process.is_zombie()).count() == 1).then_some(())
    });
    assert_eq!(agent.messages()[1].taken, Some(MessageState::Cancelled));
    assert_eq!(talk.end().0, Some(1), "the last result was an error");
}

#[test]
fn p53_agent_answers_control_requests_unless_its_script_ignores_them() {
    let (sandbox, agent) = scene("deaf interrupt\nsay 5 a b c d e f");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    let ask = |talk: &mut AgentPipes, request: Value| {
        talk.control(&request);
        talk.until("answer", |line| line["type"] == "control_response")["response"].clone()
    };
    assert_eq!(
        ask(&mut talk, json!({"subtype": "initialize"}))["subtype"],
        "success"
    );
    let refused = ask(&mut talk, json!({"subtype": "nonsense"}));
    assert_eq!(refused["error_code"], "unsupported_request");
    let mode = json!({"subtype": "set_permission_mode", "mode": "plan"});
    assert_eq!(ask(&mut talk, mode)["response"]["mode"], "plan");
    let mode = json!({"subtype": "set_permission_mode", "mode": "bad"});
    assert_eq!(ask(&mut talk, mode)["error_code"], "invalid_mode");
    talk.say("go");
    talk.until_delta("a ");
    talk.control(&json!({"subtype": "interrupt"}));
    assert_eq!(
        talk.result()["subtype"],
        "success",
        "the turn continues normally"
    );
    talk.control(&json!({"subtype": "end_session"}));
    assert_eq!(talk.wait().0, Some(0));
    let names: Vec<_> = agent
        .controls()
        .into_iter()
        .map(|control| control.subtype)
        .collect();
    assert_eq!(
        names,
        [
            "initialize",
            "nonsense",
            "set_permission_mode",
            "set_permission_mode",
            "interrupt",
            "end_session"
        ]
    );
}

#[test]
fn permission_request_is_sent_and_its_answer_obeyed() {
    let (sandbox, agent) =
        scene("ask Bash touch allowed\nask Bash touch denied\nask Edit file\nsay so");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &["--permission-mode", "acceptEdits"]);
    talk.say("go");
    let answer = |talk: &mut AgentPipes, verdict: Value| {
        let ask = talk.until("question", |line| line["type"] == "control_request");
        assert_eq!(ask["request"]["subtype"], "can_use_tool");
        let response =
            json!({"subtype": "success", "request_id": ask["request_id"], "response": verdict});
        talk.write(&json!({"type": "control_response", "response": response}).to_string());
    };
    answer(&mut talk, json!({"behavior": "allow", "updatedInput": {}}));
    answer(
        &mut talk,
        json!({"behavior": "deny", "message": "not today"}),
    );
    let result = talk.result();
    assert_eq!(
        result["permission_denials"][0]["tool_input"]["command"],
        "touch denied"
    );
    assert!(sandbox.repo().join("allowed").exists() && !sandbox.repo().join("denied").exists());
    let answers = agent.answers();
    assert_eq!(answers.len(), 2, "its mode allows the third: {answers:?}");
    assert_eq!(
        (answers[1].summary.as_str(), answers[1].message.as_str()),
        ("touch denied", "not today")
    );
    assert!(
        talk.show().contains("tool_result not today"),
        "{}",
        talk.show()
    );
}

#[test]
fn interrupt_withdraws_a_permission_request() {
    let (sandbox, agent) = scene("ask Bash touch never");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    talk.say("go");
    talk.until("question", |line| line["type"] == "control_request");
    talk.names();
    talk.control(&json!({"subtype": "interrupt"}));
    talk.result();
    insta::assert_snapshot!(talk.names());
    assert!(!sandbox.repo().join("never").exists());
}

#[test]
fn fake_agent_ends_like_the_real_one() {
    let (sandbox, agent) = scene("say 20 a b c d\nturn\nhang");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    talk.say("go");
    talk.until_delta("a ");
    talk.stdin = None;
    assert_eq!(
        talk.wait(),
        (Some(0), String::new()),
        "it finishes after the end of stdin"
    );
    assert!(
        talk.show().contains("result success completed"),
        "{}",
        talk.show()
    );

    let ends = [
        (Signal::INT, 0, true),
        (Signal::TERM, 143, false),
        (Signal::HUP, 129, false),
    ];
    for (signal, code, has_result) in ends {
        let (sandbox, agent) = scene("say 600000 a b");
        let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
        talk.say("go");
        talk.until_delta("a ");
        kill_process(Pid::from_child(&talk.child), signal).unwrap();
        assert_eq!(talk.wait().0, Some(code), "{signal:?}");
        assert_eq!(
            talk.show().contains("aborted_streaming"),
            has_result,
            "{signal:?}"
        );
    }
}

#[test]
fn fake_agent_exits_at_a_line_that_is_no_object() {
    for bad in [
        "hello",
        "",
        "\u{feff}{}",
        "{}{}",
        "{\"type\": \"guess\"}",
        "{\"type\": \"user\"}",
    ] {
        let (sandbox, agent) = scene("say a");
        let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
        talk.write(bad);
        let (code, stderr) = talk.wait();
        assert_eq!(code, Some(99), "{bad:?}: {stderr}");
    }
    let (sandbox, agent) = scene("say a");
    let (code, stderr) = AgentPipes::begin(&sandbox, &agent, &["--sesion-id=x"]).end();
    assert_eq!(
        (code, stderr.contains("unknown option")),
        (Some(1), true),
        "{stderr}"
    );
    assert!(agent.starts().is_empty());
}

#[test]
fn sessions_are_known_after_a_crash_and_unknown_ids_are_refused() {
    let (id, other) = (
        "11111111-2222-4333-8444-555555555555",
        "11111111-2222-4333-8444-666666666666",
    );
    let (sandbox, agent) = scene("@1 say first\n@1 turn\n@1 die KILL\n@2.. recall");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &["--session-id", id]);
    talk.say("one");
    talk.result();
    talk.say("two");
    assert_eq!(talk.wait().0, None);
    let mut talk = AgentPipes::begin(&sandbox, &agent, &["--resume", id]);
    talk.say("three");
    let result = talk.result();
    assert_eq!(result["result"], "told: one | two | three");
    assert_eq!(
        result["total_cost_usd"], 0.01,
        "totals are saved only at an orderly end"
    );
    assert_eq!(talk.end().0, Some(0));
    let mut talk = AgentPipes::begin(&sandbox, &agent, &["--resume", id]);
    talk.say("four");
    assert_eq!(talk.result()["total_cost_usd"], 0.02);
    assert_eq!(talk.end().0, Some(0));

    let mut talk = AgentPipes::begin(&sandbox, &agent, &["--resume", other]);
    let (code, stderr) = talk.wait();
    assert_eq!(
        (code, stderr.trim()),
        (
            Some(1),
            "No conversation found with session ID: 11111111-2222-4333-8444-666666666666"
        )
    );
    assert_eq!(talk.heard[0]["subtype"], "error_during_execution");
    let (code, stderr) = AgentPipes::begin(&sandbox, &agent, &["--session-id", id]).end();
    assert_eq!(
        (code, stderr.contains("already in use")),
        (Some(1), true),
        "{stderr}"
    );
}

#[test]
fn the_service_fails_as_scripted() {
    let (sandbox, agent) =
        scene("retry 429 2 1\nsay well\nturn\nretry 401 10 1\nsay never\nturn\nnot-logged-in");
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    talk.say("go");
    assert_eq!(talk.result()["result"], "well");
    assert_eq!(
        talk.heard
            .iter()
            .filter(|line| line["error_status"] == 429)
            .count(),
        2
    );
    talk.say("go");
    let result = talk.result();
    assert_eq!(
        (
            &result["api_error_status"],
            &result["is_error"],
            &result["subtype"]
        ),
        (&401.into(), &true.into(), &"success".into())
    );
    talk.say("go");
    assert_eq!(
        talk.result()["result"],
        "Not logged in \u{b7} Please run /login"
    );
    assert_eq!(talk.end().0, Some(1));
}

#[test]
fn p53_fake_agent_can_send_unexpected_lines() {
    let (sandbox, agent) = scene(
        "noise not JSON at all\nunknown-event\nbig 3M\nevent {\"type\": \"rate_limit_event\"}",
    );
    let mut talk = AgentPipes::begin(&sandbox, &agent, &[]);
    talk.say("go");
    let result = talk.result();
    assert_eq!(result["result"].as_str().unwrap().len(), 3 << 20);
    let noise = |line: &Value| line["noise"] == "not JSON at all";
    assert!(talk.heard.iter().any(noise), "{}", talk.show());
    assert!(talk.show().contains("of_a_later_version\n"));
    let event = talk
        .heard
        .iter()
        .find(|line| line["type"] == "rate_limit_event");
    assert!(event.unwrap()["session_id"].is_string());
}
