//! Tests that depend on the order of the driver's requests and the agent's answers.

use super::*;
use crate::codex::protocol::limits::THREADS;

#[test]
fn p20a_p20b_late_message_begins_next_turn() {
    let mut session = opened();
    begin(&mut session, "a");
    let (late, outcome) = say(&mut session, "and this");
    assert_eq!(methods(&outcome), ["turn/steer"]);
    assert_eq!(written(&outcome)[0]["params"]["expectedTurnId"], "a");
    assert_eq!(methods(&refuse(&mut session, &id(&outcome))), [""; 0]);
    let outcome = complete(&mut session, "a", "completed");
    assert_eq!(methods(&outcome), ["turn/start"]);
    ok(&mut session, &id(&outcome), json!({"turn": {"id": "b"}}));
    let outcome = tell(&mut session, "turn/started", json!({"turn": {"id": "b"}}));
    assert_eq!(outcome.events, [Event::TurnStarted { inputs: vec![late] }]);
    // A repeated end of the earlier turn does not end the running turn.
    assert!(complete(&mut session, "a", "completed").events.is_empty());
    assert_eq!(
        reasons(&complete(&mut session, "b", "completed")),
        [EndReason::Completed]
    );
}

#[test]
fn p15b_responses_for_an_ended_turn_are_harmless() {
    for accepted in [true, false] {
        let mut session = opened();
        begin(&mut session, "a");
        let (late, outcome) = say(&mut session, "and this");
        let steer = id(&outcome);
        assert!(complete(&mut session, "a", "completed").lines.is_empty());
        let outcome = match accepted {
            true => ok(&mut session, &steer, json!({"turnId": "a"})),
            false => refuse(&mut session, &steer),
        };
        assert_eq!(
            (methods(&outcome), outcome.events),
            (vec!["turn/start".to_owned()], vec![])
        );
        let outcome = refuse(&mut session, &steer);
        assert!(
            outcome.lines.is_empty() && outcome.events.is_empty(),
            "a request has one answer"
        );
        let inputs = vec![late];
        let outcome = tell(&mut session, "turn/started", json!({"turn": {"id": "b"}}));
        assert_eq!(outcome.events, [Event::TurnStarted { inputs }]);
        // A repeated report does not begin the turn again.
        complete(&mut session, "b", "completed");
        let outcome = tell(&mut session, "turn/started", json!({"turn": {"id": "b"}}));
        assert!(outcome.events.is_empty() && !session.is_turn_expected());
    }
}

#[test]
fn p21a_p21b_an_interrupt_before_a_turn_runs_reaches_it() {
    let mut session = opened();
    let (_, outcome) = say(&mut session, "work");
    assert!(
        session.interrupt(false).lines.is_empty(),
        "no turn runs yet"
    );
    ok(&mut session, &id(&outcome), json!({"turn": {"id": "a"}}));
    let outcome = tell(&mut session, "turn/started", json!({"turn": {"id": "a"}}));
    assert_eq!(methods(&outcome), ["turn/interrupt"]);
    // The agent can report the start of a turn before it accepts an interrupt of that turn.
    refuse(&mut session, &id(&outcome));
    let item = json!({"turnId": "a", "item": {"type": "agentMessage", "id": "m"}});
    let outcome = tell(&mut session, "item/started", item);
    assert_eq!(methods(&outcome), ["turn/interrupt"]);
    assert!(
        session.interrupt(false).lines.is_empty(),
        "a second request writes nothing"
    );
    ok(&mut session, &id(&outcome), json!({}));
    let outcome = complete(&mut session, "a", "interrupted");
    assert_eq!(reasons(&outcome), [EndReason::Interrupted]);
}

#[test]
fn p26a_p26b_queued_messages_are_kept_or_dropped_at_interrupt() {
    for drop in [false, true] {
        let mut session = opened();
        begin(&mut session, "a");
        let (id_of, outcome) = say(&mut session, "and this");
        let steer = id(&outcome);
        let outcome = ok(&mut session, &steer, json!({"turnId": "a"}));
        let state = InputState::Queued;
        assert_eq!(outcome.events, [Event::Input { id: id_of, state }]);
        let outcome = session.interrupt(drop);
        let queued = if drop { vec![] } else { vec![id_of] };
        let outcome = ok(&mut session, &id(&outcome), json!({}));
        assert_eq!(outcome.events, [Event::InterruptAcknowledged { queued }]);
        let outcome = complete(&mut session, "a", "interrupted");
        let state = InputState::Dropped("cancelled".to_owned());
        let dropped = outcome.events.contains(&Event::Input { id: id_of, state });
        assert_eq!(
            (dropped, methods(&outcome).len()),
            (drop, usize::from(!drop))
        );
        assert_eq!(session.is_turn_expected(), !drop);
    }
}

