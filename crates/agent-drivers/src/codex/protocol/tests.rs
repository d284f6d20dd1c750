//! Tests of the protocol with lines only. They replay recordings of the real agent.

mod asks;
mod control;
mod items;
mod properties;
mod states;

use super::replay::{Replay, TIMEOUTS, hear_bytes, session};
use super::*;
use agent_duplex::{Decision, InputState, Message, SessionChoice, ToolOutcome};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Recordings of the real agent (0.169.0), with the driver's lines between the agent's lines. See `tests/golden`.
const GOLDEN: [&str; 14] = [
    "01_turns",
    "02_held",
    "03_resume",
    "04_fork",
    "05_unknown_session",
    "06_interrupt_tool",
    "07_steer",
    "08_steer_interrupt",
    "09_interrupt_at_once",
    "10_background",
    "11_asks",
    "12_errors",
    "13_stop",
    "14_mcp",
];

fn golden(name: &str) -> String {
    let name = format!("tests/golden/codex_{name}.ndjson");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn hear(session: &mut Session, line: &Value) -> LineOutcome {
    hear_bytes(session, line.to_string().as_bytes())
}

/// Returns the written lines, parsed.
fn written(outcome: &LineOutcome) -> Vec<Value> {
    let lines = outcome.lines.iter();
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Shows one event or one written line per line. Consecutive deltas are joined.
fn shown(outcome: &[LineOutcome]) -> String {
    let (mut shown, mut deltas) = (String::new(), (0, String::new()));
    for outcome in outcome {
        for event in &outcome.events {
            if let Event::TextDelta(text) = event {
                deltas.0 += 1;
                deltas.1 += text;
                continue;
            }
            flush(&mut shown, &mut deltas);
            writeln!(shown, "{event:?}").unwrap();
        }
        for line in written(outcome) {
            flush(&mut shown, &mut deltas);
            let version = env!("CARGO_PKG_VERSION");
            let line = line.to_string().replace(&format!("\"{version}\""), "\"…\"");
            writeln!(shown, "> {line}").unwrap();
        }
    }
    shown
}

fn flush(shown: &mut String, deltas: &mut (u32, String)) {
    if deltas.0 > 0 {
        writeln!(shown, "{} x TextDelta {:?}", deltas.0, deltas.1).unwrap();
        *deltas = (0, String::new());
    }
}

const THREAD: &str = "t";

fn open(session: &mut Session, choice: &str) -> LineOutcome {
    session.initialize();
    let outcome = hear(
        session,
        &json!({"id": 1, "result": {"userAgent": "x/1.2.3 (y)"}}),
    );
    assert_eq!(written(&outcome)[1]["method"], choice);
    let result = json!({"thread": {"id": THREAD}, "model": "m"});
    hear(session, &json!({"id": 2, "result": result}))
}

fn opened_with(permissions: Permissions) -> Session {
    let mut session = session(&SessionChoice::Fresh, permissions);
    open(&mut session, "thread/start");
    session
}

fn opened() -> Session {
    opened_with(Permissions::All)
}

fn tell(session: &mut Session, method: &str, mut params: Value) -> LineOutcome {
    params["threadId"] = json!(THREAD);
    hear(session, &json!({"method": method, "params": params}))
}

fn say(session: &mut Session, text: &str) -> (Uuid, LineOutcome) {
    let message = Message::new(text);
    (message.id, session.send(&message, &[]))
}

fn id(outcome: &LineOutcome) -> Value {
    written(outcome).last().unwrap()["id"].clone()
}

fn ok(session: &mut Session, request: &Value, result: Value) -> LineOutcome {
    hear(session, &json!({"id": request, "result": result}))
}

fn refuse(session: &mut Session, request: &Value) -> LineOutcome {
    let error = json!({"code": -32600, "message": "no active turn"});
    hear(session, &json!({"id": request, "error": error}))
}

/// Begins a turn with this id.
fn begin(session: &mut Session, turn: &str) -> Uuid {
    let (message, outcome) = say(session, "work");
    ok(session, &id(&outcome), json!({"turn": {"id": turn}}));
    let outcome = tell(session, "turn/started", json!({"turn": {"id": turn}}));
    let inputs = vec![message];
    assert_eq!(outcome.events, [Event::TurnStarted { inputs }]);
    message
}

fn complete(session: &mut Session, turn: &str, status: &str) -> LineOutcome {
    tell(
        session,
        "turn/completed",
        json!({"turn": {"id": turn, "status": status}}),
    )
}

fn methods(outcome: &LineOutcome) -> Vec<String> {
    let written = written(outcome);
    written
        .iter()
        .map(|line| text(&line["method"]).to_owned())
        .collect()
}

fn reasons(outcome: &LineOutcome) -> Vec<EndReason> {
    let ends = outcome.events.iter().filter_map(|event| match event {
        Event::TurnCompleted(end) => Some(end.reason),
        _ => None,
    });
    ends.collect()
}

#[test]
fn p54_recordings_of_the_real_agent_are_parsed() {
    for name in GOLDEN {
        let recording = golden(name);
        let mut replay = Replay::new(&recording);
        let mut outcome: Vec<LineOutcome> = { recording.lines() }
            .map(|line| replay.line(line.as_bytes()))
            .collect();
        let events = replay.session.exited(ExitStatus::Code(0), String::new());
        outcome.push(LineOutcome {
            events,
            lines: Vec::new(),
        });
        insta::assert_snapshot!(name, shown(&outcome));
    }
}
