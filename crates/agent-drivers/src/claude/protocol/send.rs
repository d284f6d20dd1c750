//! The driver's side of the protocol: messages, requests and answers, and their bookkeeping.

use super::{Change, Request, Session, encode};
use crate::parts::CheckedPart;
use agent_duplex::{Decision, Event, Message};
use serde_json::{Value, json};

impl Session {
    /// Returns the line of a message. After it is written, call [`sent`](Self::sent).
    pub(in crate::claude) fn message(message: &Message, parts: &[CheckedPart]) -> Vec<u8> {
        encode::user(message, parts)
    }

    /// Records that a message was written.
    pub(in crate::claude) fn sent(&mut self, message: &Message) {
        self.queued_messages.push(message.id);
    }

    /// Returns a failed turn for a message, if the conversation failed before it could begin.
    pub(in crate::claude) fn failure_for(&mut self, message: &Message) -> Option<Vec<Event>> {
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

    /// Returns a query for the earlier usage of the session, if that is unknown.
    pub(in crate::claude) fn query_earlier_usage(&mut self) -> Option<Vec<u8>> {
        (!self.totals.is_known()).then(|| self.request_totals())
    }

    /// Returns a query for the usage so far, after a call of the model. There is only one query at a time, and none while the turn is being ended.
    pub(super) fn query_usage(&mut self) -> Option<Vec<u8>> {
        let wanted = self.may_query_usage && self.totals.is_known() && self.interrupt.is_none();
        let is_query = |(request, _): &(Request, _)| *request == Request::Usage;
        if !wanted || self.turn.is_none() {
            self.calls_since_query = 0;
            return None;
        }
        (!self.pending.values().any(is_query)).then(|| self.request_totals())
    }

    fn request_totals(&mut self) -> Vec<u8> {
        self.calls_since_query = 0;
        let request = json!({"subtype": "get_usage", "skip_behaviors": true, "detached": true});
        self.request(Request::Usage, request)
    }

    pub(in crate::claude) fn set_mode(&mut self, mode: &str) -> Vec<u8> {
        let request = json!({"subtype": "set_permission_mode", "mode": mode});
        self.request(Request::Mode, request)
    }

    /// Requests the end of the agent. Messages that it drops from now on count as never sent.
    pub(in crate::claude) fn end_session(&mut self) -> Vec<u8> {
        self.note_ending();
        self.request(Request::End, json!({"subtype": "end_session"}))
    }

    /// Marks the agent as ending.
    pub(in crate::claude) fn note_ending(&mut self) {
        self.is_ending = true;
    }

    /// Requests another model; `None` is the agent's own choice. [`model_answer`](Self::model_answer) returns the result.
    pub(in crate::claude) fn set_model(&mut self, model: Option<&str>) -> Vec<u8> {
        let request = json!({"subtype": "set_model", "model": model});
        let (request, line) = self.numbered(Request::Model, request);
        let answer = None;
        self.change = Some(Change { request, answer });
        line
    }

    /// Whether a change of the model waits for its answer.
    pub(in crate::claude) fn is_asking(&self) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change.answer.is_none())
    }

    /// Takes the answer to a change of the model. If there is no answer, abandons the request.
    pub(in crate::claude) fn model_answer(&mut self) -> Option<Result<(), String>> {
        let change = self.change.take()?;
        self.pending.remove(&change.request);
        change.answer
    }

    /// Requests the end of all background tasks with an id; the result can be empty.
    pub(in crate::claude) fn stop_tasks(&mut self) -> Vec<u8> {
        let tasks = std::mem::take(&mut self.tasks).into_iter();
        let lines = tasks.map(|id| {
            let request = json!({"subtype": "stop_task", "task_id": id});
            self.request(Request::StopTask, request)
        });
        lines.collect::<Vec<_>>().concat()
    }

    /// Returns the lines that request an interrupt; `None` if the interrupt was already requested, or no turn runs.
    pub(in crate::claude) fn interrupt(&mut self, drop_queued: bool) -> Option<Vec<u8>> {
        let dropping = self.interrupt.unwrap_or(false);
        if !self.is_turn_expected() || (self.interrupt.is_some() && (dropping || !drop_queued)) {
            return None;
        }
        self.interrupt = Some(drop_queued);
        let mut request = json!({"subtype": "interrupt"});
        let mut lines = Vec::new();
        if drop_queued && self.has_capability("interrupt_cancel_queued_v1") {
            request["cancel_queued"] = true.into();
        } else if drop_queued {
            // These lines come first, because the agent would begin the next message after the interrupt.
            for id in self.queued_messages.clone() {
                let request =
                    json!({"subtype": "cancel_async_message", "message_uuid": id.to_string()});
                lines.extend(self.request(Request::TakeBack(id), request));
            }
        }
        lines.extend(self.request(Request::Interrupt, request));
        Some(lines)
    }

    /// Whether the agent has a capability. Without an announcement the agent is assumed to be new.
    fn has_capability(&self, what: &str) -> bool {
        let capabilities = self.capabilities.as_ref();
        capabilities.is_none_or(|capabilities| capabilities.iter().any(|known| known == what))
    }

    /// Returns the answer to a permission request; `None` if it needs none any more. After it is written, call [`answer_sent`](Self::answer_sent).
    pub(in crate::claude) fn answer(&self, ask: &str, decision: &Decision) -> Option<Vec<u8>> {
        let permission = self.asks.get(ask)?;
        Some(match decision {
            Decision::Allow => encode::allow(ask, &permission.input),
            Decision::Deny { message } => encode::deny(ask, message),
            _ => encode::deny(ask, "the client sent an unknown answer"),
        })
    }

    /// Records that an answer was written.
    pub(in crate::claude) fn answer_sent(&mut self, ask: &str, decision: &Decision) {
        let permission = self.asks.remove(ask);
        self.remember(ask);
        if let (Some(permission), Some(turn), false) =
            (permission, &mut self.turn, *decision == Decision::Allow)
        {
            turn.deny(permission.call);
        }
    }

    fn request(&mut self, what: Request, request: Value) -> Vec<u8> {
        self.numbered(what, request).1
    }

    fn numbered(&mut self, what: Request, request: Value) -> (String, Vec<u8>) {
        let (id, line) = self.requests.line(request);
        self.pending.insert(id.clone(), (what, None));
        (id, line)
    }
}
