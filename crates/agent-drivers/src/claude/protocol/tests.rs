//! Tests of the protocol with lines only. They replay recordings of the real agent.

mod calls;
mod control;
mod delivery;
mod exits;
mod properties;
mod results;
mod unusual_json;
mod usage_queries;

use super::replay::Replay;
use super::*;
use agent_duplex::{Decision, Message, ToolOutcome};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// Recordings of the real agent (2.1.329). See `tests/golden`.
const GOLDEN: [&str; 25] = [
    "01_simple",
    "02_tool",
    "03_duplex",
    "04_interrupt",
    "06_steer_in_text",
    "08_resume",
    "09_sigint",
    "10_sigterm",
    "12_kill9",
    "12_kill9_resume",
    "13_429",
    "25_permission",
    "30_steer_in_tool",
    "31_interrupt_tool",
    "32_interrupt_ask",
    "33_deny",
    "34_merge",
    "35_background",
    "36_local_command",
    "37_interrupt_before_turn",
    "38_interrupt_drops",
    "39_end_session",
    "40_401",
    "41_not_logged_in",
    "42_unknown_session",
];

fn golden(name: &str) -> String {
    let name = format!("tests/golden/claude_{name}.ndjson");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

const TIMEOUTS: Timeouts = Timeouts {
    initialize: Duration::from_secs(60),
    other_requests: Duration::from_secs(20),
};

fn fresh() -> Session {
    Session::new(String::new(), true, TIMEOUTS)
}

fn hear(session: &mut Session, line: &Value) -> Vec<Event> {
    session.handle_line(line.to_string().as_bytes()).events
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

#[test]
fn p54_recordings_of_the_real_agent_are_parsed() {
    for name in GOLDEN {
        let recording = golden(name);
        let mut replay = Replay::new(&recording);
        let lines = recording.lines();
        let mut events: Vec<Event> = lines
            .flat_map(|line| replay.line(line.as_bytes()))
            .collect();
        events.extend(replay.session.exited(ExitStatus::Code(1), String::new()));
        insta::assert_snapshot!(name, shown(&events));
    }
}
