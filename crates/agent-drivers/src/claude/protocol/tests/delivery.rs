//! Tests of the delivery of messages, and of requests and permission requests.

use super::*;
use agent_duplex::InputState;
use std::collections::BTreeSet;

pub(super) fn status() -> Value {
    json!({"type": "system", "subtype": "status", "status": "requesting"})
}

fn init() -> Value {
    json!({"type": "system", "subtype": "init"})
}

pub(super) fn lifecycle_line(message: &Message, state: &str) -> Value {
    json!({"type": "command_lifecycle", "command_uuid": message.id.to_string(), "state": state})
}

pub(super) fn result() -> Value {
    json!({"type": "result", "terminal_reason": "completed"})
}

fn started(events: &[Event]) -> Vec<Vec<Uuid>> {
    let started = events.iter().filter_map(|event| match event {
        Event::TurnStarted { inputs } => Some(inputs.clone()),
        _ => None,
    });
    started.collect()
}

pub(super) fn with_messages<const N: usize>() -> (Session, [Message; N]) {
    let mut session = fresh();
    let messages = [(); N].map(|()| Message::new("hello"));
    messages.iter().for_each(|message| session.sent(message));
    (session, messages)
}

#[test]
fn p20a_turn_without_message_ids_takes_all_queued_messages() {
    let (mut session, [a, b]) = with_messages();
    assert!(hear(&mut session, &init()).is_empty() || !session.reports_delivery);
    let events = hear(&mut session, &status());
    assert_eq!(started(&events), [[a.id, b.id]]);
}

#[test]
fn p20a_turn_without_messages_is_a_turn() {
    let mut session = fresh();
    hear(&mut session, &init());
    assert_eq!(
        started(&hear(&mut session, &status())),
        [Vec::<Uuid>::new()]
    );
    let events = hear(&mut session, &result());
    assert_eq!(events, [Event::TurnCompleted(EndReason::Completed.into())]);
}

#[test]
fn p20b_late_result_does_not_end_the_current_turn() {
    let (mut session, [a, b]) = with_messages();
    for line in [
        lifecycle_line(&a, "started"),
        init(),
        status(),
        result(),
        lifecycle_line(&b, "queued"),
    ] {
        hear(&mut session, &line);
    }
    // The agent has not reported that it took the second message.
    assert_eq!(hear(&mut session, &result()), []);
    let of_a = json!({"type": "result", "user_message_uuids": [a.id.to_string()]});
    assert_eq!(hear(&mut session, &of_a), []);
    assert_eq!(
        hear(
            &mut session,
            &json!({"type": "assistant", "message": {"content": "late"}})
        ),
        []
    );
    assert!(session.is_turn_expected());
    hear(&mut session, &lifecycle_line(&b, "started"));
    assert_eq!(started(&hear(&mut session, &status())), [[b.id]]);
}

#[test]
fn p20a_message_completed_without_a_turn_gets_one() {
    let (mut session, [a]) = with_messages();
    let events = hear(&mut session, &lifecycle_line(&a, "completed"));
    let inputs = vec![a.id];
    let end = Event::TurnCompleted(EndReason::Completed.into());
    assert_eq!(events, [Event::TurnStarted { inputs }, end]);
    assert!(!session.is_turn_expected());
}

#[test]
fn p20a_turn_has_only_its_own_messages() {
    // A message that is completed while another turn runs is part of that turn.
    let (mut session, [a, b]) = with_messages();
    for line in [lifecycle_line(&a, "started"), status()] {
        hear(&mut session, &line);
    }
    let taken = Event::Input {
        id: b.id,
        state: InputState::InTurn,
    };
    assert_eq!(
        hear(&mut session, &lifecycle_line(&b, "completed")),
        [taken]
    );
    assert!(session.is_turn_expected());
    // A message that is dropped before the turn begins is not part of it.
    let (mut session, [a, b]) = with_messages();
    for line in [
        lifecycle_line(&a, "started"),
        lifecycle_line(&b, "started"),
        lifecycle_line(&b, "cancelled"),
    ] {
        hear(&mut session, &line);
    }
    assert_eq!(started(&hear(&mut session, &status())), [[a.id]]);
    // Other lines name the messages of a turn too.
    for kind in ["assistant", "result"] {
        let (mut session, [a, b]) = with_messages();
        hear(&mut session, &lifecycle_line(&b, "queued"));
        let line = json!({"type": kind, "user_message_uuids": [a.id.to_string()]});
        assert_eq!(started(&hear(&mut session, &line)), [[a.id]]);
    }
}