#[test]
fn p16c_unanswered_request_is_given_up() {
    let mut session = opened();
    let (message, outcome) = say(&mut session, "work");
    let now = Instant::now();
    let due = session.next_answer_deadline(now).unwrap();
    assert_eq!(due, now + TIMEOUTS.other_requests);
    let given_up = session.expire_requests(due);
    assert_eq!(reasons(&given_up), [EndReason::Failed]);
    let inputs = vec![message];
    assert_eq!(given_up.events[0], Event::TurnStarted { inputs });
    assert!(
        ok(&mut session, &id(&outcome), json!({"turn": {"id": "a"}}))
            .events
            .is_empty()
    );
    assert!(!session.is_turn_expected());

    let mut session = super::session(&SessionChoice::Fresh, Permissions::All);
    session.initialize();
    say(&mut session, "work");
    let due = session.next_answer_deadline(now).unwrap();
    assert_eq!(due, now + TIMEOUTS.initialize);
    assert_eq!(
        reasons(&session.expire_requests(due)),
        [EndReason::ProtocolError]
    );
    assert!(session.refusal().is_some());
}

#[test]
fn p28a_p28b_p28c_tokens_are_reported_once() {
    let used = |session: &mut Session, thread: &str, all: u64, last: u64| {
        let tokens = |n: u64| json!({"inputTokens": n, "outputTokens": n / 10});
        let usage = json!({"total": tokens(all), "last": tokens(last)});
        let params = json!({"threadId": thread, "tokenUsage": usage});
        let line = json!({"method": "thread/tokenUsage/updated", "params": params});
        match hear(session, &line).events[..] {
            [Event::UsageReported(used)] => used.input_tokens,
            _ => 0,
        }
    };
    let mut session = session(&SessionChoice::Resume("t".to_owned()), Permissions::All);
    open(&mut session, "thread/resume");
    assert_eq!(
        used(&mut session, THREAD, 1000, 100),
        0,
        "the usage of an earlier process doesn't count"
    );
    begin(&mut session, "a");
    assert_eq!(used(&mut session, THREAD, 1050, 50), 50);
    assert_eq!(used(&mut session, THREAD, 1050, 50), 0, "a repeated report");
    assert_eq!(
        used(&mut session, "other", 70, 70),
        70,
        "the usage of a subagent"
    );
    assert_eq!(
        used(&mut session, THREAD, 40, 40),
        40,
        "the total began again"
    );
    assert_eq!(used(&mut session, THREAD, 100, 60), 60);
    // The list is filled up to its limit; it has two conversations so far.
    for n in 0..THREADS - 2 {
        assert_eq!(used(&mut session, &n.to_string(), 5, 5), 5);
    }
    assert_eq!(used(&mut session, "0", 5, 5), 0);
    for _ in 0..2 {
        assert_eq!(
            used(&mut session, "beyond", 5, 5),
            5,
            "the total is not stored"
        );
    }
}

#[test]
fn p54_errors_map_to_reasons() {
    let status = |kind: &str, status: u16| json!({kind: {"httpStatusCode": status}});
    let kinds = [
        (json!("unauthorized"), EndReason::NotLoggedIn),
        (status("httpConnectionFailed", 401), EndReason::NotLoggedIn),
        (json!("usageLimitExceeded"), EndReason::RateLimited),
        (json!("rateLimitExceeded"), EndReason::RateLimited),
        (
            status("responseTooManyFailedAttempts", 429),
            EndReason::RateLimited,
        ),
        (json!("serverOverloaded"), EndReason::ServiceFailed),
        (
            status("responseStreamDisconnected", 502),
            EndReason::ServiceFailed,
        ),
        (
            json!({"httpConnectionFailed": {"httpStatusCode": null}}),
            EndReason::ServiceFailed,
        ),
        (json!("contextWindowExceeded"), EndReason::ContextOverflow),
        (json!("sessionBudgetExceeded"), EndReason::BudgetExhausted),
        (json!("cyberPolicy"), EndReason::Refused),
        (json!("badRequest"), EndReason::Failed),
        (json!("tomorrow"), EndReason::Failed),
        (json!(7), EndReason::Failed),
        (Value::Null, EndReason::Failed),
    ];
    for (kind, reason) in kinds {
        let mut session = opened();
        begin(&mut session, "a");
        let error = json!({"message": "so", "codexErrorInfo": kind});
        let params = json!({"turnId": "a", "willRetry": false, "error": error});
        tell(&mut session, "error", params);
        let outcome = complete(&mut session, "a", "failed");
        assert_eq!(reasons(&outcome), [reason], "{kind}");
    }
}

