//! The open parts of one turn: a partial text and the running tools.

use super::json::Object;
use super::summary::{result, summary};
use agent_duplex::{Event, ToolOutcome};

/// The maximum length of the stored partial text, in bytes. The partial text is reported if the complete text never comes.
const MAX_PARTIAL_TEXT: usize = 4 << 20;

/// The largest number of open calls; beyond it, the oldest counts as interrupted.
const TOOLS: usize = 1024;

/// A running turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The part of a text that was streamed so far; empty once the complete text was reported.
    partial_text: String,
    /// The open calls.
    tools: Vec<String>,
    /// The calls that the driver denied.
    denied: Vec<String>,
    failure: String,
    refusals: u32,
}

impl Turn {
    /// Returns the kind of the last failed call of the service; empty if it did not fail.
    pub(super) fn failure(&self) -> &str {
        &self.failure
    }

    /// Counts a rejected login, and returns the count.
    pub(super) fn refuse(&mut self) -> u32 {
        self.refusals += 1;
        self.refusals
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refusals >= super::MAX_LOGIN_FAILURES
    }

    pub(super) fn deny(&mut self, call: String) {
        self.denied.push(call);
    }

    pub(super) fn progress(&self, line: &Object<'_>) -> Option<Event> {
        let id = line.text("tool_use_id");
        self.tools
            .contains(&id)
            .then_some(Event::ToolProgress { id })
    }

    pub(super) fn streamed(&mut self, event: &Object<'_>, events: &mut Vec<Event>) {
        match &*event.word("type") {
            "message_start" | "content_block_start" => self.partial_text.clear(),
            "content_block_delta" => {
                let delta = event.object("delta");
                match &*delta.word("type") {
                    "text_delta" => self.piece(delta.text("text"), events),
                    "thinking_delta" => events.push(Event::ThinkingDelta(delta.text("thinking"))),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Handles a text delta.
    fn piece(&mut self, text: String, events: &mut Vec<Event>) {
        if self.partial_text.len() < MAX_PARTIAL_TEXT {
            self.partial_text.push_str(&text);
        }
        // Most queued observations have exactly one delta, so this saves memory.
        events.reserve_exact(1);
        events.push(Event::TextDelta(text));
    }

    pub(super) fn assistant(&mut self, line: &Object<'_>, apart: bool, events: &mut Vec<Event>) {
        if !apart {
            self.failure = line.text("error");
            if self.failure.is_empty() && !self.is_refused() {
                self.refusals = 0;
            }
        }
        let message = line.object("message");
        if let (Some(text), false) = (message.string("content"), apart) {
            self.text(text, line.flag("aborted"), events);
        }
        for block in message.list("content").iter() {
            match &*block.word("type") {
                // The text of a subagent is not the answer.
                "text" if !apart => self.text(block.text("text"), line.flag("aborted"), events),
                "tool_use" | "server_tool_use" | "mcp_tool_use" => self.call(block, events),
                _ => self.returned(block, line, events),
            }
        }
    }

    fn text(&mut self, text: String, partial: bool, events: &mut Vec<Event>) {
        self.partial_text.clear();
        events.push(Event::Message { text, partial });
    }

    fn call(&mut self, block: &Object<'_>, events: &mut Vec<Event>) {
        let id = block.text("id");
        if !self.tools.contains(&id) {
            if self.tools.len() == TOOLS {
                events.push(close_open_call(self.tools.remove(0)));
            }
            self.tools.push(id.clone());
            let name = block.text("name");
            let summary = summary(&name, block);
            events.push(Event::ToolStarted { id, name, summary });
        }
    }

    pub(super) fn user(&mut self, line: &Object<'_>, events: &mut Vec<Event>) {
        for block in line.object("message").list("content").iter() {
            self.returned(block, line, events);
        }
    }

    /// Ends a call, if `block` is its result.
    fn returned(&mut self, block: &Object<'_>, line: &Object<'_>, events: &mut Vec<Event>) {
        let id = block.text("tool_use_id");
        let Some(n) = self.tools.iter().position(|tool| *tool == id) else {
            return;
        };
        self.tools.swap_remove(n);
        let metas = line.list("tool_result_meta");
        let none = Object::default();
        let meta = { metas.iter() }
            .find(|meta| meta.text("id") == id)
            .unwrap_or(&none);
        let rejected = meta.object("permission_decision").text("decision") == "reject";
        let kind = meta.text("non_execution_kind");
        let outcome = match block.flag("is_error") {
            false => ToolOutcome::Succeeded,
            true if rejected || self.denied.contains(&id) => ToolOutcome::Denied,
            true if kind == "permission-rule" => ToolOutcome::Denied,
            // An interrupt "rejects" running calls and open permission requests.
            true if !kind.is_empty() => ToolOutcome::Interrupted,
            true => ToolOutcome::Failed,
        };
        let text = result(block);
        events.push(Event::ToolFinished { id, outcome, text });
    }

    /// Closes everything open.
    pub(super) fn close(self, events: &mut Vec<Event>) {
        if !self.partial_text.is_empty() {
            let (text, partial) = (self.partial_text, true);
            events.push(Event::Message { text, partial });
        }
        events.extend(self.tools.into_iter().map(close_open_call));
    }
}

fn close_open_call(id: String) -> Event {
    let (outcome, text) = (ToolOutcome::Interrupted, String::new());
    Event::ToolFinished { id, outcome, text }
}
