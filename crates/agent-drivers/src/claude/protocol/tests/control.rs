//! Tests of control requests in both directions.

use super::delivery::{lifecycle_line, result, status, with_messages};
use super::*;
use agent_duplex::Permissions;

/// Parses the requests in some lines, and returns them with their ids.
fn requests(lines: &[u8]) -> Vec<(String, Value)> {
    let lines = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    lines
        .map(|line| {
            (
                line["request_id"].as_str().unwrap().to_owned(),
                line["request"].clone(),
            )
        })
        .collect()
}

fn success(id: &str, answer: Value) -> Value {
    json!({"type": "control_response", "response": {"subtype": "success", "request_id": id, "response": answer}})
}

fn refusal(id: &str) -> Value {
    json!({"type": "control_response", "response": {"subtype": "error", "request_id": id, "error": "no such thing"}})
}

#[test]
fn p16a_request_timeout_is_one_minute_by_default() {
    let minute = Duration::from_secs(60);
    let timeouts = crate::dialogue::Timeouts::default();
    assert_eq!(
        (timeouts.initialize, timeouts.other_requests),
        (minute, minute)
    );
}

#[test]
fn p16b_p16c_p15b_response_after_the_timeout_is_ignored() {
    let mut session = fresh();
    assert!(!session.has_pending_requests());
    let introduction = requests(&session.initialize());
    assert!(session.has_pending_requests());
    let mode = requests(&session.set_mode("default"));
    let start = Instant::now();
    assert_eq!(
        session.next_answer_deadline(start),
        Some(start + TIMEOUTS.other_requests)
    );
    assert_eq!(session.expire_requests(start), []);
    // A permission request of the agent has no time limit.
    let ask = json!({"type": "control_request", "request_id": "a", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}});
    hear(&mut session, &ask);
    let warning = |what: &str| {
        vec![Event::Warning(format!(
            "the agent did not answer the {what} in time"
        ))]
    };
    assert_eq!(
        session.expire_requests(start + TIMEOUTS.other_requests),
        warning("change of permissions")
    );
    assert_eq!(
        session.next_answer_deadline(start),
        Some(start + TIMEOUTS.initialize)
    );
    assert_eq!(hear(&mut session, &refusal(&mode[0].0)), [], "too late");
    session.restart_timeouts();
    let later = start + Duration::from_secs(3600);
    assert_eq!(
        session.next_answer_deadline(later),
        Some(later + TIMEOUTS.initialize),
        "frozen time doesn't count"
    );
    assert_eq!(
        session.expire_requests(later + TIMEOUTS.initialize),
        warning("initialization")
    );
    assert_eq!(
        hear(&mut session, &success(&introduction[0].0, json!({}))),
        []
    );
    assert_eq!(session.next_answer_deadline(later), None);
    assert!(session.answer("a", &Decision::Allow).is_some());
}

#[test]
fn p17a_repeated_permission_request_is_answered_once() {
    let mut session = fresh();
    let ask = |id: &str, subtype: &str| {
        json!({"type": "control_request", "request_id": id, "request": {"subtype": subtype, "tool_name": "Bash"}}).to_string()
    };
    let answers =
        |session: &mut Session, line: &str| session.handle_line(line.as_bytes()).lines.len();
    assert_eq!(answers(&mut session, &ask("h", "hook_callback")), 1);
    assert_eq!(answers(&mut session, &ask("h", "hook_callback")), 0);
    assert_eq!(
        session
            .handle_line(ask("a", "can_use_tool").as_bytes())
            .events
            .len(),
        1
    );
    assert!(session.answer("a", &Decision::Allow).is_some());
    session.answer_sent("a", &Decision::Allow);
    assert!(session.answer("a", &Decision::Allow).is_none());
    assert_eq!(
        session
            .handle_line(ask("a", "can_use_tool").as_bytes())
            .events,
        []
    );
    for n in 0..3 * MAX_REMEMBERED_ANSWERS {
        assert_eq!(
            answers(&mut session, &ask(&n.to_string(), "elicitation")),
            1
        );
    }
    assert_eq!(session.recent_answers.len(), MAX_REMEMBERED_ANSWERS);
}

