//! Tests of the open parts of a turn: calls, and partial texts.

use super::delivery::{status, with_messages};
use super::*;
use crate::claude::protocol::summary::summary;

/// Begins a turn with an open call `t`.
fn calling() -> Session {
    let (mut session, [_]) = with_messages();
    hear(&mut session, &status());
    let call = json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {}});
    let line = json!({"type": "assistant", "message": {"content": [call]}});
    hear(&mut session, &line);
    session
}

/// Returns the outcome of the call for its result and the metadata of the result.
fn outcome(session: &mut Session, is_error: bool, meta: &Value) -> ToolOutcome {
    let returned = json!({"type": "tool_result", "tool_use_id": "t", "is_error": is_error});
    let line =
        json!({"type": "user", "message": {"content": [returned]}, "tool_result_meta": meta});
    match hear(session, &line).pop() {
        Some(Event::ToolFinished { outcome, .. }) => outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn subagent_text_is_not_an_answer() {
    let (mut session, [_]) = with_messages();
    hear(&mut session, &status());
    let line = json!({"type": "assistant", "parent_tool_use_id": "t0", "message": {"content": [
        {"type": "text", "text": "inner"}, {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a\nb"}},
    ]}});
    let events = hear(&mut session, &line);
    let [Event::ToolStarted { id, summary, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((&**id, &**summary), ("t1", "a b"));
    let delta = json!({"type": "stream_event", "parent_tool_use_id": "t0", "event": {
        "type": "content_block_delta", "delta": {"type": "text_delta", "text": "inner"}}});
    assert_eq!(hear(&mut session, &delta), []);
    let progress = |id: &str| json!({"type": "tool_progress", "tool_use_id": id});
    let goes_on = Event::ToolProgress {
        id: "t1".to_owned(),
    };
    assert_eq!(hear(&mut session, &progress("t1")), [goes_on]);
    assert_eq!(hear(&mut session, &progress("t2")), []);
    let end = json!({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
        {"type": "text", "text": "é".repeat(4000)}, {"type": "image"}]}]}});
    let events = hear(&mut session, &end);
    let [
        Event::ToolFinished {
            outcome: ToolOutcome::Succeeded,
            text,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(text.len(), 4096);
}

#[test]
fn calls_are_shown_on_one_line() {
    let shown = [
        (
            "Bash",
            json!({"command": "cat <<E\n\ta\u{1b}[2J\nE\n", "timeout": 5}),
        ),
        ("LS", json!({"path": "/p", "ignore": ["x"]})),
        ("Edit", json!({"file_path": "/a/b", "old_string": "c"})),
        ("NotebookEdit", json!({"notebook_path": "/n"})),
        (
            "Grep",
            json!({"pattern": "x.*", "path": "/etc", "-n": true}),
        ),
        ("Glob", json!({"pattern": "*.rs"})),
        (
            "WebFetch",
            json!({"url": "http://localhost", "prompt": "sum up"}),
        ),
        ("WebSearch", json!({"query": "why"})),
        ("Task", json!({"description": "look", "prompt": "at all"})),
        ("AskUserQuestion", json!({"question": "which?", "n": 1})),
        ("Bash", json!({"script": "odd"})),
        ("Bash", json!({"command": "é".repeat(1000)})),
        ("Bash", json!({})),
        ("Bash", json!(null)),
    ]
    .map(|(tool, input)| {
        let call = json!({"input": input}).to_string();
        summary(tool, &Object::parse(&call).unwrap())
    });
    assert_eq!(shown[11].chars().count(), 401);
    let shown: Vec<&str> = shown
        .iter()
        .map(|text| text.get(..60).unwrap_or(text))
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    cat <<E a [2J E
    /p
    /a/b
    /n
    x.* in /etc
    *.rs
    http://localhost
    why
    look
    {"n":1,"question":"which?"}
    {"script":"odd"}
    éééééééééééééééééééééééééééééé

    null
    "#);
}

#[test]
fn permission_request_for_unknown_tool_shows_all_inputs() {
    let asked = |tool: &str, input: Value| {
        let (mut session, [_]) = with_messages();
        let request = json!({"subtype": "can_use_tool", "tool_name": tool, "input": input});
        let line = json!({"type": "control_request", "request_id": "a", "request": request});
        match hear(&mut session, &line).pop() {
            Some(Event::PermissionRequested(ask)) => ask.summary,
            other => panic!("{other:?}"),
        }
    };
    let input = json!({"command": "ls", "host": "production"});
    let shown = asked("mcp__remote__run", input.clone());
    assert_eq!(shown, r#"{"command":"ls","host":"production"}"#);
    assert_eq!(asked("mcp__remote__Bash", input.clone()), shown);
    assert_eq!(asked("Bash", input), "ls");
    let long = asked(
        "mcp__remote__run",
        json!({"a": "x".repeat(1000), "host": "b"}),
    );
    assert!(long.ends_with('…') && long.chars().count() == 401, "{long}");
}

#[test]
fn x124f_failed_call_counts_as_denied_after_a_denial() {
    let message = "no".to_owned();
    for (decision, expected) in [
        (Decision::Allow, ToolOutcome::Failed),
        (Decision::Deny { message }, ToolOutcome::Denied),
    ] {
        let mut session = calling();
        let request = json!({"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t"});
        let ask = json!({"type": "control_request", "request_id": "a", "request": request});
        hear(&mut session, &ask);
        session.answer_sent("a", &decision);
        assert_eq!(outcome(&mut session, true, &json!([])), expected);
    }
}

#[test]
fn p25c_call_outcome_comes_from_the_fields_beside_its_result() {
    let reject = json!({"id": "t", "permission_decision": {"decision": "reject"}});
    let kind = |kind: &str| json!({"id": "t", "non_execution_kind": kind});
    for (is_error, meta, expected) in [
        (false, reject.clone(), ToolOutcome::Succeeded),
        (true, json!({"id": "t"}), ToolOutcome::Failed),
        (true, reject, ToolOutcome::Denied),
        (true, kind("permission-rule"), ToolOutcome::Denied),
        (true, kind("user-rejected"), ToolOutcome::Interrupted),
    ] {
        let meta = json!([{"id": "x", "non_execution_kind": "other"}, meta]);
        assert_eq!(outcome(&mut calling(), is_error, &meta), expected, "{meta}");
    }
}

#[test]
fn p25b_interrupted_text_is_reported_as_far_as_received() {
    let event = |event: Value| json!({"type": "stream_event", "event": event});
    let delta = |text: &str| {
        event(json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}))
    };
    for begins in ["message_start", "content_block_start"] {
        let (mut session, [_]) = with_messages();
        hear(&mut session, &status());
        hear(&mut session, &delta("lost"));
        hear(&mut session, &event(json!({"type": begins})));
        let piece = "x".repeat(1 << 20);
        for _ in 0..5 {
            hear(&mut session, &delta(&piece));
        }
        let thought = json!({"type": "thinking_delta", "thinking": "hm"});
        let line = event(json!({"type": "content_block_delta", "delta": thought}));
        let events = hear(&mut session, &line);
        assert_eq!(events, [Event::ThinkingDelta("hm".to_owned())]);
        let whole = Event::Message {
            text: piece.repeat(4),
            partial: true,
        };
        let events = session.exited(ExitStatus::Signal(9), String::new());
        assert!(events[0] == whole, "{begins}");
    }
}
