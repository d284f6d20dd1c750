//! Tests of the state of a session.

use super::*;
use crate::acp::protocol::choices::SessionChoices;
use crate::acp::protocol::turn_end::{ErrorKind, error_kind, error_text, is_missing_session};

#[test]
fn l91a_process_exit_is_classified_by_the_request() {
    let ended = |mut session: Session| {
        let events = session.exited(ExitStatus::Code(1), String::new());
        match events.last() {
            Some(Event::TurnCompleted(end)) => Some(end.reason),
            Some(Event::Exited(_)) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ended(fresh()), None);
    let running = || {
        let mut session = fresh();
        prompt(&mut session);
        assert!(!session.is_interrupting() && !session.is_leaving());
        session
    };
    assert_eq!(ended(running()), Some(EndReason::Died));
    let mut interrupted = running();
    interrupted.interrupt();
    assert!(interrupted.is_interrupting());
    assert_eq!(ended(interrupted), Some(EndReason::Interrupted));
    let mut leaving = running();
    leaving.note_ending();
    assert!(leaving.is_leaving());
    assert_eq!(ended(leaving), Some(EndReason::Interrupted));
}

fn models(current: &str) -> Value {
    let values = json!([{"value": "a"}, {"value": "b"}]);
    json!([{"id": "o", "category": "model", "currentValue": current, "options": values}])
}

#[test]
fn l97c_another_model_is_reported_when_the_session_is_open() {
    let is_told = |events: &[Event], wanted: &str| matches!(events, [Event::Identified { model, .. }] if model == wanted);
    let changed = |model: &str| json!({"sessionUpdate": "config_option_update", "configOptions": models(model)});
    let opened = json!({"sessionId": "s", "configOptions": models("a")});
    let (mut session, _) = begin(session_request(), json!({}), opened.clone());
    assert_eq!(update(&mut session, changed("a")), []);
    assert!(is_told(&update(&mut session, changed("b")), "b"));
    let request = SessionRequest {
        model: Some("b".to_owned()),
        ..session_request()
    };
    let (mut session, _) = begin(request, json!({}), opened);
    assert!(session.is_opening());
    assert_eq!(
        update(&mut session, changed("b")),
        [],
        "the event of the opened session reports it"
    );
    let answer = json!({"id": 3, "result": {"configOptions": models("b")}});
    assert!(is_told(&hear(&mut session, &answer).events, "b"));
    // While the agent runs, the test requests another model, and then the first one.
    for (asked, model) in [(Some("c"), "c"), (None, "a")] {
        let line = session
            .set_model(asked.map(str::to_owned))
            .unwrap()
            .unwrap();
        let line = json::parse(&line).unwrap();
        assert_eq!(line["params"]["value"], model);
        let outcome = hear(
            &mut session,
            &json!({"id": line["id"], "result": {"configOptions": models(model)}}),
        );
        assert!(is_told(&outcome.events, model), "{outcome:?}");
        assert_eq!(session.change_answer(), Some(Ok(())));
    }
    assert_eq!(
        fresh().set_model(None).unwrap(),
        None,
        "the agent reports no models"
    );
}

#[test]
fn l97c_reported_model_is_the_one_that_the_agent_names() {
    let opened = json!({"sessionId": "s", "configOptions": models("a")});
    let (mut session, _) = begin(session_request(), json!({}), opened);
    let mut told = |asked: &str, result: Value| {
        let line = session.set_model(Some(asked.to_owned())).unwrap().unwrap();
        let line = json::parse(&line).unwrap();
        let outcome = hear(&mut session, &json!({"id": line["id"], "result": result}));
        match outcome.events.as_slice() {
            [Event::Identified { model, .. }] => Some(model.clone()),
            _ => None,
        }
    };
    let named = |model| json!({"configOptions": models(model)});
    assert_eq!(told("fast", named("b")).as_deref(), Some("b"));
    assert_eq!(told("other", named("b")), None, "the model did not change");
    // If the answer names no model, the requested one counts.
    assert_eq!(told("c", json!({})).as_deref(), Some("c"));
}

/// The offers of an agent with modes, in both mechanisms.
fn offers(mode: &str) -> [Value; 2] {
    let modes = json!([{"id": "default"}, {"id": "autoEdit"}, {"id": "yolo"}]);
    let values = json!([{"value": "default"}, {"value": "autoEdit"}, {"value": "yolo"}]);
    [
        json!({"sessionId": "s", "modes": {"currentModeId": mode, "availableModes": modes}}),
        json!({"sessionId": "s", "configOptions": [{"id": "o", "category": "mode", "currentValue": mode, "options": values}]}),
    ]
}

#[test]
fn x124f_agent_must_leave_full_permission_mode() {
    use Permissions::{All, Ask, Edits};
    /// A change of the mode: accepted, refused, or unanswered.
    type Step = (Permissions, Option<bool>);
    let steps: [(&[Step], bool); 6] = [
        (&[(Edits, Some(true))], false),
        (&[(All, Some(true)), (Edits, Some(true))], true),
        (
            &[(All, Some(true)), (Ask, Some(true)), (Edits, Some(true))],
            false,
        ),
        // The agent keeps its mode, or the mode is unknown.
        (&[(All, Some(false)), (Edits, Some(true))], false),
        (&[(All, None), (Edits, Some(true))], true),
        (
            &[(All, Some(true)), (Ask, Some(false)), (Edits, Some(true))],
            true,
        ),
    ];
    for offer in offers("default") {
        for (steps, expected) in steps {
            let mut choices = SessionChoices::default();
            choices.take(&offer);
            for (permissions, became) in steps {
                assert!(choices.choose_mode(*permissions).is_some());
                match became {
                    Some(true) => {}
                    other => choices.mode_is_unknown(other.is_none()),
                }
            }
            assert_eq!(choices.requires_mode(Edits), expected, "{steps:?}");
            assert!(choices.requires_mode(Ask) && !choices.requires_mode(All));
        }
    }
}

#[test]
fn x124f_uncertain_mode_is_set_again() {
    let now = Instant::now();
    for offer in offers("default") {
        let all = Permissions::All;
        let (mut session, _) = begin(session_request(), json!({}), offer);
        assert!(session.set_permissions(all).unwrap().is_some());
        assert_eq!(
            session.set_permissions(all).unwrap(),
            None,
            "the mode is known"
        );
        let due = session.next_answer_deadline(now).unwrap();
        session.restart_timeouts();
        assert_eq!(
            session.expire_requests(due),
            [],
            "frozen time doesn't count"
        );
        let due = session.next_answer_deadline(now).unwrap();
        assert!(matches!(
            session.expire_requests(due)[..],
            [Event::Warning(_)]
        ));
        let line = session.set_permissions(all).unwrap().unwrap();
        let id = json::parse(&line).unwrap()["id"].clone();
        hear(&mut session, &json!({"id": id, "error": {"message": "no"}}));
        assert!(session.set_permissions(all).unwrap().is_some());
    }
    // A failed change of the model keeps the mode.
    let opened = json!({"sessionId": "s", "configOptions": models("a"), "modes": offers("default")[0]["modes"]});
    let (mut session, _) = begin(session_request(), json!({}), opened);
    session.set_model(Some("b".to_owned())).unwrap().unwrap();
    let due = session.next_answer_deadline(now).unwrap();
    session.expire_requests(due);
    assert_eq!(session.set_permissions(Permissions::Ask).unwrap(), None);
    // An agent can change its mode itself.
    let changed = json!({"sessionUpdate": "current_mode_update", "currentModeId": "yolo"});
    update(&mut session, changed);
    assert!(session.set_permissions(Permissions::Ask).unwrap().is_some());
}

#[test]
fn p25c_permission_request_for_a_new_call_ends_the_text() {
    let mut session = fresh();
    prompt(&mut session);
    let ask = |n: u32| {
        let call = json!({"toolCallId": "t", "title": "make", "kind": "execute"});
        let params = json!({"sessionId": "s", "toolCall": call});
        json!({"id": n, "method": "session/request_permission", "params": params})
    };
    update(&mut session, chunk("before"));
    let outcome = hear(&mut session, &ask(0));
    let whole = Event::Message {
        text: "before".to_owned(),
        partial: false,
    };
    assert_eq!(outcome.events[0], whole);
    update(&mut session, chunk("beside"));
    let outcome = hear(&mut session, &ask(1));
    assert!(
        matches!(outcome.events[..], [Event::PermissionRequested(_)]),
        "{outcome:?}"
    );
}

#[test]
fn error_shows_message_and_data_once() {
    for (error, expected) in [
        (json!({"message": "a"}), "a"),
        (json!({"message": "a", "data": "b"}), "a: b"),
        (json!({"message": "a", "data": {"details": "b"}}), "a: b"),
        (json!({"message": "a", "data": "no a here"}), "no a here"),
        (json!({"data": {"service": "b"}}), "b"),
        (json!({"code": 7}), "error 7"),
    ] {
        assert_eq!(error_text(&error), expected, "{error}");
    }
}

#[test]
fn error_kind_comes_from_its_code_or_text() {
    for (trouble_of, expected) in [
        ((-32000, "x"), ErrorKind::NotLoggedIn),
        ((401, "x"), ErrorKind::NotLoggedIn),
        ((403, "x"), ErrorKind::NotLoggedIn),
        ((429, "x"), ErrorKind::RateLimited),
        ((500, "x"), ErrorKind::ServiceFailed),
        ((599, "x"), ErrorKind::ServiceFailed),
        ((600, "x"), ErrorKind::Other),
        ((1, "Session not found"), ErrorKind::SessionNotFound),
        ((1, "Please run /login"), ErrorKind::NotLoggedIn),
        ((1, "Incorrect API key"), ErrorKind::NotLoggedIn),
        ((1, "maximum context"), ErrorKind::ContextOverflow),
        ((1, "too many requests"), ErrorKind::RateLimited),
        ((1, "HTTP 429"), ErrorKind::RateLimited),
        ((1, "fetch failed"), ErrorKind::ServiceFailed),
        ((1, "ECONNREFUSED"), ErrorKind::ServiceFailed),
        ((1, "HTTP 529"), ErrorKind::ServiceFailed),
        ((1, "HTTP 5290"), ErrorKind::Other),
    ] {
        let (code, message) = trouble_of;
        let error = json!({"code": code, "message": message});
        assert_eq!(error_kind(&error), expected, "{error}");
    }
    for (code, message, expected) in [
        (-32002, "x", true),
        (1, "unknown session", true),
        (1, "the session is busy", false),
        (1, "invalid parameter", false),
    ] {
        let error = json!({"code": code, "message": message});
        assert_eq!(is_missing_session(&error), expected, "{error}");
    }
}

#[test]
fn l97c_refused_model_fails_the_start() {
    let request = SessionRequest {
        model: Some("b".to_owned()),
        ..session_request()
    };
    let opened = json!({"sessionId": "s", "configOptions": models("a")});
    let (mut session, _) = begin(request.clone(), json!({}), opened.clone());
    hear(&mut session, &json!({"id": 3, "error": {"message": "no"}}));
    assert!(
        session
            .refusal()
            .is_some_and(|error| error.is_start_failure())
    );
    // If the agent accepts the model, it is reported, even if the answer names another one.
    let (mut session, _) = begin(request, json!({}), opened);
    hear(&mut session, &json!({"id": 3, "result": {}}));
    let line = session.set_model(Some("a".to_owned())).unwrap().unwrap();
    let id = json::parse(&line).unwrap()["id"].clone();
    let answer = json!({"id": id, "result": {"configOptions": models("c")}});
    let events = hear(&mut session, &answer).events;
    assert!(matches!(events[..], [Event::Identified { .. }]));
}

#[test]
fn p45_fresh_session_that_is_not_found_fails_the_start() {
    let mut session = Session::new(session_request());
    session.initialize();
    hear(&mut session, &json!({"id": 1, "result": {}}));
    let error = json!({"code": -32002, "message": "Session not found"});
    hear(&mut session, &json!({"id": 2, "error": error}));
    assert!(
        session
            .refusal()
            .is_some_and(|error| error.is_start_failure())
    );
}

#[test]
fn session_is_closed_if_the_agent_supports_it() {
    let close = json!({"sessionCapabilities": {"close": {}}});
    for (capabilities, opened, asks) in [
        (close.clone(), json!({"sessionId": "s"}), true),
        (json!({}), json!({"sessionId": "s"}), false),
        (close, json!({}), false),
    ] {
        let (mut session, _) = begin(session_request(), capabilities, opened);
        assert!(!session.is_closing() && !session.is_leaving());
        let line = session.close();
        assert!(session.is_leaving());
        assert_eq!((line.is_some(), session.is_closing()), (asks, asks));
        if let Some(line) = line {
            let line = json::parse(&line).unwrap();
            assert_eq!(line["method"], "session/close");
            hear(&mut session, &json!({"id": line["id"], "result": null}));
            assert!(!session.is_closing());
        }
    }
}

#[test]
fn x124f_unattended_agent_cannot_be_made_to_ask() {
    let request = SessionRequest {
        is_unattended: true,
        permissions: Permissions::All,
        ..session_request()
    };
    let (mut session, _) = begin(request, json!({}), json!({"sessionId": "s"}));
    let error = session.set_permissions(Permissions::Ask).unwrap_err();
    assert!(error.is_unsupported());
    assert_eq!(session.set_permissions(Permissions::All).unwrap(), None);
}

#[test]
fn x124f_confirmed_mode_change_makes_the_mode_known() {
    let ask = Permissions::Ask;
    let begun = || {
        let mut opened = offers("yolo")[0].clone();
        opened["configOptions"] = models("a");
        let request = SessionRequest {
            permissions: Permissions::All,
            ..session_request()
        };
        begin(request, json!({}), opened).0
    };
    let mut session = begun();
    assert!(!session.is_asking());
    let line = session.set_permissions(ask).unwrap().unwrap();
    assert!(session.is_asking());
    let id = json::parse(&line).unwrap()["id"].clone();
    hear(&mut session, &json!({"id": id, "result": null}));
    assert_eq!(session.change_answer(), Some(Ok(())));
    assert_eq!(session.set_permissions(ask).unwrap(), None);
    // An unanswered change of the model keeps the mode too.
    session.set_model(Some("b".to_owned())).unwrap().unwrap();
    assert_eq!(session.change_answer(), None);
    assert_eq!(session.set_permissions(ask).unwrap(), None);
    // An unanswered change of the mode makes the mode unknown.
    let mut session = begun();
    session.set_permissions(ask).unwrap().unwrap();
    assert_eq!(session.change_answer(), None);
    assert!(session.set_permissions(ask).unwrap().is_some());
}