#[test]
fn p27_queued_messages_are_cancelled_one_by_one_without_clear_support() {
    for (capabilities, expected) in [
        (None, vec!["interrupt"]),
        (
            Some(json!([
                "interrupt_receipt_v1",
                "interrupt_cancel_queued_v1"
            ])),
            vec!["interrupt"],
        ),
        (
            Some(json!(["interrupt_cancel_queued_v1"])),
            vec!["interrupt"],
        ),
        (
            Some(json!(["interrupt_receipt_v1"])),
            vec!["cancel_async_message", "cancel_async_message", "interrupt"],
        ),
    ] {
        let (mut session, [a, b, c]) = with_messages();
        let introduction = requests(&session.initialize());
        if let Some(capabilities) = capabilities {
            hear(
                &mut session,
                &success(&introduction[0].0, json!({"capabilities": capabilities})),
            );
        }
        for line in [
            lifecycle_line(&a, "started"),
            status(),
            lifecycle_line(&b, "queued"),
            lifecycle_line(&c, "queued"),
        ] {
            hear(&mut session, &line);
        }
        let asked = requests(&session.interrupt(true).unwrap());
        let kinds: Vec<&str> = asked
            .iter()
            .map(|(_, request)| request["subtype"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, expected);
        let (_, interrupt) = asked.last().unwrap();
        assert_eq!(interrupt.get("cancel_queued").is_some(), kinds.len() == 1);
        if let [(first, request), (second, _), _] = &asked[..] {
            assert_eq!(request["message_uuid"], b.id.to_string());
            let dropped = Event::Input {
                id: b.id,
                state: agent_duplex::InputState::Dropped("cancelled".to_owned()),
            };
            assert_eq!(
                hear(&mut session, &success(first, json!({"cancelled": true}))),
                [dropped]
            );
            assert_eq!(
                hear(&mut session, &success(second, json!({"cancelled": false}))),
                [],
                "the message runs next"
            );
        }
    }
}

#[test]
fn model_change_is_reported_after_its_response() {
    let mut session = fresh();
    let asked = requests(&session.set_model(Some("opus")));
    assert_eq!(asked[0].1, json!({"subtype": "set_model", "model": "opus"}));
    assert!(session.is_asking());
    hear(&mut session, &success(&asked[0].0, json!({})));
    assert_eq!(
        (session.is_asking(), session.model_answer()),
        (false, Some(Ok(())))
    );
    let asked = requests(&session.set_model(None));
    assert!(asked[0].1["model"].is_null());
    assert_eq!(hear(&mut session, &refusal(&asked[0].0)), []);
    assert_eq!(
        session.model_answer(),
        Some(Err("no such thing".to_owned()))
    );
    // No caller waits for the first change any more, so its refusal is reported.
    let first = requests(&session.set_model(Some("a")));
    let second = requests(&session.set_model(Some("b")));
    assert!(matches!(
        hear(&mut session, &refusal(&first[0].0))[..],
        [Event::Warning(_)]
    ));
    assert!(session.is_asking());
    assert_eq!(session.model_answer(), None);
    assert_eq!(
        session.next_answer_deadline(Instant::now()),
        None,
        "the request is given up"
    );
    assert_eq!(hear(&mut session, &refusal(&second[0].0)), []);
}

#[test]
fn background_task_lasts_until_its_turn_begins() {
    let mut session = fresh();
    let system = |subtype: &str, tasks: Value| json!({"type": "system", "subtype": subtype, "status": "completed", "tasks": tasks});
    let listed = |tasks: Value| system("background_tasks_changed", tasks);
    let over = system("task_notification", Value::Null);
    let one = listed(json!([{"task_id": "a"}]));
    assert_eq!(hear(&mut session, &one), [Event::BackgroundTasks(1)]);
    assert_eq!(hear(&mut session, &over), []);
    assert_eq!(hear(&mut session, &listed(json!([]))), []);
    hear(&mut session, &json!({"type": "system", "subtype": "init"}));
    let requesting = json!({"type": "system", "subtype": "status", "status": "requesting"});
    let begun = Event::TurnStarted { inputs: vec![] };
    let begins = [begun, Event::BackgroundTasks(0)];
    assert_eq!(hear(&mut session, &requesting), begins);
    // If a task ends during a turn, the agent reads the result of the task in that turn.
    assert_eq!(hear(&mut session, &one), [Event::BackgroundTasks(1)]);
    assert_eq!(hear(&mut session, &over), []);
    let none = listed(json!([]));
    assert_eq!(hear(&mut session, &none), [Event::BackgroundTasks(0)]);
}

#[test]
fn background_tasks_are_those_of_the_last_list() {
    let mut session = fresh();
    let tasks =
        |ids: Value| json!({"type": "system", "subtype": "background_tasks_changed", "tasks": ids});
    let two = tasks(json!([{"task_id": "a"}, {"task_id": "b"}]));
    assert_eq!(hear(&mut session, &two), [Event::BackgroundTasks(2)]);
    let other = tasks(json!([{"task_id": "c"}, {"kind": "nameless"}]));
    assert_eq!(hear(&mut session, &other), [], "the number is still two");
    let stopped = requests(&session.stop_tasks());
    assert_eq!(stopped.len(), 1);
    assert_eq!(
        stopped[0].1,
        json!({"subtype": "stop_task", "task_id": "c"})
    );
    assert_eq!(
        hear(&mut session, &refusal(&stopped[0].0)),
        [],
        "the task was finished"
    );
    assert!(session.stop_tasks().is_empty(), "each task is stopped once");
    let many: Vec<Value> = (0..1000)
        .map(|n| json!({"task_id": n.to_string()}))
        .collect();
    hear(&mut session, &tasks(json!(many)));
    assert_eq!(session.tasks.len(), TASKS);
}

#[test]
fn images_are_content_blocks_between_the_texts() {
    let message = Message::new("Is").with_id(Uuid::from_u128(7));
    let written = Session::message(&message, &crate::parts::tests::two_images());
    let content = r#"[{"text":"Is","type":"text"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},{"text":"like","type":"text"},{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"/9j/4A=="}}]"#;
    let line = format!(
        r#"{{"type":"user","message":{{"role":"user","content":{content}}},"parent_tool_use_id":null,"session_id":"","uuid":"{}"}}"#,
        message.id
    );
    assert_eq!(String::from_utf8(written).unwrap(), line + "\n");
    // The service refuses an empty block.
    let written = Session::message(&Message::new(""), &crate::parts::tests::two_images());
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written["message"]["content"][0]["type"], "image");
}

