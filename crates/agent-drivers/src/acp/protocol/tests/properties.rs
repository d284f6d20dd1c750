//! Properties that hold for every line and every end of the process.

use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A line that the agent can write at any time, or a call of the driver.
#[derive(Clone, Debug)]
enum Step {
    Line(String),
    Send,
    Interrupt,
    Answer(bool),
    Close,
}

fn lines() -> Vec<String> {
    let update = |update: Value| {
        let params = json!({"sessionId": "s", "update": update});
        json!({"method": "session/update", "params": params})
    };
    let tool = |kind: &str, id: &str, status: &str| {
        update(json!({"sessionUpdate": kind, "toolCallId": id, "status": status, "title": "t"}))
    };
    let ask = |id: Value, call: &str| {
        let options = json!([{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]);
        let params =
            json!({"sessionId": "s", "toolCall": {"toolCallId": call}, "options": options});
        json!({"id": id, "method": "session/request_permission", "params": params})
    };
    let mut lines: Vec<Value> = (1..9)
        .map(|id| json!({"id": id, "result": {"sessionId": "s", "stopReason": "end_turn"}}))
        .collect();
    lines.extend((1..6).map(|id| json!({"id": id, "error": {"code": -32603, "message": "no"}})));
    lines.extend(["a", "b"].map(|id| tool("tool_call", id, "pending")));
    lines.extend(["a", "b"].map(|id| tool("tool_call_update", id, "in_progress")));
    lines.extend(["a", "b"].map(|id| tool("tool_call_update", id, "completed")));
    lines.extend([ask(json!(0), "a"), ask(json!("x"), "c"), ask(json!(0), "b")]);
    lines.extend([
        update(chunk("x")),
        update(json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "y"}})),
        update(json!({"sessionUpdate": "usage_update", "cost": {"amount": 1.5, "currency": "USD"}})),
        json!({"method": "$/cancel_request", "params": {"requestId": 0}}),
        json!({"id": 9, "method": "fs/read_text_file", "params": {}}),
        json!({"id": null, "result": []}),
        json!([1]),
    ]);
    lines.iter().map(Value::to_string).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let line = select(lines());
    let cut = (select(lines()), any::<Index>()).prop_map(|(line, at)| {
        let at = at.index(line.len());
        line.chars().take(at).collect()
    });
    let step = prop_oneof![
        12 => line.prop_map(Step::Line),
        1 => cut.prop_map(Step::Line),
        4 => Just(Step::Send),
        2 => Just(Step::Interrupt),
        2 => any::<bool>().prop_map(Step::Answer),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..120)
}

/// Does one step as a connection does; a connection sends no message while a turn runs.
fn step(session: &mut Session, step: &Step) -> LineOutcome {
    match step {
        Step::Line(line) => session.handle_line(line.as_bytes()),
        Step::Interrupt => session.interrupt(),
        Step::Send if session.is_opening() || session.is_turn_expected() => LineOutcome::default(),
        Step::Send if session.refusal().is_some() => LineOutcome::default(),
        Step::Send => {
            if let Some(events) = session.failure_for(&message()) {
                let lines = Vec::new();
                return LineOutcome { events, lines };
            }
            let (request, line) = session.prompt(&message(), &[]);
            let (events, lines) = (vec![session.sent(&message(), request)], vec![line]);
            LineOutcome { events, lines }
        }
        Step::Answer(allow) => {
            let message = String::new();
            let decision = match allow {
                true => Decision::Allow,
                false => Decision::Deny { message },
            };
            let ask = session.asks.keys().next().cloned().unwrap_or_default();
            let lines = session.answer(&ask, &decision).into_iter().collect();
            let events = session.answer_sent(&ask, &decision);
            LineOutcome { events, lines }
        }
        Step::Close => {
            let (events, lines) = (Vec::new(), session.close().into_iter().collect());
            LineOutcome { events, lines }
        }
    }
}

proptest! {
    #[test]
    fn l81c_p17a_p25b_a_turn_ends_once_and_closes_what_it_opened(steps in steps()) {
        let mut session = Session::new(session_request());
        let (mut events, mut written, mut asked) = (Vec::new(), vec![session.initialize()], Vec::new());
        for each in &steps {
            if let Step::Line(line) = each
                && let Some(line) = json::parse(line.as_bytes())
                && line.get("method").is_some()
            {
                asked.extend(line.get("id").cloned());
            }
            let outcome = step(&mut session, each);
            events.extend(outcome.events);
            written.extend(outcome.lines);
        }
        events.extend(session.exited(ExitStatus::Code(0), String::new()));
        let (mut in_turn, mut tools) = (false, Vec::new());
        for event in &events {
            match event {
                Event::TurnStarted { .. } => prop_assert!(!std::mem::replace(&mut in_turn, true)),
                Event::TurnCompleted(_) => {
                    prop_assert!(std::mem::replace(&mut in_turn, false));
                    prop_assert!(tools.is_empty());
                }
                Event::ToolStarted { id, .. } => {
                    prop_assert!(in_turn && !tools.contains(id));
                    tools.push(id.clone());
                }
                Event::ToolFinished { id, .. } => {
                    prop_assert!(tools.contains(id));
                    tools.retain(|open| open != id);
                }
                _ => {}
            }
        }
        prop_assert!(!in_turn && session.asks.is_empty());
        // Each request is answered at most as often as it was made.
        for line in said(&written) {
            if line.get("method").is_none() {
                let at = asked.iter().position(|id| *id == line["id"]);
                prop_assert!(at.is_some(), "answered twice: {line}");
                asked.remove(at.unwrap());
            }
        }
    }

    #[test]
    fn p14_truncated_or_repeated_line_is_harmless(cuts in prop::collection::vec((any::<Index>(), any::<Index>()), 1..6), name in select(GOLDEN.to_vec())) {
        let recording = golden(name);
        let (mut session, _) = replay(&recording);
        prompt(&mut session);
        let lines: Vec<&str> = recording.lines().filter_map(|line| line.strip_prefix("< ")).collect();
        let mut events = Vec::new();
        for (line, cut) in cuts {
            let line = line.get(&lines).as_bytes();
            events.extend(session.handle_line(&line[..cut.index(line.len())]).events);
            events.extend(session.handle_line(line).events);
        }
        events.extend(session.exited(ExitStatus::Code(0), String::new()));
        let ends = events.iter().filter(|event| matches!(event, Event::TurnCompleted(_)));
        prop_assert_eq!(ends.count(), 1);
    }
}
