//! Tests of turns: their end, and the reports of texts and costs before it.

use super::*;
use crate::acp::protocol::tools::MAX_ENDED;
use crate::parts::CheckedPart;
use agent_duplex::Message;

fn tool(id: &str, status: &str) -> Value {
    json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "title": "make", "kind": "execute"})
}

fn answer(session: &mut Session, request: u64, result: Value) -> TurnEnd {
    let outcome = hear(session, &json!({"id": request, "result": result}));
    match outcome.events.last() {
        Some(Event::TurnCompleted(end)) => end.clone(),
        other => panic!("the turn has no end: {other:?}"),
    }
}

fn fail(session: &mut Session, request: u64, error: Value) -> TurnEnd {
    let outcome = hear(session, &json!({"id": request, "error": error}));
    match outcome.events.last() {
        Some(Event::TurnCompleted(end)) => end.clone(),
        other => panic!("the turn has no end: {other:?}"),
    }
}

#[test]
fn images_and_files_are_content_blocks_after_the_text() {
    let parts = || {
        let mut parts = crate::parts::tests::two_images();
        parts.push(CheckedPart::File("/a b/\u{e9}#.txt".into()));
        parts
    };
    let (_, line) = fresh().prompt(&message(), &parts());
    let prompt = json!([
        {"type": "text", "text": "do it"},
        {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
        {"type": "text", "text": "like"},
        {"type": "image", "mimeType": "image/jpeg", "data": "/9j/4A=="},
        {"type": "resource_link", "uri": "file:///a%20b/%C3%A9%23.txt", "name": "\u{e9}#.txt"},
    ]);
    let params = json!({"sessionId": "s", "prompt": prompt});
    let written = said(&[line]).remove(0);
    assert_eq!(
        (&written["method"], &written["params"]),
        (&json!("session/prompt"), &params)
    );
    let (_, line) = fresh().prompt(&Message::new(""), &parts());
    assert_eq!(said(&[line])[0]["params"]["prompt"][0]["type"], "image");
}

#[test]
fn p20b_the_answer_to_the_prompt_is_the_end_of_the_turn() {
    let mut ends = String::new();
    for reason in [
        "end_turn",
        "max_tokens",
        "max_turn_requests",
        "refusal",
        "cancelled",
        "",
        "tired",
    ] {
        let mut session = fresh();
        let request = prompt(&mut session);
        // The answer to another request, or to an earlier turn, ends nothing.
        for id in [0, request - 1, request + 1] {
            let outcome = hear(
                &mut session,
                &json!({"id": id, "result": {"stopReason": "end_turn"}}),
            );
            assert_eq!(outcome.events, []);
        }
        let end = answer(&mut session, request, json!({"stopReason": reason}));
        writeln!(ends, "{reason}: {:?} {}", end.reason, end.detail).unwrap();
        let outcome = hear(
            &mut session,
            &json!({"id": request, "result": {"stopReason": "end_turn"}}),
        );
        assert_eq!(outcome.events, []);
    }
    insta::assert_snapshot!(ends);
}

#[test]
fn p24_turn_that_ends_after_cancel_is_interrupted() {
    let answers = [
        json!({"result": {"stopReason": "cancelled"}}),
        json!({"result": {"stopReason": "end_turn"}}),
        json!({"result": {}}),
        json!({"error": {"code": -32603, "message": "Internal error"}}),
        json!({"error": {"code": -32800, "message": "Request cancelled"}}),
    ];
    for mut answer in answers {
        let mut session = fresh();
        let request = prompt(&mut session);
        update(&mut session, chunk("hal"));
        update(&mut session, tool("a", "in_progress"));
        assert_eq!(
            said(&session.interrupt().lines),
            [json!({"method": "session/cancel", "params": {"sessionId": "s"}})]
        );
        // A second interrupt writes nothing.
        assert!(session.interrupt().lines.is_empty() && session.is_interrupting());
        // Agents report an interrupted call as completed.
        let cut = update(&mut session, tool("a", "completed"));
        assert!(
            matches!(
                &cut[..],
                [Event::ToolFinished {
                    outcome: ToolOutcome::Interrupted,
                    ..
                }]
            ),
            "{cut:?}"
        );
        update(&mut session, chunk("f"));
        answer["id"] = request.into();
        let events = hear(&mut session, &answer).events;
        let partial = Event::Message {
            text: "f".to_owned(),
            partial: true,
        };
        assert_eq!(
            events,
            [partial, Event::TurnCompleted(EndReason::Interrupted.into())]
        );
        // The next turn is not interrupted.
        let request = prompt(&mut session);
        let outcome = hear(
            &mut session,
            &json!({"id": request, "result": {"stopReason": "end_turn"}}),
        );
        assert_eq!(
            outcome.events,
            [Event::TurnCompleted(EndReason::Completed.into())]
        );
    }
}

#[test]
fn p22_interrupt_without_a_turn_sends_nothing() {
    let mut session = fresh();
    assert!(session.interrupt().lines.is_empty() && !session.is_interrupting());
}

#[test]
fn l91a_l91b_l91c_exit_without_response_is_a_death_with_any_code() {
    let mut session = fresh();
    prompt(&mut session);
    update(&mut session, chunk("hal"));
    update(&mut session, tool("a", "in_progress"));
    update(
        &mut session,
        json!({"sessionUpdate": "tool_call", "toolCallId": "b", "status": "pending", "title": "t"}),
    );
    let events = session.exited(ExitStatus::Code(0), "oh".to_owned());
    insta::assert_snapshot!(shown(&events));
}

#[test]
fn p43c_exit_codes_of_gemini_in_a_turn_have_their_reason() {
    let ends = |agent, code| {
        let request = SessionRequest {
            agent,
            ..session_request()
        };
        let (mut session, _) = begin(request, json!({}), json!({"sessionId": "s"}));
        prompt(&mut session);
        let events = session.exited(ExitStatus::Code(code), String::new());
        match &events[..] {
            [Event::TurnCompleted(end)] => (end.reason, !end.detail.is_empty()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ends("gemini", 42), (EndReason::Failed, true));
    assert_eq!(ends("gemini", 53), (EndReason::MaxTurns, true));
    assert_eq!(ends("gemini", 0), (EndReason::Died, false));
    assert_eq!(ends("acp", 53), (EndReason::Died, false));
}

#[test]
fn errors_are_classified_by_code_or_text() {
    let errors = [
        json!({"code": -32000, "message": "Authentication required"}),
        json!({"code": 429, "message": "Rate limit exceeded. Try again later."}),
        json!({"code": 503, "message": "down"}),
        json!({"code": -32603, "message": "Internal error", "data": {"details": "Session not found: x"}}),
        json!({"code": -32603, "message": "Internal error", "data": "prompt is too long: 1 > 0"}),
        json!({"code": -32603, "message": "Internal error: API key not valid"}),
        json!({"code": -32603, "message": "Internal error: Failed to authenticate. API Error: 401"}),
        json!({"code": -32603, "message": "API Error: 529 Overloaded"}),
        json!({"code": -32603}),
        json!({"code": -32603, "message": "HTTP 429: slow down"}),
        json!({"code": -32603, "message": "line 4290 of the file is no JSON"}),
        json!({"code": -32002, "message": "Resource not found", "data": {"details": "file:///a"}}),
        json!({"code": -32603, "message": "unknown model in this session"}),
    ];
    let mut ends = String::new();
    for error in errors {
        let mut session = fresh();
        let request = prompt(&mut session);
        let end = fail(&mut session, request, error);
        writeln!(ends, "{:?}: {}", end.reason, end.detail).unwrap();
    }
    insta::assert_snapshot!(ends);
}

#[test]
fn x107a_rate_limited_agent_is_reported() {
    let mut session = fresh();
    let request = prompt(&mut session);
    let error = json!({"code": 429, "message": "slow down"});
    let outcome = hear(&mut session, &json!({"id": request, "error": error}));
    let told = Event::RateLimited {
        rejected: true,
        resets_at: None,
        limit: "slow down".to_owned(),
    };
    assert!(outcome.events.contains(&told), "{:?}", outcome.events);
}

#[test]
fn p25c_text_is_reported_whole_at_tools_thoughts_and_messages() {
    let mut session = fresh();
    let request = prompt(&mut session);
    let mut events = Vec::new();
    let named = |text: &str, id: &str| {
        let mut chunk = chunk(text);
        chunk["messageId"] = id.into();
        chunk
    };
    let updates = [
        named("one ", "1"),
        named("message", "1"),
        named("another", "2"),
        json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
        chunk("third"),
        json!({"sessionUpdate": "tool_call", "toolCallId": "b", "status": "pending", "title": "bash", "kind": "execute"}),
        json!({"sessionUpdate": "plan", "entries": []}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "b", "rawInput": {"command": "make"}}),
        chunk("fourth"),
        tool("b", "in_progress"),
        tool("b", "failed"),
        tool("b", "completed"),
        chunk(" and last"),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": {"output": "out"}}),
        json!({"sessionUpdate": "somewhat_new", "content": {}}),
    ];
    for each in updates {
        events.extend(update(&mut session, each));
    }
    let end = json!({"id": request, "result": {"stopReason": "end_turn", "usage": {"inputTokens": 3, "cachedReadTokens": 4, "outputTokens": 2}}});
    events.extend(hear(&mut session, &end).events);
    insta::assert_snapshot!(shown(&events));
    // These updates are too late for the turn, or belong to another session.
    assert_eq!(update(&mut session, chunk("late")), []);
    prompt(&mut session);
    let params = json!({"sessionId": "other", "update": chunk("x")});
    assert_eq!(
        hear(
            &mut session,
            &json!({"method": "session/update", "params": params})
        )
        .events,
        []
    );
}

#[test]
fn p25c_text_beyond_the_limit_is_reported_in_lossless_pieces() {
    let mut session = fresh();
    let request = prompt(&mut session);
    let piece = "x".repeat(1 << 20);
    let mut events = Vec::new();
    for _ in 0..9 {
        events.extend(update(&mut session, chunk(&piece)));
    }
    let end = json!({"id": request, "result": {"stopReason": "end_turn"}});
    events.extend(hear(&mut session, &end).events);
    let lengths = events.iter().filter_map(|event| match event {
        Event::Message { text, .. } => Some(text.len() >> 20),
        _ => None,
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [4, 4, 1]);
}

#[test]
fn p25c_late_updates_of_an_ended_call_start_no_new_call() {
    let mut session = fresh();
    prompt(&mut session);
    let all = MAX_ENDED + 2;
    for n in 0..all {
        assert_eq!(
            update(&mut session, tool(&n.to_string(), "failed")).len(),
            2
        );
    }
    for n in [2, 3, all - 1] {
        assert_eq!(update(&mut session, tool(&n.to_string(), "completed")), []);
    }
    assert_eq!(
        update(&mut session, tool("1", "completed")).len(),
        2,
        "the oldest call is forgotten"
    );
    let nothing =
        json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": ""}});
    assert_eq!(update(&mut session, nothing), []);
}

#[test]
fn p28a_p28b_p28c_cost_is_the_difference_of_totals() {
    let cost = |amount: f64| json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": amount, "currency": "USD"}});
    let spent = |session: &mut Session, amount| match &update(session, cost(amount))[..] {
        [Event::UsageReported(used)] => used.cost_microusd,
        _ => 0,
    };
    let mut session = fresh();
    let amounts = [0.1, 0.1, 0.3, 0.05];
    assert_eq!(
        amounts.map(|amount| spent(&mut session, amount)),
        [100_000, 0, 200_000, 50_000]
    );
    // The cost of an earlier process is not counted again. If the total begins at zero with each process, all of it counts.
    for (cost_restarts, first) in [(false, 0), (true, 100_000)] {
        let request = SessionRequest {
            session: SessionChoice::Resume("s".to_owned()),
            cost_restarts,
            ..session_request()
        };
        session = begin(request, json!({"loadSession": true}), json!({})).0;
        assert_eq!(
            amounts.map(|amount| spent(&mut session, amount)),
            [first, 0, 200_000, 50_000]
        );
    }
    let mut other = cost(9.0);
    other["cost"]["currency"] = "EUR".into();
    assert_eq!(update(&mut session, other), []);
}