#[test]
fn written_line_is_what_agent_reads() {
    let read = |line: Vec<u8>| {
        assert_eq!(line.last(), Some(&b'\n'));
        serde_json::from_slice::<Value>(&line).unwrap()
    };
    let message = Message::new("say \"hi\"\n\u{1f600}");
    let said = read(Session::message(&message, &[]));
    assert_eq!(
        said,
        json!({"type": "user", "message": {"role": "user", "content": &*message.text},
            "parent_tool_use_id": null, "session_id": "", "uuid": message.id.to_string()})
    );

    let mut session = fresh();
    let input = json!({"command": "ls"});
    let request = json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": &input});
    let ask = json!({"type": "control_request", "request_id": "a\"", "request": request});
    hear(&mut session, &ask);
    let answer = |answer: Value| json!({"type": "control_response", "response": {"subtype": "success", "request_id": "a\"", "response": answer}});
    assert_eq!(
        read(session.answer("a\"", &Decision::Allow).unwrap()),
        answer(json!({"behavior": "allow", "updatedInput": input}))
    );
    let message = "not \"now\"".to_owned();
    let no = Decision::Deny { message };
    assert_eq!(
        read(session.answer("a\"", &no).unwrap()),
        answer(json!({"behavior": "deny", "message": "not \"now\""}))
    );

    for (permissions, expected) in [
        (Permissions::Ask, "default"),
        (Permissions::Deny, "default"),
        (Permissions::Edits, "acceptEdits"),
        (Permissions::All, "bypassPermissions"),
    ] {
        let asked = requests(&session.set_mode(mode(permissions)));
        let request = json!({"subtype": "set_permission_mode", "mode": expected});
        assert_eq!(asked[0].1, request);
    }
}

#[test]
fn p49a_keep_alive_is_no_activity() {
    let (mut session, [_]) = with_messages();
    assert!(
        session
            .handle_line(br#"{"type":"keep_alive"}"#)
            .is_keep_alive
    );
    for line in [status(), result(), json!({"type": "tomorrow"})] {
        assert!(
            !session
                .handle_line(line.to_string().as_bytes())
                .is_keep_alive
        );
    }
}
