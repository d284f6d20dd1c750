//! The open parts of one turn: a partial text and the running tools.

use super::framing::text;
use super::item;
use agent_duplex::{Event, ToolOutcome};
use serde_json::Value;

/// The maximum length of the stored partial text, in bytes. The partial text is reported if the complete text never comes.
const MAX_PARTIAL_TEXT: usize = 4 << 20;
/// The largest number of open calls; beyond it, the oldest counts as interrupted.
const TOOLS: usize = 1024;

/// An open call.
#[derive(Debug)]
struct Tool {
    id: String,
    summary: String,
    is_command: bool,
}

/// A running turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: String,
    /// The id and the received part of the current text.
    partial_text: (String, String),
    /// The open calls.
    tools: Vec<Tool>,
    /// Whether the turn accepts messages.
    pub(super) steerable: bool,
    /// The last error that the agent did not retry.
    pub(super) failure: Value,
    /// Whether the end of a compaction was reported.
    pub(super) compacted: bool,
    /// The number of interrupt requests.
    pub(super) interrupts: u32,
    /// Whether the agent refused the last interrupt, so that the driver has to repeat it.
    pub(super) interrupt_refused: bool,
}

impl Turn {
    pub(super) fn new(id: &str) -> Self {
        Turn {
            id: id.to_owned(),
            partial_text: Default::default(),
            tools: Vec::new(),
            steerable: true,
            failure: Value::Null,
            compacted: false,
            interrupts: 0,
            interrupt_refused: false,
        }
    }

    /// Returns the ids of the running commands.
    pub(super) fn commands(&self) -> impl Iterator<Item = &str> {
        let commands = self.tools.iter().filter(|tool| tool.is_command);
        commands.map(|tool| tool.id.as_str())
    }

    /// Returns the description of an open call.
    pub(super) fn summary(&self, id: &str) -> Option<&str> {
        let tool = self.tools.iter().find(|tool| tool.id == id)?;
        Some(&tool.summary)
    }

    pub(super) fn item(&mut self, method: &str, params: &Value, events: &mut Vec<Event>) {
        let item = &params["item"];
        let delta = || text(&params["delta"]).to_owned();
        match method {
            "item/started" if item["type"] == "agentMessage" => {
                // If a message of the driver cuts a text off, the complete text never comes.
                self.end_partial_text(Some(text(&item["id"])), events);
                self.partial_text.0 = text(&item["id"]).to_owned();
            }
            "item/started" => self.started(item, events),
            "item/agentMessage/delta" => {
                let id = text(&params["itemId"]);
                if self.partial_text.0 != id {
                    self.end_partial_text(None, events);
                    self.partial_text.0 = id.to_owned();
                }
                if self.partial_text.1.len() < MAX_PARTIAL_TEXT {
                    self.partial_text.1.push_str(text(&params["delta"]));
                }
                events.push(Event::TextDelta(delta()));
            }
            "item/reasoning/textDelta" | "item/reasoning/summaryTextDelta" => {
                events.push(Event::ThinkingDelta(delta()));
            }
            "item/commandExecution/outputDelta"
            | "item/commandExecution/terminalInteraction"
            | "item/fileChange/outputDelta"
            | "item/fileChange/patchUpdated"
            | "item/mcpToolCall/progress" => {
                let id = text(&params["itemId"]).to_owned();
                if self.summary(&id).is_some() {
                    events.push(Event::ToolProgress { id });
                }
            }
            "item/completed" => self.completed(item, events),
            _ => {}
        }
    }

    fn started(&mut self, item: &Value, events: &mut Vec<Event>) {
        let id = text(&item["id"]).to_owned();
        let Some(name) = item::tool(item) else {
            return;
        };
        if self.summary(&id).is_some() {
            return;
        }
        if self.tools.len() == TOOLS {
            events.push(close_open_call(self.tools.remove(0).id));
        }
        let summary = item::summary(item);
        self.tools.push(Tool {
            id: id.clone(),
            summary: summary.clone(),
            is_command: item["type"] == "commandExecution",
        });
        events.push(Event::ToolStarted { id, name, summary });
    }

    fn completed(&mut self, item: &Value, events: &mut Vec<Event>) {
        let kind = text(&item["type"]);
        if kind == "agentMessage" {
            if self.partial_text.0 == text(&item["id"]) {
                self.partial_text = Default::default();
            }
            let text = text(&item["text"]).to_owned();
            events.push(Event::Message {
                text,
                partial: false,
            });
        } else if kind == "contextCompaction" && !std::mem::replace(&mut self.compacted, true) {
            let why = "compacted".to_owned();
            events.push(Event::ContextReset { reason: why });
        } else if item::tool(item).is_some() {
            // The agent reports some tools only after their end.
            self.started(item, events);
            let id = text(&item["id"]).to_owned();
            self.tools.retain(|tool| tool.id != id);
            let (outcome, text) = (item::outcome(item), item::result(item));
            events.push(Event::ToolFinished { id, outcome, text });
        }
    }

    /// Ends the current text, unless it has the id `same` and begins again.
    fn end_partial_text(&mut self, same: Option<&str>, events: &mut Vec<Event>) {
        let (id, text) = std::mem::take(&mut self.partial_text);
        if !text.is_empty() && same != Some(&id) {
            let partial = true;
            events.push(Event::Message { text, partial });
        }
    }

    /// Closes everything open, and returns the turn's id.
    pub(super) fn close(mut self, events: &mut Vec<Event>) -> String {
        self.end_partial_text(None, events);
        events.extend(self.tools.into_iter().map(|tool| close_open_call(tool.id)));
        self.id
    }
}

fn close_open_call(id: String) -> Event {
    let (outcome, text) = (ToolOutcome::Interrupted, String::new());
    Event::ToolFinished { id, outcome, text }
}
