//! Replays a recorded conversation, for tests: where the driver wrote a line, the session repeats the call that wrote it.

use super::json::text;
use super::{LineOutcome, Session, SessionRequest};
use crate::dialogue::Timeouts;
use crate::mcp::McpServers;
use agent_duplex::{Decision, Message, Permissions, SessionChoice};
use serde_json::Value;
use uuid::Uuid;

/// Returns a request with the usual options, for a directory with this path.
pub(in crate::acp) fn session_request(directory: &str) -> SessionRequest {
    SessionRequest {
        agent: "acp",
        session: SessionChoice::Fresh,
        roots: [directory.to_owned(), directory.to_owned()],
        servers: McpServers::default(),
        model: None,
        permissions: Permissions::Ask,
        auth_method: None,
        cost_restarts: false,
        is_unattended: false,
        timeouts: Timeouts::default(),
    }
}

/// Handles a line of the agent, after `< `, or repeats the call for a line of the driver, after `> `. The lines that the session writes by itself are
/// in the outcome of the line to which they respond.
pub(in crate::acp) fn line(session: &mut Session, line: &str) -> LineOutcome {
    let mut outcome = LineOutcome::default();
    let Some(ours) = line.strip_prefix("> ") else {
        return session.handle_line(line.strip_prefix("< ").unwrap_or(line).as_bytes());
    };
    let ours: Value = serde_json::from_str(ours).unwrap_or_default();
    match text(&ours, "method") {
        "initialize" => outcome.lines.push(session.initialize()),
        "session/prompt" => {
            let id = Uuid::from_u128(u128::from(ours["id"].as_u64().unwrap_or_default()));
            let text = text(&ours["params"]["prompt"][0], "text");
            let message = Message::new(text).with_id(id);
            let (request, line) = session.prompt(&message, &[]);
            outcome.events.push(session.sent(&message, request));
            outcome.lines.push(line);
        }
        "session/cancel" => outcome = session.interrupt(),
        _ if ours.get("result").is_some() => {
            let ask = ours["id"].to_string();
            outcome.lines.extend(session.answer(&ask, &Decision::Allow));
            session.answer_sent(&ask, &Decision::Allow);
        }
        _ => {}
    }
    outcome
}
