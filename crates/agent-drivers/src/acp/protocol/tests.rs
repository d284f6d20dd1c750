//! Tests of the protocol with lines only, and recordings of real agents.

mod asks;
mod opening;
mod properties;
mod states;
mod turns;

use super::*;
use agent_duplex::{Decision, ToolOutcome};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

fn session_request() -> SessionRequest {
    SessionRequest {
        roots: ["/place".to_owned(), "/real".to_owned()],
        timeouts: Timeouts {
            initialize: Duration::from_secs(60),
            other_requests: Duration::from_secs(20),
        },
        ..replay::session_request("/")
    }
}

fn hear(session: &mut Session, line: &Value) -> LineOutcome {
    session.handle_line(line.to_string().as_bytes())
}

/// Returns the written lines, parsed and without the common field.
fn said(lines: &[Vec<u8>]) -> Vec<Value> {
    let parsed = lines.iter().map(|line| json::parse(line).unwrap());
    parsed
        .map(|mut line| {
            assert_eq!(
                line.as_object_mut().unwrap().remove("jsonrpc"),
                Some(json!("2.0"))
            );
            line
        })
        .collect()
}

/// Opens a session with an agent that has `capabilities` and answers the request for a session with `opened`.
fn begin(request: SessionRequest, capabilities: Value, opened: Value) -> (Session, LineOutcome) {
    let mut session = Session::new(request);
    session.initialize();
    let introduced = json!({"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": {"name": "a", "version": "1"}});
    let mut outcome = hear(&mut session, &json!({"id": 1, "result": introduced}));
    let more = hear(&mut session, &json!({"id": 2, "result": opened}));
    outcome.lines.extend(more.lines);
    outcome.events.extend(more.events);
    (session, outcome)
}

fn fresh() -> Session {
    let (session, _) = begin(session_request(), json!({}), json!({"sessionId": "s"}));
    assert!(!session.is_opening());
    session
}

fn message() -> Message {
    Message::new("do it").with_id(Uuid::from_u128(7))
}

/// Begins a turn, and returns the number of its request.
fn prompt(session: &mut Session) -> u64 {
    let (request, _) = session.prompt(&message(), &[]);
    session.sent(&message(), request);
    request
}

fn update(session: &mut Session, update: Value) -> Vec<Event> {
    let params = json!({"sessionId": "s", "update": update});
    hear(
        session,
        &json!({"method": "session/update", "params": params}),
    )
    .events
}

fn chunk(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

/// Shows one event per line. Consecutive deltas are joined.
fn shown(events: &[Event]) -> String {
    let (mut shown, mut deltas) = (String::new(), (0, String::new()));
    for event in events.iter().map(Some).chain([None]) {
        if let Some(Event::TextDelta(text)) = event {
            deltas.0 += 1;
            deltas.1 += text;
            continue;
        }
        if deltas.0 > 0 {
            writeln!(shown, "{} x TextDelta {:?}", deltas.0, deltas.1).unwrap();
            deltas = (0, String::new());
        }
        if let Some(event) = event {
            writeln!(shown, "{event:?}").unwrap();
        }
    }
    shown
}

/// Conversations with the real agents, in both directions. See `tests/golden`.
const GOLDEN: [&str; 3] = ["claude", "gemini", "opencode"];

fn golden(name: &str) -> String {
    let name = format!("tests/golden/acp_{name}.txt");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Replays a recording, and checks that the driver writes the recorded lines.
fn replay(recording: &str) -> (Session, Vec<Event>) {
    let mut session = Session::new(replay::session_request("$WORK"));
    let (mut events, mut written) = (Vec::new(), Vec::new());
    for line in recording.lines() {
        let outcome = replay::line(&mut session, line);
        events.extend(outcome.events);
        written.extend(outcome.lines);
        let Some(ours) = line.strip_prefix("> ") else {
            continue;
        };
        let ours: Value = serde_json::from_str(ours).unwrap();
        let wrote = json::parse(&written.remove(0)).unwrap();
        let alike = ["id", "method"].iter().all(|key| wrote[key] == ours[key]);
        assert!(alike, "{wrote} instead of {ours}");
        if wrote["method"] == "session/prompt" {
            assert_eq!(wrote, ours);
        }
    }
    assert_eq!(written.len(), 0);
    (session, events)
}

#[test]
fn p54_recordings_of_real_agents_are_parsed() {
    for name in GOLDEN {
        let (_, events) = replay(&golden(name));
        insta::assert_snapshot!(name, shown(&events));
    }
}
