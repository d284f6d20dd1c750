//! Tests of permission requests: the driver's own answers, the requests for a person, and that each request is answered once.

use super::*;

const OPTIONS: [(&str, &str); 4] = [
    ("aa", "allow_always"),
    ("a", "allow_once"),
    ("r", "reject_once"),
    ("ra", "reject_always"),
];

fn ask(id: Value, kind: &str, path: &str, options: &[(&str, &str)]) -> Value {
    let options: Vec<Value> = { options.iter() }
        .map(|(id, kind)| json!({"optionId": id, "kind": kind, "name": id}))
        .collect();
    let call =
        json!({"toolCallId": "t", "kind": kind, "title": "do", "locations": [{"path": path}]});
    let params = json!({"sessionId": "s", "toolCall": call, "options": options});
    json!({"id": id, "method": "session/request_permission", "params": params})
}

fn permitted(permissions: Permissions) -> Session {
    let request = SessionRequest {
        permissions,
        ..session_request()
    };
    begin(request, json!({}), json!({"sessionId": "s"})).0
}

fn deny() -> Decision {
    Decision::Deny {
        message: "no".to_owned(),
    }
}

#[test]
fn x124f_allowed_calls_are_answered_and_others_asked() {
    let calls = [
        ("edit", "/place/a"),
        ("edit", "/etc/a"),
        ("delete", "/place/a"),
        ("execute", "/place"),
    ];
    let mut table = String::new();
    for permissions in [
        Permissions::Ask,
        Permissions::Edits,
        Permissions::All,
        Permissions::Deny,
    ] {
        for (kind, path) in calls {
            let mut session = permitted(permissions);
            prompt(&mut session);
            let outcome = hear(&mut session, &ask(json!(0), kind, path, &OPTIONS));
            let asked = outcome
                .events
                .iter()
                .any(|event| matches!(event, Event::PermissionRequested(_)));
            let option = said(&outcome.lines)
                .first()
                .map(|line| line["result"]["outcome"]["optionId"].clone());
            assert_eq!(asked, option.is_none());
            writeln!(
                table,
                "{permissions:?} {kind} {path}: {}",
                option.map_or("asked".to_owned(), |option| option.to_string())
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn x124f_answer_selects_the_offered_option_by_kind() {
    let offers: [&[(&str, &str)]; 4] = [&OPTIONS, &OPTIONS[..1], &OPTIONS[3..], &[]];
    let mut table = String::new();
    for options in offers {
        for decision in [Decision::Allow, deny()] {
            let mut session = fresh();
            prompt(&mut session);
            hear(&mut session, &ask(json!("x"), "edit", "/a", options));
            let line = session.answer("\"x\"", &decision).unwrap();
            let warning = session.answer_sent("\"x\"", &decision);
            assert_eq!(
                session.answer("\"x\"", &decision),
                None,
                "a request is answered once"
            );
            let line = &said(&[line])[0];
            assert_eq!(line["id"], "x");
            writeln!(
                table,
                "{} {}: {} {warning:?}",
                options.len(),
                decision == Decision::Allow,
                line["result"]["outcome"]
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn p17c_interrupt_and_turn_end_cancel_open_permission_requests() {
    let cancelled = |id| json!({"id": id, "result": {"outcome": {"outcome": "cancelled"}}});
    for interrupt in [true, false] {
        let mut session = fresh();
        let request = prompt(&mut session);
        hear(&mut session, &ask(json!(0), "execute", "", &OPTIONS));
        let outcome = match interrupt {
            true => session.interrupt(),
            false => hear(
                &mut session,
                &json!({"id": request, "result": {"stopReason": "end_turn"}}),
            ),
        };
        assert_eq!(said(&outcome.lines).last(), Some(&cancelled(0)));
        assert!(
            outcome
                .events
                .contains(&Event::PermissionWithdrawn { id: "0".to_owned() })
        );
        assert_eq!(session.answer("0", &Decision::Allow), None);
        if interrupt {
            // The driver cancels later requests of this turn itself.
            let outcome = hear(&mut session, &ask(json!(1), "execute", "", &OPTIONS));
            assert_eq!(
                (said(&outcome.lines), outcome.events),
                (vec![cancelled(1)], vec![])
            );
        }
    }
}

#[test]
fn p18_withdrawn_permission_request_is_reported_once() {
    let mut session = fresh();
    prompt(&mut session);
    hear(&mut session, &ask(json!("q"), "execute", "", &OPTIONS));
    let back = json!({"method": "$/cancel_request", "params": {"requestId": "q"}});
    let outcome = hear(&mut session, &back);
    assert_eq!(said(&outcome.lines)[0]["error"]["code"], -32800);
    assert!(matches!(
        &outcome.events[..],
        [Event::PermissionWithdrawn { .. }]
    ));
    assert!(hear(&mut session, &back).lines.is_empty());
    assert_eq!(session.answer("\"q\"", &Decision::Allow), None);
}

#[test]
fn p17b_option_not_offered_is_refused_once() {
    let mut session = fresh();
    for method in [
        "fs/read_text_file",
        "terminal/create",
        "elicitation/create",
        "_vendor/new",
    ] {
        let outcome = hear(
            &mut session,
            &json!({"id": "u", "method": method, "params": {}}),
        );
        assert_eq!(
            said(&outcome.lines),
            [
                json!({"id": "u", "error": {"code": -32601, "message": format!("method not found: {method}")}})
            ]
        );
        assert!(
            hear(&mut session, &json!({"method": method}))
                .lines
                .is_empty()
        );
    }
}

#[test]
fn x124f_denied_call_is_reported_as_denied() {
    let mut session = fresh();
    let request = prompt(&mut session);
    hear(&mut session, &ask(json!(0), "execute", "", &OPTIONS));
    let events = session.answer_sent("0", &deny());
    let id = "t".to_owned();
    let (outcome, text) = (ToolOutcome::Denied, String::new());
    assert_eq!(events, [Event::ToolFinished { id, outcome, text }]);
    let failed =
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed"});
    assert_eq!(update(&mut session, failed), [], "the call has ended");
    // Some agents end the turn because of the denial.
    let outcome = hear(
        &mut session,
        &json!({"id": request, "result": {"stopReason": "cancelled"}}),
    );
    assert_eq!(
        outcome.events,
        [Event::TurnCompleted(EndReason::Completed.into())]
    );
}

#[test]
fn open_permission_requests_are_limited() {
    let mut session = fresh();
    prompt(&mut session);
    let outcome: Vec<LineOutcome> = (0..70)
        .map(|n| hear(&mut session, &ask(json!(n), "execute", "", &OPTIONS)))
        .collect();
    let answered = outcome.iter().filter(|outcome| !outcome.lines.is_empty());
    assert_eq!((session.asks.len(), answered.count()), (64, 6));
}