#[test]
fn x107a_rate_limits_and_resets_are_reported_on_change() {
    let mut session = opened();
    let mut limits = |used: u64, reached: Option<&str>| {
        let window = json!({"usedPercent": used, "resetsAt": 1_800_000_000});
        let limits = json!({"primary": {"usedPercent": 10}, "secondary": window, "rateLimitReachedType": reached});
        let line =
            json!({"method": "account/rateLimits/updated", "params": {"rateLimits": limits}});
        let events = hear(&mut session, &line).events;
        let told = events.into_iter().map(|event| match event {
            Event::RateLimited {
                rejected,
                resets_at,
                limit,
            } => (rejected, resets_at.is_some(), limit),
            other => panic!("{other:?}"),
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(limits(50, None), []);
    assert_eq!(limits(91, None), [(false, true, "secondary".to_owned())]);
    assert_eq!(limits(92, None), []);
    assert_eq!(
        limits(100, Some("rate_limit_reached")),
        [(true, true, "rate_limit_reached".to_owned())]
    );
    assert_eq!(limits(1, None), []);
}

#[test]
fn p54_setting_chosen_during_turn_applies_to_next_turn() {
    let mut session = opened_with(Permissions::Ask);
    session.set_permissions(Permissions::Edits);
    session.set_model(Some("n".to_owned()));
    // The driver repeats the settings of a refused request.
    let (_, outcome) = say(&mut session, "zero");
    refuse(&mut session, &id(&outcome));
    let (_, outcome) = say(&mut session, "one");
    let params = written(&outcome)[0]["params"].clone();
    assert_eq!(
        (
            &params["approvalPolicy"],
            &params["sandboxPolicy"]["type"],
            &params["model"]
        ),
        (&json!("never"), &json!("workspaceWrite"), &json!("n"))
    );
    ok(&mut session, &id(&outcome), json!({"turn": {"id": "a"}}));
    tell(&mut session, "turn/started", json!({"turn": {"id": "a"}}));
    complete(&mut session, "a", "completed");
    session.set_model(None);
    let (_, outcome) = say(&mut session, "two");
    let params = written(&outcome)[0]["params"].clone();
    assert_eq!(
        (&params["approvalPolicy"], &params["model"]),
        (&Value::Null, &json!("m"))
    );
}

#[test]
fn p54_compaction_is_reported_once_and_other_threads_are_ignored() {
    let mut session = opened();
    begin(&mut session, "a");
    let item = json!({"turnId": "a", "item": {"type": "contextCompaction", "id": "c"}});
    assert_eq!(tell(&mut session, "item/completed", item).events.len(), 1);
    let params = json!({"turnId": "a"});
    assert_eq!(
        tell(&mut session, "thread/compacted", params).events.len(),
        0
    );
    let turn = json!({"threadId": "other", "turn": {"id": "a", "status": "completed"}});
    let line = json!({"method": "turn/completed", "params": turn});
    assert!(hear(&mut session, &line).events.is_empty());
    assert!(session.turn.is_some());
}

#[test]
fn p19b_messages_without_ids_are_matched_by_text() {
    let mut session = opened();
    begin(&mut session, "a");
    let (message, outcome) = say(&mut session, "and this");
    ok(&mut session, &id(&outcome), json!({"turnId": "a"}));
    let content = json!([{"type": "text", "text": "and this"}]);
    let item = json!({"type": "userMessage", "id": "u", "content": content});
    let outcome = tell(
        &mut session,
        "item/started",
        json!({"turnId": "a", "item": item}),
    );
    let state = InputState::InTurn;
    assert_eq!(outcome.events, [Event::Input { id: message, state }]);
}

#[test]
fn images_are_paths_between_the_texts() {
    let mut session = opened();
    let message = Message::new("Is");
    let outcome = session.send(&message, &crate::parts::tests::two_images());
    let input = json!([
        {"type": "text", "text": "Is"},
        {"type": "localImage", "path": "/a.png"},
        {"type": "text", "text": "like"},
        {"type": "localImage", "path": "/b.jpg"},
    ]);
    let params =
        json!({"threadId": THREAD, "input": &input, "clientUserMessageId": message.id.to_string()});
    assert_eq!(written(&outcome)[0]["method"], "turn/start");
    assert_eq!(written(&outcome)[0]["params"], params);
    ok(&mut session, &id(&outcome), json!({"turn": {"id": "a"}}));
    tell(&mut session, "turn/started", json!({"turn": {"id": "a"}}));
    // A message during the turn has the same form. An old version names the message by its texts.
    let steer = Message::new("");
    let outcome = session.send(&steer, &crate::parts::tests::two_images());
    assert_eq!(written(&outcome)[0]["method"], "turn/steer");
    assert_eq!(
        written(&outcome)[0]["params"]["input"],
        json!(input.as_array().unwrap()[1..])
    );
    ok(&mut session, &id(&outcome), json!({"turnId": "a"}));
    let item = json!({"type": "userMessage", "id": "u", "content": &input[2]["text"]});
    let unknown = tell(
        &mut session,
        "item/started",
        json!({"turnId": "a", "item": item}),
    );
    assert_eq!(unknown.events, []);
    let item = json!({"type": "userMessage", "id": "u", "content": input.as_array().unwrap()[1..]});
    let taken = tell(
        &mut session,
        "item/started",
        json!({"turnId": "a", "item": item}),
    );
    let state = InputState::InTurn;
    assert_eq!(
        taken.events,
        [Event::Input {
            id: steer.id,
            state
        }]
    );
}

#[test]
fn p45_failed_open_is_reported() {
    for (choice, why, reason, refused) in [
        (
            SessionChoice::Resume("a".to_owned()),
            "no rollout found for thread id a",
            EndReason::SessionNotFound,
            false,
        ),
        (
            SessionChoice::Resume("a".to_owned()),
            "invalid thread id: a",
            EndReason::SessionNotFound,
            false,
        ),
        (
            SessionChoice::Resume("a".to_owned()),
            "model provider `a` not found",
            EndReason::Failed,
            true,
        ),
        (
            SessionChoice::Fresh,
            "model provider not found",
            EndReason::Failed,
            true,
        ),
    ] {
        let mut session = session(&choice, Permissions::All);
        session.initialize();
        hear(&mut session, &json!({"id": 1, "result": {}}));
        let (_, outcome) = say(&mut session, "before");
        assert!(outcome.lines.is_empty());
        let error = json!({"code": -32600, "message": why});
        let outcome = hear(&mut session, &json!({"id": 2, "error": error}));
        assert_eq!(reasons(&outcome), [reason]);
        assert_eq!(session.refusal().is_some(), refused);
        let (_, outcome) = say(&mut session, "after");
        assert_eq!(reasons(&outcome), [reason]);
    }
}

#[test]
fn p25c_refused_and_failed_tools_are_reported() {
    let mut session = opened();
    begin(&mut session, "a");
    let statuses = ["completed", "failed", "declined", "inProgress", "tomorrow"];
    let outcomes = statuses.map(|status| {
        let item = json!({"type": "mcpToolCall", "id": status, "server": "s", "tool": "t", "status": status,
            "arguments": {"a": 1}, "result": {"content": [{"type": "text", "text": "é"}]}});
        let outcome = tell(&mut session, "item/completed", json!({"turnId": "a", "item": item}));
        match &outcome.events[..] {
            [Event::ToolStarted { name, .. }, Event::ToolFinished { outcome, text, .. }] => {
                assert_eq!((name.as_str(), text.as_str()), ("mcp__s__t", "é"));
                *outcome
            }
            other => panic!("{other:?}"),
        }
    });
    let expected = [
        ToolOutcome::Succeeded,
        ToolOutcome::Failed,
        ToolOutcome::Denied,
        ToolOutcome::Interrupted,
        ToolOutcome::Succeeded,
    ];
    assert_eq!(outcomes, expected);
}
