//! What we say: messages, requests and answers, and what is noted of them.

use super::{Request, Session, encode};
use agent_duplex::{Decision, Event, Message};
use serde_json::{Value, json};

impl Session {
    /// Makes the line of a message. Once it is written, say so by [`sent`](Self::sent).
    pub(in crate::claude) fn message(message: &Message) -> Vec<u8> {
        encode::user(message)
    }

    /// Notes that a message was written.
    pub(in crate::claude) fn sent(&mut self, message: &Message) {
        self.waiting.push(message.id);
    }

    /// Answers a message with the failure of a conversation that could not begin, if that is what happened.
    pub(in crate::claude) fn fail(&mut self, message: &Message) -> Option<Vec<Event>> {
        let end = self.failure.take()?;
        let inputs = vec![message.id];
        Some(vec![
            Event::TurnStarted { inputs },
            Event::TurnCompleted(end),
        ])
    }

    pub(in crate::claude) fn initialize(&mut self) -> Vec<u8> {
        self.request(Request::Initialize, json!({"subtype": "initialize"}))
    }

    pub(in crate::claude) fn set_mode(&mut self, mode: &str) -> Vec<u8> {
        let request = json!({"subtype": "set_permission_mode", "mode": mode});
        self.request(Request::Mode, request)
    }

    /// Asks the agent to end. Messages that it drops from now on count as never sent.
    pub(in crate::claude) fn end_session(&mut self) -> Vec<u8> {
        self.leave();
        self.request(Request::End, json!({"subtype": "end_session"}))
    }

    /// Notes that the agent is about to be ended.
    pub(in crate::claude) fn leave(&mut self) {
        self.leaving = true;
    }

    /// Asks for an interrupt; `None` if that was asked already, or nothing runs.
    pub(in crate::claude) fn interrupt(&mut self, drop_queued: bool) -> Option<Vec<u8>> {
        let dropping = self.interrupt.unwrap_or(false);
        if !self.owes_turn() || (self.interrupt.is_some() && (dropping || !drop_queued)) {
            return None;
        }
        self.interrupt = Some(drop_queued);
        let mut request = json!({"subtype": "interrupt"});
        if drop_queued {
            request["cancel_queued"] = true.into();
        }
        Some(self.request(Request::Interrupt, request))
    }

    /// Makes the answer to a question, `None` if it needs none any more. Once it is written, say so by
    /// [`answer_sent`](Self::answer_sent).
    pub(in crate::claude) fn answer(&self, ask: &str, decision: &Decision) -> Option<Vec<u8>> {
        let asked = self.asks.get(ask)?;
        Some(match decision {
            Decision::Allow => encode::allow(ask, &asked.input),
            Decision::Deny { message } => encode::deny(ask, message),
            _ => encode::deny(ask, "this answer is not known here"),
        })
    }

    /// Notes that an answer was written.
    pub(in crate::claude) fn answer_sent(&mut self, ask: &str, decision: &Decision) {
        let asked = self.asks.remove(ask);
        if let (Some(asked), Some(turn), false) =
            (asked, &mut self.turn, *decision == Decision::Allow)
        {
            turn.deny(asked.call);
        }
    }

    fn request(&mut self, what: Request, request: Value) -> Vec<u8> {
        let (id, line) = self.requests.line(request);
        self.pending.insert(id, what);
        line
    }
}
