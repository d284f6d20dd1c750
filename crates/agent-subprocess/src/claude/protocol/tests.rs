use super::*;
use agent_duplex::Message;
use std::fmt::Write as _;
use std::path::Path;

const GOLDEN: [&str; 12] = [
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
];

fn golden(name: &str) -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/claude_{name}.ndjson"));
    std::fs::read(path).unwrap()
}

/// Begins as the driver does, with the id that the agent was told.
fn session(recording: &[u8]) -> Session {
    let text = String::from_utf8_lossy(recording);
    let mut lines = text.lines().filter_map(Object::parse);
    Session::new(lines.find_map(|line| line.get("session_id")).unwrap())
}

/// Feeds lines; a message was sent just before the agent first speaks of it.
fn replay(session: &mut Session, bytes: &[u8]) -> Vec<Event> {
    let (mut events, mut sent) = (Vec::new(), Vec::new());
    for line in bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let id = Object::parse(&String::from_utf8_lossy(line))
            .and_then(|line| line.uuid("command_uuid"));
        if let Some(id) = id.filter(|id| !sent.contains(id)) {
            let text = String::new();
            session.sent(&Message { id, text });
            sent.push(id);
        }
        events.extend(session.hear(line).events);
    }
    events
}

/// One event a line; deltas in a row are one.
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
fn recordings_of_the_real_agent_are_understood() {
    for name in GOLDEN {
        let bytes = golden(name);
        let mut session = session(&bytes);
        let mut events = replay(&mut session, &bytes);
        if !bytes.ends_with(b"\n") || session.owes_turn() {
            events.extend(session.exited(ExitStatus::Signal(15), String::new()));
        }
        insta::assert_snapshot!(name, shown(&events));
    }
}
