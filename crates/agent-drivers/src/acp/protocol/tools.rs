//! The tool calls of one turn, which the agent reports in several steps.

use super::json::text;
use super::summary::{CallInfo, result};
use agent_duplex::{Event, ToolOutcome};
use serde_json::Value;
use std::collections::VecDeque;

/// The largest number of open calls; beyond it, the oldest counts as interrupted.
const TOOLS: usize = 1024;
/// The number of remembered ended calls, so that a late update does not begin a call again.
pub(super) const MAX_ENDED: usize = 1024;

/// An open call.
#[derive(Debug)]
struct Tool {
    id: String,
    known: CallInfo,
    /// Whether the start was reported. The agent announces a call before its arguments are known; the driver reports it with the next update.
    is_reported: bool,
}

/// The calls of a turn.
#[derive(Debug, Default)]
pub(super) struct Tools {
    open: VecDeque<Tool>,
    ended: VecDeque<String>,
    denied: bool,
}

impl Tool {
    fn report(&mut self, events: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.is_reported, true) {
            events.push(Event::ToolStarted {
                id: self.id.clone(),
                name: self.known.name(),
                summary: self.known.summary(),
            });
        }
    }

    fn end(mut self, outcome: ToolOutcome, text: String, events: &mut Vec<Event>) {
        self.report(events);
        let id = self.id;
        events.push(Event::ToolFinished { id, outcome, text });
    }
}

impl Tools {
    pub(super) fn is_known(&self, id: &str) -> bool {
        self.open.iter().any(|tool| tool.id == id) || self.ended.iter().any(|ended| ended == id)
    }

    pub(super) fn was_denied(&self) -> bool {
        self.denied
    }

    /// Handles an update of a call, and returns the call's index; `None` if the update has no call id, or its call has ended.
    fn update(&mut self, call: &Value, events: &mut Vec<Event>) -> Option<usize> {
        let id = text(call, "toolCallId");
        if id.is_empty() || self.ended.iter().any(|ended| ended == id) {
            return None;
        }
        let at = self.open.iter().position(|tool| tool.id == id);
        let at = at.unwrap_or_else(|| {
            if self.open.len() == TOOLS
                && let Some(oldest) = self.open.pop_front()
            {
                self.remember(oldest.id.clone());
                oldest.end(ToolOutcome::Interrupted, String::new(), events);
            }
            self.open.push_back(Tool {
                id: id.to_owned(),
                known: CallInfo::default(),
                is_reported: false,
            });
            self.open.len() - 1
        });
        self.open[at].known.update(call);
        Some(at)
    }

    /// Handles an update of a call. If `is_interrupted`, the call counts as interrupted, because agents then report interrupted calls as
    /// completed.
    pub(super) fn updated(&mut self, call: &Value, is_interrupted: bool, events: &mut Vec<Event>) {
        let is_new = !self.is_known(text(call, "toolCallId"));
        let Some(at) = self.update(call, events) else {
            return;
        };
        let outcome = match text(call, "status") {
            "completed" => Some(ToolOutcome::Succeeded),
            "failed" => Some(ToolOutcome::Failed),
            _ => None,
        };
        if let Some(outcome) = outcome {
            let outcome = if is_interrupted {
                ToolOutcome::Interrupted
            } else {
                outcome
            };
            return self.end(at, outcome, result(call), events);
        }
        let tool = &mut self.open[at];
        if tool.is_reported {
            let id = tool.id.clone();
            events.push(Event::ToolProgress { id });
        } else if !is_new || text(call, "status") != "pending" {
            tool.report(events);
        }
    }

    /// Handles a call in a permission request, and returns the facts about it. Some agents report the call nowhere else.
    pub(super) fn permission_requested(
        &mut self,
        call: &Value,
        events: &mut Vec<Event>,
    ) -> Option<&CallInfo> {
        let at = self.update(call, events)?;
        self.open[at].report(events);
        Some(&self.open[at].known)
    }

    /// Records that a call was denied. Some agents never report it again.
    pub(super) fn deny(&mut self, call: &str, events: &mut Vec<Event>) {
        self.denied = true;
        if let Some(at) = self.open.iter().position(|tool| tool.id == call) {
            self.end(at, ToolOutcome::Denied, String::new(), events);
        }
    }

    fn end(&mut self, at: usize, outcome: ToolOutcome, text: String, events: &mut Vec<Event>) {
        if let Some(tool) = self.open.remove(at) {
            self.remember(tool.id.clone());
            tool.end(outcome, text, events);
        }
    }

    fn remember(&mut self, id: String) {
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(id);
    }

    /// Closes everything open.
    pub(super) fn close(self, events: &mut Vec<Event>) {
        let tools = self.open.into_iter();
        tools.for_each(|tool| tool.end(ToolOutcome::Interrupted, String::new(), events));
    }
}