#[test]
fn interrupt_of_a_dropped_message_completes() {
    let (mut session, [a]) = with_messages();
    session.interrupt(false).unwrap();
    hear(&mut session, &lifecycle_line(&a, "cancelled"));
    session.sent(&Message::new("next"));
    assert!(!session.is_interrupting());
    assert!(session.interrupt(false).is_some());
}

#[test]
fn p26b_message_dropped_by_exit_is_not_reported_as_dropped() {
    let dropped = |leaving: bool| {
        let (mut session, [a]) = with_messages();
        if leaving {
            session.note_ending();
        }
        let events = hear(&mut session, &lifecycle_line(&a, "cancelled"));
        (events, session.exited(ExitStatus::Code(0), String::new()))
    };
    let (fate, end) = dropped(false);
    assert!(matches!(
        &fate[..],
        [Event::Input {
            state: InputState::Dropped(_),
            ..
        }]
    ));
    assert_eq!(end, [Event::Exited(ExitStatus::Code(0))]);
    let (fate, end) = dropped(true);
    assert_eq!(
        (fate, end),
        (vec![], vec![Event::Exited(ExitStatus::Code(0))])
    );
}

#[test]
fn death_ends_the_turn_of_pending_messages() {
    let (mut session, [a]) = with_messages();
    let events = session.exited(ExitStatus::Signal(9), "oops".to_owned());
    assert_eq!(started(&events), [[a.id]]);
    let Some(Event::TurnCompleted(end)) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(
        (end.reason, end.output_tail.as_str()),
        (EndReason::Died, "oops")
    );
}

#[test]
fn p21b_interrupt_is_repeated_only_to_drop_queued_messages() {
    let (mut session, [_]) = with_messages();
    assert!(!session.is_interrupting());
    assert!(session.interrupt(false).is_some() && session.is_interrupting());
    assert!(session.interrupt(false).is_none());
    assert!(session.interrupt(true).is_some());
    assert!(session.interrupt(true).is_none() && session.interrupt(false).is_none());
    hear(&mut session, &result());
    assert!(!session.is_interrupting());
    assert!(session.interrupt(true).is_none(), "no turn runs");
}

/// Returns a session whose first turn completed after an interrupt, and whose second turn runs.
fn next_turn_after_an_interrupt() -> Session {
    let (mut session, [a, b]) = with_messages();
    for line in [
        lifecycle_line(&a, "started"),
        status(),
        lifecycle_line(&b, "queued"),
    ] {
        hear(&mut session, &line);
    }
    session.interrupt(false).unwrap();
    for line in [result(), lifecycle_line(&b, "started"), status()] {
        hear(&mut session, &line);
    }
    session
}

#[test]
fn late_interrupt_of_the_next_turn_is_reported() {
    let mut session = next_turn_after_an_interrupt();
    let events = hear(
        &mut session,
        &json!({"type": "result", "terminal_reason": "aborted_streaming"}),
    );
    let [Event::Warning(warning), Event::TurnCompleted(end)] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(warning.contains("too late"));
    assert_eq!(end.reason, EndReason::Interrupted);
}

#[test]
fn interrupt_by_another_client_is_not_a_late_one() {
    let mut session = fresh();
    let aborted = json!({"type": "result", "terminal_reason": "aborted_streaming"});
    for end in [result(), aborted.clone(), aborted] {
        session.sent(&Message::new("hello"));
        let events = hear(&mut session, &end);
        let [Event::TurnStarted { .. }, Event::TurnCompleted(_)] = &events[..] else {
            panic!("{events:?}")
        };
    }
}

