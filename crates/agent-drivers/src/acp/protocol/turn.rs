//! The state of one turn: the partial text and the running tools. Also the usage: the agent reports tokens per turn, and the cost of the whole
//! session so far; the difference is the cost of the turn.

use agent_duplex::{EndReason, Event, Usage};
use serde_json::Value;

use super::json::text;
use super::tools::Tools;

/// The longest message, in bytes; a longer one is reported in parts.
const MESSAGE: usize = 4 << 20;

/// A running turn.
#[derive(Debug)]
pub(super) struct Turn {
    /// The part of a text that the agent has streamed so far.
    partial_text: String,
    /// The agent's id of the message to which the text belongs; empty if it reports none.
    message: String,
    pub(super) tools: Tools,
}

impl Turn {
    pub(super) fn new() -> Self {
        Turn {
            partial_text: String::new(),
            message: String::new(),
            tools: Tools::default(),
        }
    }

    /// Whether a call was denied in this turn.
    pub(super) fn was_denied(&self) -> bool {
        self.tools.was_denied()
    }

    pub(super) fn updated(
        &mut self,
        kind: &str,
        update: &Value,
        is_interrupted: bool,
        events: &mut Vec<Event>,
    ) {
        let content = text(&update["content"], "text");
        match kind {
            "agent_message_chunk" => self.piece(content, text(update, "messageId"), events),
            "agent_thought_chunk" if !content.is_empty() => {
                self.flush(false, events);
                events.push(Event::ThinkingDelta(content.to_owned()));
            }
            "tool_call" | "tool_call_update" => {
                if !self.tools.is_known(text(update, "toolCallId")) {
                    self.flush(false, events);
                }
                self.tools.updated(update, is_interrupted, events);
            }
            _ => {}
        }
    }

    fn piece(&mut self, text: &str, message: &str, events: &mut Vec<Event>) {
        if message != self.message || self.partial_text.len() + text.len() > MESSAGE {
            self.flush(false, events);
            message.clone_into(&mut self.message);
        }
        if !text.is_empty() {
            self.partial_text.push_str(text);
            events.push(Event::TextDelta(text.to_owned()));
        }
    }

    /// Reports the text as one message.
    pub(super) fn flush(&mut self, partial: bool, events: &mut Vec<Event>) {
        if !self.partial_text.is_empty() {
            let text = std::mem::take(&mut self.partial_text);
            events.push(Event::Message { text, partial });
        }
    }

    /// Closes everything open.
    pub(super) fn close(mut self, reason: EndReason, events: &mut Vec<Event>) {
        let is_whole = matches!(
            reason,
            EndReason::Completed | EndReason::MaxTokens | EndReason::MaxTurns | EndReason::Refused
        );
        self.flush(!is_whole, events);
        self.tools.close(events);
    }
}

/// The cost of a session, as the agent reported it last.
#[derive(Debug)]
pub(super) struct Cost {
    /// In millionths of a US dollar; `None` while the earlier cost is unknown.
    last: Option<u64>,
}

impl Cost {
    pub(super) fn new(is_fresh: bool) -> Self {
        let last = is_fresh.then_some(0);
        Cost { last }
    }

    /// Returns the cost since the last total, if it is not zero. A smaller total means that the agent began again at zero.
    pub(super) fn advance(&mut self, cost: &Value) -> Option<Usage> {
        let amount = cost["amount"]
            .as_f64()
            .filter(|_| cost["currency"] == "USD")?;
        // The cast saturates, and turns NaN into 0.
        let now = (amount * 1e6).round() as u64;
        let last = self.last.replace(now)?;
        let cost_microusd = now.checked_sub(last).unwrap_or(now);
        let used = Usage::default().with_cost(cost_microusd);
        Some(used).filter(|used| *used != Usage::default())
    }
}

/// Returns the tokens of a turn, if the answer that ends the turn reports them. The protocol defines `usage` as the sum of all turns, but the agents
/// that have it report the turn's tokens.
pub(super) fn of_turn(result: &Value) -> Option<Usage> {
    let number = |object: &Value, key: &str| object[key].as_u64().unwrap_or_default();
    let sum = |object: &Value, keys: [&str; 3]| {
        { keys.iter() }.fold(0, |sum: u64, key| sum.saturating_add(number(object, key)))
    };
    let usage = &result["usage"];
    let quota = &result["_meta"]["quota"]["token_count"];
    let used = match usage.is_object() {
        true => {
            let read = ["inputTokens", "cachedReadTokens", "cachedWriteTokens"];
            Usage::tokens(sum(usage, read), number(usage, "outputTokens"))
                .with_cached_input(number(usage, "cachedReadTokens"))
        }
        false => Usage::tokens(
            number(quota, "input_tokens"),
            number(quota, "output_tokens"),
        ),
    };
    Some(used).filter(|used| *used != Usage::default())
}
