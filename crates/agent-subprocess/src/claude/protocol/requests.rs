//! What the agent asks, and what it answers to what we asked.

use super::json::Object;
use super::summary::{one_line, summary};
use super::{ASKED, ASKS, Asked, Heard, Request, Session, encode};
use agent_duplex::{Ask, Event};

impl Session {
    pub(super) fn asked(&mut self, line: &Object<'_>, heard: &mut Heard) {
        let (id, request) = (line.text("request_id"), line.object("request"));
        let subtype = request.text("subtype");
        let waiting: usize = self.asks.values().map(|asked| asked.input.len()).sum();
        if subtype != "can_use_tool" || self.asks.len() >= ASKS || waiting > ASKED {
            heard.lines.push(encode::refuse(&id, &subtype));
            return;
        }
        if self.asks.contains_key(&id) {
            return;
        }
        let reason = request.get::<String>("decision_reason");
        let tool = request.text("tool_name");
        let ask = Ask {
            id: id.clone(),
            summary: summary(&tool, &request),
            tool,
            reason: one_line(&reason.unwrap_or_default(), 400),
        };
        heard.events.push(Event::PermissionAsked(ask.clone()));
        let asked = Asked {
            ask,
            input: request.raw("input").unwrap_or("{}").to_owned(),
            call: request.text("tool_use_id"),
            apart: request.get::<String>("agent_id").is_some(),
        };
        self.asks.insert(id, asked);
    }

    pub(super) fn withdrawn(&mut self, id: &str, events: &mut Vec<Event>) {
        if let Some((id, _)) = self.asks.remove_entry(id) {
            events.push(Event::PermissionWithdrawn { id });
        }
    }

    /// Takes the answer to a request of ours; others, such as the echo of an answer of ours, are left alone.
    pub(super) fn answered(&mut self, response: &Object<'_>, events: &mut Vec<Event>) {
        let Some(request) = self.pending.remove(&response.text("request_id")) else {
            return;
        };
        if response.text("subtype") != "success" {
            let what = match request {
                Request::Initialize => "introduction",
                Request::Interrupt => "interrupt",
                Request::Mode => "change of permissions",
                Request::End => "request to end",
            };
            let why = one_line(&response.text("error"), 400);
            events.push(Event::Warning(format!(
                "the agent refused the {what}: {why}"
            )));
        } else if request == Request::Interrupt {
            let receipt = response.object("response");
            for id in receipt.uuids("cancelled") {
                self.drop_message(id, "cancelled", events);
            }
            let queued = receipt.uuids("still_queued");
            events.push(Event::InterruptTaken { queued });
        }
    }
}
