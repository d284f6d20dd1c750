//! Tests of usage queries within a turn.

use super::*;
use agent_duplex::Usage;

const ABLE: &str = "get_usage_detached_v1";

fn begin(session: &mut Session, capabilities: &Value) {
    session.sent(&Message::new("hello"));
    let init = json!({"type": "system", "subtype": "init", "capabilities": capabilities});
    hear(session, &init);
    let status = json!({"type": "system", "subtype": "status", "status": "requesting"});
    hear(session, &status);
}

/// Ends a call of the model, and returns the ids of the usage queries that follow.
fn call(session: &mut Session) -> Vec<String> {
    hear(
        session,
        &json!({"type": "stream_event", "event": {"type": "message_start"}}),
    );
    let stop = json!({"type": "stream_event", "event": {"type": "message_stop"}});
    asks(&session.handle_line(stop.to_string().as_bytes()).lines)
}

fn asks(lines: &[Vec<u8>]) -> Vec<String> {
    let ask = |line: &Vec<u8>| {
        let line: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(line["request"]["subtype"], "get_usage");
        assert_eq!(line["request"]["detached"], true);
        line["request_id"].as_str().unwrap().to_owned()
    };
    lines.iter().map(ask).collect()
}

/// Answers with totals, and returns the counted usage and the next usage queries.
fn answer(session: &mut Session, id: &str, cost: f64, tokens: u64) -> (u64, u64, Vec<String>) {
    let usage = json!({"total_cost_usd": cost, "model_usage": {"a": {"inputTokens": tokens}}});
    let response = json!({"subtype": "success", "request_id": id, "response": {"session": usage}});
    let line = json!({"type": "control_response", "response": response});
    let outcome = session.handle_line(line.to_string().as_bytes());
    let (cost, tokens) = sum(&outcome.events);
    (cost, tokens, asks(&outcome.lines))
}

fn result(session: &mut Session, cost: f64, tokens: u64) -> (u64, u64) {
    let models = json!({"a": {"inputTokens": tokens}});
    let result = json!({"type": "result", "total_cost_usd": cost, "modelUsage": models, "model_usage_since_last_result": models});
    sum(&hear(session, &result))
}

fn sum(events: &[Event]) -> (u64, u64) {
    let used = events.iter().filter_map(|event| match event {
        Event::UsageReported(used) => Some(*used),
        _ => None,
    });
    let all = used.fold(Usage::default(), |mut all, used| {
        all += used;
        all
    });
    (all.cost_microusd, all.input_tokens)
}

#[test]
fn x108e_usage_is_queried_within_turn_and_counted_once() {
    let mut session = Session::new("s".into(), false, TIMEOUTS);
    assert_eq!(
        session.query_earlier_usage(),
        None,
        "a fresh session has no earlier usage"
    );
    begin(&mut session, &json!([ABLE]));
    let first = call(&mut session);
    assert_eq!(first.len(), 1);
    assert!(call(&mut session).is_empty(), "one query at a time");
    let (cost, tokens, again) = answer(&mut session, &first[0], 0.25, 100);
    assert_eq!((cost, tokens, again.len()), (250_000, 100, 1));
    let (cost, tokens, again) = answer(&mut session, &again[0], 0.4, 150);
    assert_eq!((cost, tokens, again.len()), (150_000, 50, 0));
    let late = call(&mut session);
    assert_eq!(result(&mut session, 0.5, 180), (100_000, 30));
    let (cost, tokens, again) = answer(&mut session, &late[0], 0.5, 180);
    assert_eq!((cost, tokens, again.len()), (0, 0, 0));
    // The usage between two turns is counted too.
    begin(&mut session, &json!([ABLE]));
    let next = call(&mut session);
    assert_eq!(answer(&mut session, &next[0], 0.7, 200).0, 200_000);
    // A subagent streams nothing: its message is the end of a call.
    answer(&mut session, &next[0], 0.7, 200);
    let apart = json!({"type": "assistant", "parent_tool_use_id": "t", "message": {}});
    let line = apart.to_string();
    assert_eq!(asks(&session.handle_line(line.as_bytes()).lines).len(), 1);
    session.interrupt(false).unwrap();
    assert!(
        call(&mut session).is_empty(),
        "an interrupted turn gets no query"
    );
    assert_eq!(result(&mut session, 0.75, 210), (50_000, 10));
}

#[test]
fn x108e_usage_of_a_resumed_session_is_queried_first() {
    let mut session = Session::new("s".into(), true, TIMEOUTS);
    let past = asks(&[session.query_earlier_usage().unwrap()]);
    assert_eq!(answer(&mut session, &past[0], 7.0, 900).0, 0);
    begin(&mut session, &json!([ABLE]));
    let first = call(&mut session);
    assert_eq!(answer(&mut session, &first[0], 7.5, 950).0, 500_000);
    assert_eq!(result(&mut session, 8.0, 999), (500_000, 49));

    // If the answer comes too late, the report at the end of the turn is used.
    let mut session = Session::new("s".into(), true, TIMEOUTS);
    let past = asks(&[session.query_earlier_usage().unwrap()]);
    begin(&mut session, &json!([ABLE]));
    assert!(call(&mut session).is_empty());
    assert_eq!(answer(&mut session, &past[0], 7.5, 950).0, 0);
    assert!(call(&mut session).is_empty());
    assert_eq!(result(&mut session, 0.3, 9), (0, 9));
}

#[test]
fn x108e_agent_that_checks_its_subscription_is_queried_less_often() {
    let mut session = Session::new("s".into(), false, TIMEOUTS);
    begin(&mut session, &json!([ABLE]));
    let first = call(&mut session);
    let totals = json!({"total_cost_usd": 0.1, "model_usage": {}});
    let body = json!({"session": totals, "rate_limits_available": true});
    let response = json!({"subtype": "success", "request_id": first[0], "response": body});
    let line = json!({"type": "control_response", "response": response});
    session.handle_line(line.to_string().as_bytes());
    let asked: Vec<usize> = (0..16).map(|_| call(&mut session).len()).collect();
    assert_eq!(
        asked.iter().sum::<usize>(),
        1,
        "{asked:?}: the second query waits for the first answer"
    );
    assert_eq!(asked[7], 1);
}

#[test]
fn x108e_agent_without_usage_query_is_not_queried() {
    let mut session = Session::new("s".into(), false, TIMEOUTS);
    begin(&mut session, &json!(["interrupt_receipt_v1"]));
    assert!(call(&mut session).is_empty());
    assert_eq!(result(&mut session, 0.5, 9), (500_000, 9));

    let mut session = Session::new("s".into(), false, TIMEOUTS);
    begin(&mut session, &json!([ABLE]));
    let first = call(&mut session);
    let response = json!({"subtype": "error", "request_id": first[0], "error": "no"});
    let refusal = json!({"type": "control_response", "response": response});
    let outcome = session.handle_line(refusal.to_string().as_bytes());
    assert_eq!((outcome.events.len(), outcome.lines.len()), (0, 0));
    assert!(call(&mut session).is_empty());
    assert_eq!(result(&mut session, 0.5, 9), (500_000, 9));
}
