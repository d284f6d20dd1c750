//! Tests of permission requests and their answers.

use super::*;
use crate::codex::protocol::permissions::{ANSWERED, ASKS as ASKED};
use agent_duplex::PermissionRequest;

#[test]
fn p17b_unknown_request_is_refused_once() {
    let mut session = opened();
    // The agent's ids are independent of the driver's pending ones.
    let (_, outcome) = say(&mut session, "work");
    assert_eq!(id(&outcome), 3);
    let request = json!({"id": 3, "method": "item/tool/call", "params": {}});
    let outcome = hear(&mut session, &request);
    assert_eq!(written(&outcome)[0]["error"]["code"], -32601);
    assert_eq!(written(&outcome)[0]["id"], 3);
    assert!(hear(&mut session, &request).lines.is_empty());
    ok(&mut session, &json!(3), json!({"turn": {"id": "a"}}));
    let outcome = tell(&mut session, "turn/started", json!({"turn": {"id": "a"}}));
    assert_eq!(outcome.events.len(), 1);
}

#[test]
fn p17a_permission_requests_are_limited_and_each_answered() {
    let mut session = opened_with(Permissions::Ask);
    begin(&mut session, "a");
    let mut asked = |n: usize, method: &str| {
        let params = json!({"command": "make"});
        let line = json!({"id": n, "method": method, "params": params});
        let outcome = hear(&mut session, &line);
        let open = matches!(outcome.events[..], [Event::PermissionRequested(_)]);
        let denied = matches!(outcome.events[..], [Event::PermissionDenied { .. }]);
        (open, denied, outcome.lines.len())
    };
    let command = "item/commandExecution/requestApproval";
    assert!((0..ASKED).all(|n| asked(n, command) == (true, false, 0)));
    assert_eq!(asked(ASKED, command), (false, true, 1));
    // A form of an MCP server is no permission request.
    let form = "mcpServer/elicitation/request";
    assert_eq!(asked(ASKED + 1, form), (false, false, 1));
    // Each request is answered once, as long as its id is remembered.
    let unknown = "item/tool/call";
    let others = 1000..1000 + ANSWERED;
    assert!(others.clone().all(|n| asked(n, unknown).2 == 1));
    assert!(others.clone().all(|n| asked(n, unknown).2 == 0));
    assert_eq!(asked(others.end, unknown).2, 1);
    assert!(others.clone().skip(1).all(|n| asked(n, unknown).2 == 0));
    assert_eq!(
        asked(others.start, unknown).2,
        1,
        "the oldest id is forgotten"
    );
}

/// Every kind of permission request, with its answers for an approval and for a denial.
const ASKS: [(&str, &str, &str, &str); 6] = [
    (
        "item/commandExecution/requestApproval",
        r#"{"command": "make"}"#,
        r#"{"decision":"accept"}"#,
        r#"{"decision":"decline"}"#,
    ),
    (
        "item/fileChange/requestApproval",
        r#"{"grantRoot": "/x", "reason": "more"}"#,
        r#"{"decision":"accept"}"#,
        r#"{"decision":"decline"}"#,
    ),
    (
        "item/permissions/requestApproval",
        r#"{"permissions": {"network": {"enabled": true}}}"#,
        r#"{"permissions":{"network":{"enabled":true}},"scope":"turn"}"#,
        r#"{"permissions":{},"scope":"turn"}"#,
    ),
    (
        "execCommandApproval",
        r#"{"command": ["make", "all"]}"#,
        r#"{"decision":"approved"}"#,
        r#"{"decision":{"denied":{"rejection":"no"}}}"#,
    ),
    (
        "applyPatchApproval",
        r#"{"fileChanges": {"/x/y": {}}}"#,
        r#"{"decision":"approved"}"#,
        r#"{"decision":{"denied":{"rejection":"no"}}}"#,
    ),
    (
        "mcpServer/elicitation/request",
        r#"{"serverName": "s", "message": "may I?", "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_name": "t", "tool_params": {"a": 1}}}"#,
        r#"{"action":"accept","content":{}}"#,
        r#"{"action":"decline"}"#,
    ),
];

#[test]
fn p17a_each_permission_request_is_answered_in_its_own_format() {
    let mut asks = String::new();
    for allow in [true, false] {
        let mut session = opened_with(Permissions::Ask);
        begin(&mut session, "a");
        for (n, (method, params, yes, no)) in ASKS.into_iter().enumerate() {
            let params: Value = serde_json::from_str(params).unwrap();
            let outcome = hear(
                &mut session,
                &json!({"id": n, "method": method, "params": params}),
            );
            let [Event::PermissionRequested(ask)] = &outcome.events[..] else {
                panic!("{method}: {outcome:?}");
            };
            let PermissionRequest {
                id,
                tool,
                summary,
                reason,
            } = ask;
            writeln!(asks, "{id} {tool}: {summary} ({reason})").unwrap();
            let decision = match allow {
                true => Decision::Allow,
                false => Decision::Deny {
                    message: "no".to_owned(),
                },
            };
            let line = session.answer(id, &decision).unwrap();
            let line: Value = serde_json::from_slice(&line).unwrap();
            session.answer_sent(id);
            let expected: Value = serde_json::from_str(if allow { yes } else { no }).unwrap();
            assert_eq!(line, json!({"id": n, "result": expected}));
            assert_eq!(
                session.answer(id, &decision),
                None,
                "a request is answered once"
            );
        }
    }
    insta::assert_snapshot!("asks", asks);
}

