//! Tests of the agent's items and errors.

use super::*;
use crate::codex::protocol::item;

#[test]
fn p25c_every_kind_of_call_has_a_name_a_summary_and_an_end() {
    let kinds = [
        json!({"type": "commandExecution", "command": "make", "aggregatedOutput": "made"}),
        json!({"type": "fileChange", "changes": [{"path": "/a"}, {"path": "/b"}]}),
        json!({"type": "mcpToolCall", "server": "s", "tool": "t", "arguments": {"a": 1}, "error": {"message": "no"}}),
        json!({"type": "dynamicToolCall", "tool": "d", "arguments": "as it is", "success": false,
            "contentItems": [{"text": "one"}, {"image": 1}, {"text": "two"}]}),
        json!({"type": "collabAgentToolCall", "tool": "spawn", "prompt": "look", "status": "cancelled"}),
        json!({"type": "webSearch", "query": "why", "status": "interrupted"}),
        json!({"type": "imageView", "path": "/i", "success": true}),
        json!({"type": "imageGeneration"}),
        json!({"type": "sleep", "durationMs": 5}),
        json!({"type": "agentMessage", "text": "no call"}),
    ];
    let shown = kinds.map(|item| {
        let (outcome, result) = (item::outcome(&item), item::result(&item));
        format!(
            "{:?} {:?} {outcome:?} {result:?}",
            item::tool(&item),
            item::summary(&item)
        )
    });
    insta::assert_snapshot!(shown.join("\n"), @r#"
    Some("shell") "make" Succeeded "made"
    Some("apply_patch") "/a, /b" Succeeded ""
    Some("mcp__s__t") "{\"a\":1}" Failed "no"
    Some("d") "as it is" Failed "one\ntwo"
    Some("spawn") "look" Interrupted ""
    Some("web_search") "why" Interrupted ""
    Some("view_image") "/i" Succeeded ""
    Some("image_generation") "" Succeeded ""
    Some("sleep") "5 ms" Succeeded ""
    None "" Succeeded ""
    "#);
}

#[test]
fn p54_turn_end_has_service_text_and_hint() {
    let ended = |status: &str, kind: &str, message: &str| {
        let mut session = opened();
        begin(&mut session, "a");
        let error = json!({"message": message, "codexErrorInfo": kind});
        let params = json!({"turnId": "a", "willRetry": false, "error": error});
        tell(&mut session, "error", params);
        match complete(&mut session, "a", status).events.pop() {
            Some(Event::TurnCompleted(end)) => (end.reason, end.detail),
            other => panic!("{other:?}"),
        }
    };
    let with_hint = format!("no; {LOG_IN}");
    for (status, kind, message, reason, detail) in [
        ("completed", "other", "once", EndReason::Completed, ""),
        ("interrupted", "other", "once", EndReason::Interrupted, ""),
        ("failed", "unauthorized", "", EndReason::NotLoggedIn, LOG_IN),
        (
            "failed",
            "unauthorized",
            "no",
            EndReason::NotLoggedIn,
            &with_hint,
        ),
        (
            "failed",
            "badRequest",
            r#"{"error":{"message":"inner"}}"#,
            EndReason::Failed,
            "inner",
        ),
        (
            "failed",
            "badRequest",
            r#"{"error":1}"#,
            EndReason::Failed,
            r#"{"error":1}"#,
        ),
        ("tomorrow", "other", "odd", EndReason::ProtocolError, "odd"),
    ] {
        let expected = (reason, detail.to_owned());
        assert_eq!(ended(status, kind, message), expected, "{status} {kind}");
    }
}

#[test]
fn service_model_change_is_reported() {
    let mut session = opened();
    begin(&mut session, "a");
    let reset = Event::ContextReset {
        reason: "compacted".to_owned(),
    };
    let outcome = tell(&mut session, "thread/compacted", json!({"turnId": "a"}));
    assert_eq!(outcome.events, std::slice::from_ref(&reset));
    let outcome = tell(&mut session, "thread/compacted", json!({"turnId": "a"}));
    assert_eq!(outcome.events, [], "reported once per turn");
    let outcome = tell(&mut session, "thread/compacted", json!({"turnId": "x"}));
    assert_eq!(outcome.events, [reset]);

    let outcome = tell(
        &mut session,
        "model/rerouted",
        json!({"fromModel": "m", "toModel": "n"}),
    );
    let [Event::Warning(warning), Event::Identified { agent, model }] = &outcome.events[..] else {
        panic!("{outcome:?}")
    };
    assert!(warning.contains("n instead of m"), "{warning}");
    assert_eq!((&**agent, &**model), ("Codex 1.2.3", "n"));
}

#[test]
fn repeated_warning_is_reported_once() {
    let mut session = opened();
    let mut warned = |method: &str, params: Value| {
        let events = tell(&mut session, method, params).events;
        matches!(events[..], [Event::Warning(_)])
    };
    let warning = |n: usize| json!({"message": format!("w{n}")});
    let server = |status: &str| json!({"name": "s", "error": "e", "status": status});
    let mcp = "mcpServer/startupStatus/updated";
    assert!(!warned(mcp, server("starting")));
    assert!(warned(mcp, server("failed")));
    assert!(warned("configWarning", json!({"summary": "c"})));
    assert!(!warned("warning", json!({})), "an empty warning is ignored");
    for _ in 0..3 {
        assert!(!warned(mcp, server("failed")));
        assert!(!warned("configWarning", json!({"summary": "c"})));
    }
    // Only the most recent warnings are remembered.
    assert!((0..2 * WARNINGS).all(|n| warned("warning", warning(n))));
    assert!((WARNINGS..2 * WARNINGS).all(|n| !warned("guardianWarning", warning(n))));
    assert!(warned("warning", warning(0)));
    assert_eq!(session.reported_warnings.len(), WARNINGS);
}
