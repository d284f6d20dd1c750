//! What is open within one turn: a half text and the tools that run.

use super::json::text;
use super::tools::Tools;
use agent_duplex::{EndReason, Event};
use serde_json::Value;

/// How long a message may grow; a longer one is told in several.
const MESSAGE: usize = 4 << 20;

/// A turn that runs.
#[derive(Debug)]
pub(super) struct Turn {
    /// What was streamed of a text that is not known to be whole.
    half: String,
    /// The message that it belongs to, in the agent's words; empty if it does not say.
    message: String,
    pub(super) tools: Tools,
}

impl Turn {
    pub(super) fn new() -> Self {
        Turn {
            half: String::new(),
            message: String::new(),
            tools: Tools::default(),
        }
    }

    /// Tells whether something was denied in this turn.
    pub(super) fn was_denied(&self) -> bool {
        self.tools.was_denied()
    }

    pub(super) fn updated(
        &mut self,
        kind: &str,
        update: &Value,
        cut: bool,
        events: &mut Vec<Event>,
    ) {
        let said = text(&update["content"], "text");
        match kind {
            "agent_message_chunk" => self.piece(said, text(update, "messageId"), events),
            "agent_thought_chunk" if !said.is_empty() => {
                self.flush(false, events);
                events.push(Event::ThinkingDelta(said.to_owned()));
            }
            "tool_call" | "tool_call_update" => {
                if !self.tools.knows(text(update, "toolCallId")) {
                    self.flush(false, events);
                }
                self.tools.updated(update, cut, events);
            }
            _ => {}
        }
    }

    fn piece(&mut self, said: &str, message: &str, events: &mut Vec<Event>) {
        if message != self.message || self.half.len() + said.len() > MESSAGE {
            self.flush(false, events);
            message.clone_into(&mut self.message);
        }
        if !said.is_empty() {
            self.half.push_str(said);
            events.push(Event::TextDelta(said.to_owned()));
        }
    }

    /// Tells the text as a whole.
    pub(super) fn flush(&mut self, partial: bool, events: &mut Vec<Event>) {
        if !self.half.is_empty() {
            let text = std::mem::take(&mut self.half);
            events.push(Event::Message { text, partial });
        }
    }

    /// Ends what is open.
    pub(super) fn close(mut self, reason: EndReason, events: &mut Vec<Event>) {
        let is_whole = matches!(
            reason,
            EndReason::Completed | EndReason::MaxTokens | EndReason::MaxTurns | EndReason::Refused
        );
        self.flush(!is_whole, events);
        self.tools.close(events);
    }
}