#[test]
fn x124f_denial_text_is_sent_first() {
    let said = |turn: &str, message: &str| {
        let mut session = opened_with(Permissions::Ask);
        begin(&mut session, "a");
        let method = "item/commandExecution/requestApproval";
        let params = json!({"threadId": THREAD, "turnId": turn, "command": "make"});
        let line = json!({"id": 0, "method": method, "params": params});
        hear(&mut session, &line);
        let message = message.to_owned();
        let lines = session.answer("0", &Decision::Deny { message }).unwrap();
        session.answer_sent("0");
        let outcome = LineOutcome {
            events: Vec::new(),
            lines: lines
                .split_inclusive(|b| *b == b'\n')
                .map(<[u8]>::to_vec)
                .collect(),
        };
        (session, written(&outcome))
    };
    let (mut session, lines) = said("a", "the user is away");
    let [word, answer] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(word["params"]["expectedTurnId"], "a");
    let text = "The call was not allowed. the user is away";
    assert_eq!(word["params"]["input"][0]["text"], text);
    assert_eq!(answer["result"]["decision"], "decline");
    // The agent can accept or refuse this text, but the text is not a message of the client.
    let outcome = refuse(&mut session, &word["id"]);
    assert!(outcome.events.is_empty() && outcome.lines.is_empty());
    let item =
        json!({"type": "userMessage", "id": "u", "content": [{"type": "text", "text": text}]});
    let outcome = tell(
        &mut session,
        "item/started",
        json!({"turnId": "a", "item": item}),
    );
    assert!(outcome.events.is_empty(), "{outcome:?}");
    let outcome = complete(&mut session, "a", "completed");
    assert_eq!(
        (reasons(&outcome), outcome.lines.len()),
        (vec![EndReason::Completed], 0)
    );
    // The denial has no text, or the request belongs to another turn.
    for (turn, message) in [("a", ""), ("b", "no")] {
        assert_eq!(said(turn, message).1.len(), 1);
    }
    // The answer itself contains the text, or the turn is about to end.
    for (method, interrupts) in [
        ("execCommandApproval", false),
        ("item/commandExecution/requestApproval", true),
    ] {
        let mut session = opened_with(Permissions::Ask);
        begin(&mut session, "a");
        let params = json!({"threadId": THREAD, "turnId": "a", "command": "make"});
        let line = json!({"id": 0, "method": method, "params": params});
        hear(&mut session, &line);
        if interrupts {
            session.interrupt(false);
        }
        let message = "no".to_owned();
        let answer = session.answer("0", &Decision::Deny { message }).unwrap();
        let lines = answer.iter().filter(|byte| **byte == b'\n');
        assert_eq!(lines.count(), 1, "{method}");
    }
}

#[test]
fn x124f_fully_permitted_agent_is_not_asked() {
    for (permissions, asks) in [
        (Permissions::Ask, true),
        (Permissions::All, false),
        (Permissions::Edits, true),
        (Permissions::Deny, true),
    ] {
        let mut session = opened_with(permissions);
        begin(&mut session, "a");
        let params = json!({"command": "make"});
        let method = "item/commandExecution/requestApproval";
        let outcome = hear(
            &mut session,
            &json!({"id": 0, "method": method, "params": params}),
        );
        let asked = matches!(outcome.events[..], [Event::PermissionRequested(_)]);
        let answers = written(&outcome);
        let answer = answers.first().map(|line| &line["result"]["decision"]);
        let allowed = (!asks).then(|| json!("accept"));
        assert_eq!((asked, answer), (asks, allowed.as_ref()));
    }
}

#[test]
fn p18_withdrawn_permission_request_gets_no_answer() {
    let mut session = opened_with(Permissions::Ask);
    begin(&mut session, "a");
    let method = "item/commandExecution/requestApproval";
    let request = |n: u32| json!({"id": n, "method": method, "params": {}});
    hear(&mut session, &request(0));
    hear(&mut session, &request(1));
    let withdrawn = |id: &str| Event::PermissionWithdrawn { id: id.to_owned() };
    let outcome = tell(
        &mut session,
        "serverRequest/resolved",
        json!({"requestId": 0}),
    );
    assert_eq!(outcome.events, [withdrawn("0")]);
    let outcome = complete(&mut session, "a", "interrupted");
    assert_eq!(outcome.events[0], withdrawn("1"));
    for ask in ["0", "1", "2"] {
        assert_eq!(session.answer(ask, &Decision::Allow), None);
    }
    let outcome = tell(
        &mut session,
        "serverRequest/resolved",
        json!({"requestId": 1}),
    );
    assert!(outcome.events.is_empty());
}
