//! Replays a recorded conversation, for tests: where the driver wrote a line, the session repeats the call that wrote it.

use super::{LineOutcome, OpenRequest, Session, text};
use crate::choices::Choices;
use crate::codex::options::CodexOptions;
use crate::dialogue::Timeouts;
use agent_duplex::{Decision, Message, Permissions, SessionChoice};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

pub(super) const TIMEOUTS: Timeouts = Timeouts {
    initialize: Duration::from_secs(60),
    other_requests: Duration::from_secs(20),
};

/// A session that replays a recording.
#[derive(Debug)]
pub(in crate::codex) struct Replay {
    pub(in crate::codex) session: Session,
    /// The messages that the session has sent.
    sent: BTreeSet<Uuid>,
}

impl Replay {
    /// Makes the state as the driver did for the recording.
    pub(in crate::codex) fn new(recording: &str) -> Self {
        let has = |what: &str| recording.contains(what);
        let permissions = match has("\"untrusted\"") {
            true => Permissions::Ask,
            false => Permissions::All,
        };
        let choice = match (has("\"thread/resume\""), has("\"thread/fork\"")) {
            (true, _) => SessionChoice::Resume("a".to_owned()),
            (_, true) => SessionChoice::Fork("a".to_owned()),
            _ => SessionChoice::Fresh,
        };
        Replay {
            session: session(&choice, permissions),
            sent: BTreeSet::new(),
        }
    }

    /// Handles a line of the agent, or repeats the call for a line of the driver.
    pub(in crate::codex) fn line(&mut self, bytes: &[u8]) -> LineOutcome {
        let session = &mut self.session;
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let sent = &value["sent"];
        let Value::Object(_) = sent else {
            return hear_bytes(session, bytes);
        };
        let mut outcome = LineOutcome::default();
        match text(&sent["method"]) {
            "initialize" => outcome.lines.push(session.initialize()),
            "turn/start" | "turn/steer" => {
                let id = text(&sent["params"]["clientUserMessageId"]);
                let id = id.parse().unwrap_or_default();
                if self.sent.insert(id) {
                    let text = text(&sent["params"]["input"][0]["text"]);
                    outcome = session.send(&Message::new(text).with_id(id), &[]);
                }
            }
            "turn/interrupt" => outcome = session.interrupt(false),
            "" => {
                let result = &sent["result"];
                let decision = match result["decision"] == "accept" || result["action"] == "accept"
                {
                    true => Decision::Allow,
                    false => Decision::Deny {
                        message: String::new(),
                    },
                };
                let ask = sent["id"].to_string();
                outcome.lines.extend(session.answer(&ask, &decision));
                session.answer_sent(&ask);
            }
            _ => {}
        }
        outcome
    }
}

/// Makes the state of a driver with its usual options.
pub(super) fn session(choice: &SessionChoice, permissions: Permissions) -> Session {
    let (options, mut choices) = (CodexOptions::default(), Choices::default());
    choices.permissions = permissions;
    let opening = OpenRequest::compose(&options, &choices, choice, Path::new("/"), |_| None);
    let opening = opening.expect("the usual options are valid");
    Session::new(opening, permissions, TIMEOUTS)
}

/// Handles a line, and continues immediately where a connection would first end commands.
pub(super) fn hear_bytes(session: &mut Session, bytes: &[u8]) -> LineOutcome {
    let mut outcome = session.handle_line(bytes);
    let more = session.continue_after_interrupt();
    outcome.events.extend(more.events);
    outcome.lines.extend(more.lines);
    outcome
}