#[test]
fn idle_or_repeated_interrupt_is_not_reported_as_late() {
    for (again, reason) in [(false, "completed"), (true, "aborted_streaming")] {
        let mut session = next_turn_after_an_interrupt();
        if again {
            session.interrupt(false).unwrap();
        }
        let end = json!({"type": "result", "terminal_reason": reason});
        let events = hear(&mut session, &end);
        assert!(
            matches!(events[..], [Event::TurnCompleted(_)]),
            "{events:?}"
        );
    }
}

#[test]
fn p15a_p15b_request_ids_are_unique_and_foreign_responses_ignored() {
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let mut session = fresh();
        for line in [
            session.initialize(),
            session.set_mode("default"),
            session.end_session(),
        ] {
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let line: Value = serde_json::from_slice(&line).unwrap();
            assert!(ids.insert(line["request_id"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(ids.len(), 9);
    let (mut session, [_]) = with_messages();
    let line: Value = serde_json::from_slice(&session.interrupt(false).unwrap()).unwrap();
    let answer = |id: &Value| json!({"type": "control_response", "response": {"subtype": "success", "request_id": id, "response": {"still_queued": []}}});
    assert_eq!(hear(&mut session, &answer(&"foreign".into())), []);
    let taken = Event::InterruptAcknowledged { queued: vec![] };
    assert_eq!(hear(&mut session, &answer(&line["request_id"])), [taken]);
    assert_eq!(
        hear(&mut session, &answer(&line["request_id"])),
        [],
        "a second answer is ignored"
    );
}

#[test]
fn p17a_p17b_excess_and_unknown_requests_are_answered_at_once() {
    let (mut session, [_]) = with_messages();
    let ask = |n: usize| json!({"type": "control_request", "request_id": format!("a{n}"), "request": {"subtype": "can_use_tool", "tool_name": "Bash"}});
    for n in 0..MAX_PERMISSION_REQUESTS {
        assert!(
            session
                .handle_line(ask(n).to_string().as_bytes())
                .lines
                .is_empty()
        );
    }
    let outcome = session.handle_line(ask(MAX_PERMISSION_REQUESTS).to_string().as_bytes());
    assert!(
        outcome.events.is_empty() && outcome.lines.len() == 1,
        "{outcome:?}"
    );
    // A few large requests reach the limit too.
    for (bytes, refused) in [(MAX_REQUEST_BYTES, 0), (MAX_REQUEST_BYTES + 1, 1)] {
        let (mut session, [_]) = with_messages();
        hear(&mut session, &ask(0));
        session.asks.get_mut("a0").unwrap().input = "x".repeat(bytes);
        let outcome = session.handle_line(ask(1).to_string().as_bytes());
        assert_eq!(outcome.lines.len(), refused);
    }
    let hook = json!({"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback"}});
    let outcome = session.handle_line(hook.to_string().as_bytes());
    let answer: Value = serde_json::from_slice(&outcome.lines[0]).unwrap();
    assert_eq!(answer["response"]["subtype"], "error");
    assert_eq!(answer["response"]["request_id"], "h");
}

#[test]
fn p18_withdrawn_permission_request_is_not_answered() {
    let (mut session, [_]) = with_messages();
    let ask = json!({"type": "control_request", "request_id": "a", "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"n": 1}}});
    hear(&mut session, &ask);
    assert!(session.answer("a", &Decision::Allow).is_some());
    let cancel = json!({"type": "control_cancel_request", "request_id": "a"});
    let withdrawn = Event::PermissionWithdrawn { id: "a".to_owned() };
    assert_eq!(hear(&mut session, &cancel), [withdrawn]);
    assert!(session.answer("a", &Decision::Allow).is_none());
    assert_eq!(hear(&mut session, &cancel), []);
}

#[test]
fn background_permission_request_outlives_the_turn() {
    let (mut session, [_]) = with_messages();
    hear(&mut session, &status());
    let asked = |id: &str, more: Value| {
        let mut request = json!({"subtype": "can_use_tool", "tool_name": "Bash"});
        request
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"type": "control_request", "request_id": id, "request": request})
    };
    hear(&mut session, &asked("a", json!({})));
    let again = hear(&mut session, &asked("b", json!({"agent_id": "worker"})));
    let mut events = hear(&mut session, &result());
    assert_eq!(events.split_off(events.len() - 1), again);
    let withdrawn = |id: &str| Event::PermissionWithdrawn { id: id.to_owned() };
    let end = Event::TurnCompleted(EndReason::Completed.into());
    assert_eq!(events, [withdrawn("a"), withdrawn("b"), end]);
    assert!(session.answer("a", &Decision::Allow).is_none());
    assert!(session.answer("b", &Decision::Allow).is_some());
}

#[test]
fn x107a_limits_tasks_and_resets_are_reported() {
    let mut session = fresh();
    let lines = [
        json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}),
        json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning", "rateLimitType": "five_hour"}}),
        json!({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_700_000_000, "rateLimitType": "seven_day"}}),
        json!({"type": "system", "subtype": "background_tasks_changed", "tasks": [{}, {}]}),
        json!({"type": "system", "subtype": "background_tasks_changed", "tasks": [{}, {}]}),
        json!({"type": "system", "subtype": "compact_boundary", "compact_metadata": {"trigger": "auto"}}),
        json!({"type": "system", "subtype": "permission_denied", "tool_name": "Bash", "message": "no"}),
        json!({"type": "conversation_reset", "new_conversation_id": "n", "trigger": "clear"}),
        json!({"type": "system", "subtype": "init", "session_id": "n", "model": "m"}),
    ];
    let events: Vec<Event> = lines
        .iter()
        .flat_map(|line| hear(&mut session, line))
        .collect();
    insta::assert_snapshot!(shown(&events), @r#"
    RateLimited { rejected: false, resets_at: None, limit: "five_hour" }
    RateLimited { rejected: true, resets_at: Some(SystemTime { tv_sec: 1700000000, tv_nsec: 0 }), limit: "seven_day" }
    BackgroundTasks(2)
    ContextReset { reason: "compacted (auto)" }
    PermissionDenied { tool: "Bash", message: "no" }
    ContextReset { reason: "clear" }
    Session { id: "n" }
    Identified { agent: "Claude Code ", model: "m" }
    "#);
}

#[test]
fn changed_session_is_reported_once_and_as_fault_for_a_chosen_id() {
    let chosen = Uuid::new_v4().to_string();
    let init = |id: &str| json!({"type": "system", "subtype": "init", "session_id": id});
    let reset = |id: &str| json!({"type": "conversation_reset", "new_conversation_id": id});
    let is_named = |event: &Event| matches!(event, Event::Session { id } if id == "other");
    for (was, line, named, warned) in [
        (&*chosen, init("other"), true, true),
        // The session was resumed by its name.
        ("name", init("other"), true, false),
        ("name", init("name"), false, false),
        ("name", init(""), false, false),
        ("name", reset("other"), true, false),
        ("name", reset("name"), false, false),
        ("name", reset(""), false, false),
    ] {
        let mut session = Session::new(was.to_owned(), true, TIMEOUTS);
        let events = hear(&mut session, &line);
        let sessions = events
            .iter()
            .filter(|event| matches!(event, Event::Session { .. }));
        assert_eq!(sessions.count(), usize::from(named), "{line}");
        assert_eq!(events.iter().any(is_named), named, "{line}");
        let warnings = events
            .iter()
            .filter(|event| matches!(event, Event::Warning(_)));
        assert_eq!(warnings.count(), usize::from(warned), "{line}");
        assert!(!hear(&mut session, &line).iter().any(is_named), "{line}");
    }
}
