//! Tests of opening a session, with everything that an agent can lack, refuse or leave unanswered.

use super::*;
use crate::mcp::McpServer;

fn modes(current: &str, all: &[&str]) -> Value {
    let all: Vec<Value> = all.iter().map(|id| json!({"id": id})).collect();
    json!({"currentModeId": current, "availableModes": all})
}

fn option(category: &str, current: &str, values: &[&str]) -> Value {
    let values: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
    json!({"id": format!("the-{category}"), "category": category, "currentValue": current, "options": [{"group": "g", "options": values}]})
}

fn methods(outcome: &LineOutcome) -> Vec<String> {
    let said = said(&outcome.lines).into_iter();
    said.map(|line| format!("{} {}", text(&line, "method"), line["params"]))
        .collect()
}

#[test]
fn p27_session_is_resumed_or_loaded_as_the_agent_supports() {
    let resume = json!({"sessionCapabilities": {"resume": {}}, "loadSession": true});
    let cases = [
        (SessionChoice::Fresh, json!({})),
        (SessionChoice::Resume("o".into()), resume),
        (
            SessionChoice::Resume("o".into()),
            json!({"loadSession": true, "sessionCapabilities": {"resume": null}}),
        ),
        (SessionChoice::Resume("o".into()), json!({})),
        (
            SessionChoice::Fork("o".into()),
            json!({"sessionCapabilities": {"fork": {}}}),
        ),
        (
            SessionChoice::Fork("o".into()),
            json!({"loadSession": true}),
        ),
    ];
    let mut table = String::new();
    for (choice, capabilities) in cases {
        let request = SessionRequest {
            session: choice,
            ..session_request()
        };
        let (session, outcome) = begin(request, capabilities, json!({"sessionId": "n"}));
        let error = session.refusal();
        assert!(error.as_ref().is_none_or(Error::is_unsupported));
        writeln!(
            table,
            "{:?} {:?} {:?}",
            methods(&outcome),
            session.id(),
            error.map(|e| e.to_string())
        )
        .unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn p29_session_history_is_not_reported_as_new() {
    let request = SessionRequest {
        session: SessionChoice::Resume("s".to_owned()),
        ..session_request()
    };
    let mut session = Session::new(request);
    session.initialize();
    hear(
        &mut session,
        &json!({"id": 1, "result": {"agentCapabilities": {"loadSession": true}}}),
    );
    let history = [
        chunk("old"),
        json!({"sessionUpdate": "tool_call", "toolCallId": "t", "status": "completed"}),
    ];
    for old in history {
        assert_eq!(update(&mut session, old), []);
    }
    let outcome = hear(&mut session, &json!({"id": 2, "result": null}));
    assert!(matches!(&outcome.events[..], [Event::Session { id }] if id == "s"));
    // A repeated answer is not taken for the answer to another request.
    hear(&mut session, &json!({"id": 2, "result": null}));
    // Some agents continue the history after their answer; the history ends when they are quiet.
    let now = Instant::now();
    let due = session.next_answer_deadline(now).unwrap();
    assert_eq!(due, now + HISTORY_IDLE);
    assert_eq!(update(&mut session, chunk("older")), []);
    let later = session
        .next_answer_deadline(now + Duration::from_millis(100))
        .unwrap();
    assert!(later > due && session.expire_requests(due).is_empty() && session.is_opening());
    let events = session.expire_requests(later);
    assert!(matches!(&events[..], [Event::Identified { .. }]));
    assert!(!session.is_opening());
    assert!(prompt(&mut session) > 2, "each request has a new number");
    assert_eq!(
        update(&mut session, chunk("new")),
        [Event::TextDelta("new".to_owned())]
    );
}

#[test]
fn p45_refused_session_is_reported_with_its_kind() {
    let known = [
        json!({"code": -32603, "message": "Internal error", "data": {"details": "No previous sessions found for this project."}}),
        json!({"code": -32002, "message": "Resource not found: o"}),
        json!({"code": -32603, "message": "NotFoundError: Session not found: o"}),
        json!({"code": -32603, "message": "Internal error: OpenCode service failure", "data": {"service": "session"}}),
        json!({"code": -32000, "message": "Authentication required"}),
        json!({"code": -32603, "message": "Internal error", "data": {"details": "disk full"}}),
    ];
    let mut table = String::new();
    for error in known {
        let request = SessionRequest {
            session: SessionChoice::Resume("o".to_owned()),
            ..session_request()
        };
        let mut session = Session::new(request);
        session.initialize();
        let login = json!([{"id": "key", "name": "API key"}, {"id": "web"}]);
        hear(
            &mut session,
            &json!({"id": 1, "result": {"agentCapabilities": {"loadSession": true}, "authMethods": login}}),
        );
        hear(&mut session, &json!({"id": 2, "error": error}));
        assert!(!session.is_opening());
        let told = session.failure_for(&message());
        match (session.refusal(), told.as_deref()) {
            (Some(error), None) => writeln!(table, "start: {error}").unwrap(),
            (None, Some([Event::TurnStarted { .. }, Event::TurnCompleted(end)])) => {
                writeln!(table, "{:?}: {}", end.reason, end.detail).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn l95a_l95i_mcp_servers_are_passed_on_or_refused_before_the_session() {
    let servers = |server| {
        let mut servers = McpServers::default();
        servers
            .insert(
                "one",
                McpServer::stdio("mcp").arg("-x").env("KEY", "secret"),
            )
            .unwrap();
        servers.insert("two", server).unwrap();
        SessionRequest {
            servers,
            ..session_request()
        }
    };
    let http = || McpServer::http("http://localhost/").header("A", "b");
    let can = json!({"mcpCapabilities": {"http": true}});
    let (_, outcome) = begin(servers(http()), can.clone(), json!({"sessionId": "s"}));
    insta::assert_snapshot!(methods(&outcome)[0]);
    for (server, can) in [
        (http(), json!({})),
        (McpServer::sse("http://localhost/"), can),
    ] {
        let (session, outcome) = begin(servers(server), can, json!({"sessionId": "s"}));
        assert!(session.refusal().unwrap().is_unsupported());
        assert!(outcome.lines.is_empty(), "no request for a session is sent");
    }
}

#[test]
fn x124f_agent_is_set_to_a_mode_that_it_offers() {
    let offers = [
        json!({"modes": modes("default", &["default", "autoEdit", "yolo", "plan"])}),
        json!({"modes": modes("default", &["default", "acceptEdits", "bypassPermissions"]), "configOptions": [option("mode", "default", &["default", "acceptEdits"])]}),
        json!({"configOptions": [option("mode", "build", &["build", "plan"])]}),
        json!({"modes": modes("yolo", &["default", "yolo"])}),
    ];
    let mut table = String::new();
    for mut opened in offers {
        opened["sessionId"] = "s".into();
        for permissions in [
            Permissions::Ask,
            Permissions::Edits,
            Permissions::All,
            Permissions::Deny,
        ] {
            let request = SessionRequest {
                permissions,
                ..session_request()
            };
            let (session, outcome) = begin(request, json!({}), opened.clone());
            let said = methods(&outcome);
            assert_eq!(
                session.is_opening(),
                said.len() > 1,
                "the driver waits for the mode"
            );
            writeln!(table, "{permissions:?}: {:?}", said.get(1)).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn x124f_agent_that_cannot_request_permission_is_refused() {
    for (mode, permissions, used) in [
        ("yolo", Permissions::Deny, false),
        ("yolo", Permissions::Edits, false),
        // In this mode the agent asks, and the driver allows the calls itself.
        ("default", Permissions::Edits, true),
        ("default", Permissions::All, true),
    ] {
        let all = ["default", "autoEdit", "yolo", "plan"];
        let opened = json!({"sessionId": "s", "modes": modes(mode, &all)});
        let request = SessionRequest {
            permissions,
            ..session_request()
        };
        let (mut session, _) = begin(request, json!({}), opened.clone());
        let outcome = hear(
            &mut session,
            &json!({"id": 3, "error": {"code": -32603, "message": "no"}}),
        );
        assert_eq!(session.refusal().is_none(), used, "{mode} {permissions:?}");
        let warns = |event: &Event| matches!(event, Event::Warning(_));
        assert!(!outcome.events.iter().any(warns), "no capability is lost");
    }
}

#[test]
fn l95i_servers_that_gemini_does_not_start_are_reported() {
    let refused = |servers: McpServers| {
        let request = SessionRequest {
            permissions: Permissions::All,
            servers,
            ..session_request()
        };
        let modes = modes("default", &["default", "yolo"]);
        let (mut session, _) = begin(
            request,
            json!({}),
            json!({"sessionId": "s", "modes": modes}),
        );
        let why = "Cannot enable privileged approval modes in an untrusted folder.";
        let error = json!({"code": -32603, "message": "Internal error", "data": {"details": why}});
        hear(&mut session, &json!({"id": 3, "error": error})).events
    };
    let is_warning = |event: &Event| matches!(event, Event::Warning(text) if text.contains("no MCP servers in it: trust it"));
    let mut servers = McpServers::default();
    servers.insert("tracker", McpServer::stdio("x")).unwrap();
    assert!(refused(servers).iter().any(is_warning));
    assert!(!refused(McpServers::default()).iter().any(is_warning));
}

#[test]
fn x124f_mode_is_set_again_after_the_agent_leaves_it() {
    let all = ["default", "yolo"];
    let offers = [
        json!({"sessionId": "s", "modes": modes("default", &all)}),
        json!({"sessionId": "s", "configOptions": [option("mode", "default", &all)]}),
    ];
    for offer in offers {
        let (mut session, _) = begin(session_request(), json!({}), offer);
        for (permissions, changes) in [
            (Permissions::All, true),
            (Permissions::All, false),
            (Permissions::Deny, true),
            (Permissions::Ask, false),
        ] {
            let line = session.set_permissions(permissions).unwrap();
            assert_eq!(line.is_some(), changes, "{permissions:?}");
            if let Some(line) = line {
                let id = json::parse(&line).unwrap()["id"].clone();
                // Most agents don't report a change that the client requested.
                hear(&mut session, &json!({"id": id, "result": null}));
            }
        }
        // After a refusal the mode is unknown.
        let line = session.set_permissions(Permissions::All).unwrap().unwrap();
        let id = json::parse(&line).unwrap()["id"].clone();
        hear(
            &mut session,
            &json!({"id": id, "error": {"code": 1, "message": "no"}}),
        );
        assert!(session.set_permissions(Permissions::Ask).unwrap().is_some());
    }
}

#[test]
fn l97c_model_is_set_by_the_method_of_the_agent() {
    let offers = [
        json!({"models": {"currentModelId": "a"}}),
        json!({"configOptions": [option("model", "a", &["a", "b"])]}),
        json!({}),
    ];
    let mut table = String::new();
    for mut opened in offers {
        opened["sessionId"] = "s".into();
        let request = SessionRequest {
            model: Some("b".to_owned()),
            ..session_request()
        };
        let (mut session, outcome) = begin(request, json!({}), opened);
        writeln!(
            table,
            "{:?} {:?}",
            methods(&outcome).get(1),
            session.refusal().map(|e| e.to_string())
        )
        .unwrap();
        if session.refusal().is_none() {
            let outcome = hear(&mut session, &json!({"id": 3, "result": {}}));
            assert!(
                matches!(&outcome.events[..], [Event::Identified { model, .. }] if model == "b")
            );
            // While the agent runs: the current model, the first model, and a refused model.
            assert_eq!(session.set_model(Some("b".to_owned())).unwrap(), None);
            assert!(session.set_model(None).unwrap().is_some() && session.is_asking());
            hear(
                &mut session,
                &json!({"id": 4, "error": {"message": "gone"}}),
            );
            assert!(!session.is_asking() && session.refusal().is_none());
            assert_eq!(session.change_answer(), Some(Err("gone".to_owned())));
        } else {
            assert!(session.refusal().unwrap().is_unsupported());
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn p16c_unanswered_request_is_given_up() {
    let mut session = Session::new(session_request());
    session.initialize();
    let now = Instant::now();
    let due = session.next_answer_deadline(now).unwrap();
    assert_eq!(due - now, Duration::from_secs(60));
    session.restart_timeouts();
    assert_eq!(session.expire_requests(due), []);
    session.next_answer_deadline(now);
    session.expire_requests(due);
    assert!(session.refusal().unwrap().is_start_failure());
    // A turn has no time limit.
    let mut session = fresh();
    prompt(&mut session);
    assert_eq!(session.next_answer_deadline(now), None);
}

#[test]
fn p27_another_version_of_the_protocol_is_refused() {
    let mut session = Session::new(session_request());
    session.initialize();
    hear(
        &mut session,
        &json!({"id": 1, "result": {"protocolVersion": 2}}),
    );
    insta::assert_snapshot!(session.refusal().unwrap());
}

#[test]
fn required_login_precedes_the_session() {
    let request = SessionRequest {
        auth_method: Some("key".to_owned()),
        ..session_request()
    };
    let (mut session, outcome) = begin(request, json!({}), json!({}));
    assert_eq!(
        methods(&outcome),
        [
            "authenticate {\"methodId\":\"key\"}",
            "session/new {\"cwd\":\"/place\",\"mcpServers\":[]}"
        ]
    );
    hear(
        &mut session,
        &json!({"id": 3, "result": {"sessionId": "s"}}),
    );
    assert_eq!(session.id(), Some("s"));
}
