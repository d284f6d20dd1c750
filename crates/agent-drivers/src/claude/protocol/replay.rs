//! Replays recorded output of the agent, for tests: the session gets the messages and requests to which the lines belong.

use super::json::Object;
use super::{Request, Session};
use crate::dialogue::Timeouts;
use agent_duplex::{Event, Message};
use uuid::Uuid;

/// A session that replays a recording.
#[derive(Debug)]
pub(in crate::claude) struct Replay {
    pub(in crate::claude) session: Session,
    /// The messages that the session has sent.
    sent: Vec<Uuid>,
}

impl Replay {
    /// Makes the state as the driver does, with the id that the agent got.
    pub(in crate::claude) fn new(recording: &str) -> Self {
        let mut lines = recording.lines().filter_map(Object::parse);
        let id = lines.find_map(|line| line.string("session_id"));
        Replay {
            session: Session::new(id.unwrap_or_default(), true, Timeouts::default()),
            sent: Vec::new(),
        }
    }

    /// Handles a line, after the message or request to which it belongs.
    pub(in crate::claude) fn line(&mut self, bytes: &[u8]) -> Vec<Event> {
        let (session, sent) = (&mut self.session, &mut self.sent);
        let text = String::from_utf8_lossy(bytes);
        let line = Object::parse(&text).unwrap_or_default();
        if let Some(id) = line.uuid("command_uuid").filter(|id| !sent.contains(id)) {
            session.sent(&Message::new("").with_id(id));
            sent.push(id);
        }
        let answered = line.object("response").text("request_id");
        // The request ids of the interrupts in the recordings.
        if answered.starts_with('x') || answered.starts_with("req-") {
            session.pending.insert(answered, (Request::Interrupt, None));
            session.interrupt = session.is_turn_expected().then_some(false);
        }
        session.handle_line(bytes).events
    }
}
