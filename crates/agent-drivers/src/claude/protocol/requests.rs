//! Requests of the agent, and the agent's answers to requests of the driver.

use super::json::Object;
use super::summary::summary;
use super::{
    LineOutcome, MAX_PERMISSION_REQUESTS, MAX_REMEMBERED_ANSWERS, MAX_REQUEST_BYTES,
    PendingPermission, Request, Session, encode, usage,
};
use crate::convert::one_line;
use agent_duplex::{Event, PermissionRequest};
use tokio::time::Instant;

impl Session {
    pub(super) fn permission_requested(&mut self, line: &Object<'_>, outcome: &mut LineOutcome) {
        let (id, request) = (line.text("request_id"), line.object("request"));
        let subtype = request.text("subtype");
        if self.asks.contains_key(&id) || self.recent_answers.contains(&id) {
            return;
        }
        let waiting: usize = self
            .asks
            .values()
            .map(|permission| permission.input.len())
            .sum();
        if subtype != "can_use_tool"
            || self.asks.len() >= MAX_PERMISSION_REQUESTS
            || waiting > MAX_REQUEST_BYTES
        {
            outcome.lines.push(encode::refuse(&id, &subtype));
            return self.remember(&id);
        }
        let reason = request.string("decision_reason");
        let tool = request.text("tool_name");
        let ask = PermissionRequest {
            id: id.clone(),
            summary: summary(&tool, &request),
            tool,
            reason: one_line(&reason.unwrap_or_default(), 400),
        };
        outcome.events.push(Event::PermissionRequested(ask.clone()));
        let permission = PendingPermission {
            ask,
            input: request.raw("input").unwrap_or("{}").to_owned(),
            call: request.text("tool_use_id"),
            is_subagent: request.string("agent_id").is_some(),
        };
        self.asks.insert(id, permission);
    }

    pub(super) fn withdrawn(&mut self, id: &str, events: &mut Vec<Event>) {
        if let Some((id, _)) = self.asks.remove_entry(id) {
            events.push(Event::PermissionWithdrawn { id });
        }
    }

    /// Remembers that a permission request was answered and needs no further answer.
    pub(super) fn remember(&mut self, id: &str) {
        if self.recent_answers.len() == MAX_REMEMBERED_ANSWERS {
            self.recent_answers.pop_front();
        }
        self.recent_answers.push_back(id.to_owned());
    }

    /// Handles the answer to a request of the driver; ignores other answers, such as the echo of one of the driver's own.
    pub(super) fn answered(&mut self, response: &Object<'_>, events: &mut Vec<Event>) {
        let id = response.text("request_id");
        let Some((request, _)) = self.pending.remove(&id) else {
            return;
        };
        let answer = response.object("response");
        let refusal =
            (response.word("subtype") != "success").then(|| one_line(&response.text("error"), 400));
        if let Some(change) = self.change.as_mut().filter(|change| change.request == id) {
            change.answer = Some(refusal.map_or(Ok(()), Err));
            return;
        }
        match (request, refusal) {
            // These errors are harmless: the task has already finished, or the message is already in a turn.
            (Request::StopTask | Request::TakeBack(_), Some(_)) => {}
            // The end of the turn then reports the usage.
            (Request::Usage, Some(_)) => self.may_query_usage = false,
            (Request::Usage, None) => {
                self.usage_query_interval =
                    usage::query_interval(answer.flag("rate_limits_available"));
                let used = self
                    .totals
                    .queried(&answer.object("session"), self.turn.is_some());
                events.extend(used.map(Event::UsageReported));
            }
            (request, Some(why)) => {
                let what = request.name();
                let warning = format!("the agent refused the {what}: {why}");
                events.push(Event::Warning(warning));
            }
            (Request::Initialize, None) => {
                let known = answer.raw("capabilities");
                self.capabilities = known.map(|_| answer.texts("capabilities"));
            }
            (Request::Interrupt, None) => {
                for id in answer.uuids("cancelled") {
                    self.drop_message(id, "cancelled", events);
                }
                let queued = answer.uuids("still_queued");
                events.push(Event::InterruptAcknowledged { queued });
            }
            (Request::TakeBack(id), None) if answer.flag("cancelled") => {
                self.drop_message(id, "cancelled", events);
            }
            _ => {}
        }
    }

    /// Whether a request has no answer yet.
    pub(in crate::claude) fn has_pending_requests(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the deadline of the next answer. For a request without a deadline, the time begins now.
    pub(in crate::claude) fn next_answer_deadline(&mut self, now: Instant) -> Option<Instant> {
        let timeouts = self.timeouts;
        let due = self.pending.values_mut().map(|(request, until)| {
            let time = match request {
                Request::Initialize => timeouts.initialize,
                _ => timeouts.other_requests,
            };
            *until.get_or_insert_with(|| now + time)
        });
        due.min()
    }

    /// Restarts the time limits of all pending requests.
    pub(in crate::claude) fn restart_timeouts(&mut self) {
        self.pending
            .values_mut()
            .for_each(|(_, until)| *until = None);
    }

    /// Drops the overdue requests; their late answers are ignored.
    pub(in crate::claude) fn expire_requests(&mut self, now: Instant) -> Vec<Event> {
        let is_late = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        let mut events = Vec::new();
        self.pending.retain(|_, (request, until)| {
            if is_late(until) && *request != Request::Usage {
                let what = request.name();
                let warning = format!("the agent did not answer the {what} in time");
                events.push(Event::Warning(warning));
            }
            !is_late(until)
        });
        events
    }
}

impl Request {
    /// Returns the name of the request for users.
    fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialization",
            Self::Interrupt => "interrupt",
            Self::TakeBack(_) => "withdrawal of a message",
            Self::Mode => "change of permissions",
            Self::Model => "change of the model",
            Self::StopTask => "end of a task",
            Self::Usage => "usage query",
            Self::End => "request to end",
        }
    }
}
