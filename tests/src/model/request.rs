//! Reads a Messages request: what was said, by whom, and which step of the script that makes due.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kept of each text, so that a log of many requests stays small.
const KEPT: usize = 64 << 10;

/// How the client hands on what a person says while a turn runs.
const MEANWHILE: &str = "The user sent a new message while you were working:\n";

/// One block of the conversation as the model was sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Item {
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// `text`, `tool_use`, `tool_result` or whatever else the client sent.
    pub kind: String,
    /// The text, a tool's input as JSON, or a tool's result.
    pub text: String,
}

/// What a request asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) session: String,
    pub(super) stream: bool,
    pub(super) tools: Vec<String>,
    pub(super) system: String,
    pub(super) items: Vec<Item>,
    /// How many messages of the user there are, and the last of them without what the client wrapped around it.
    pub(super) turn: usize,
    pub(super) last_user: String,
    /// How many replies of the model follow it.
    pub(super) step: usize,
    /// What the person said since then, while the model worked.
    pub(super) steers: Vec<String>,
}

impl Asked {
    pub(super) fn read(body: &Value) -> Self {
        let mut asked = Self {
            model: text_of(&body["model"]),
            session: text_of(&body["metadata"]["user_id"]),
            stream: body["stream"].as_bool().unwrap_or(false),
            tools: array(&body["tools"])
                .iter()
                .map(|tool| text_of(&tool["name"]))
                .collect(),
            system: short(text_of(&body["system"])),
            items: Vec::new(),
            turn: 0,
            last_user: String::new(),
            step: 0,
            steers: Vec::new(),
        };
        for message in array(&body["messages"]) {
            asked.message(&text_of(&message["role"]), &message["content"]);
        }
        asked
    }

    fn message(&mut self, role: &str, content: &Value) {
        self.step += usize::from(role == "assistant");
        if let Value::String(text) = content {
            return self.block(role, "text", text.clone());
        }
        for block in array(content) {
            let kind = text_of(&block["type"]);
            let text = match kind.as_str() {
                "tool_use" => block["input"].to_string(),
                "tool_result" => text_of(&block["content"]),
                _ => text_of(&block["text"]),
            };
            self.block(role, &kind, text);
        }
    }

    fn block(&mut self, role: &str, kind: &str, text: String) {
        if role == "user" && kind == "text" {
            let said = without_reminders(&text);
            if !said.is_empty() {
                (self.last_user, self.step) = (said, 0);
                self.steers.clear();
                self.turn += 1;
            }
        }
        if let Some((_, said)) = text.split_once(MEANWHILE) {
            self.steers
                .push(said.lines().next().unwrap_or_default().into());
        }
        self.items.push(Item {
            role: role.into(),
            kind: kind.into(),
            text: short(text),
        });
    }
}

fn short(text: String) -> String {
    if text.len() > KEPT {
        text.chars().take(KEPT / 4).collect()
    } else {
        text
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| text_of(&block["text"]))
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

/// What the person said, without the notes that a client slips into the same message.
fn without_reminders(text: &str) -> String {
    let (open, close) = ("<system-reminder>", "</system-reminder>");
    let mut said = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(open) {
        said.push_str(before);
        rest = after.split_once(close).map_or("", |(_, after)| after);
    }
    said.push_str(rest);
    said.trim().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_step_due_is_the_number_of_replies_since_the_person_spoke() {
        let call = json!({"role": "assistant", "content": [{"type": "text", "text": "so"}, {"type": "tool_use", "input": {"command": "true"}}]});
        let result = json!({"role": "user", "content": [
            {"type": "tool_result", "content": [{"type": "text", "text": "out"}]},
            {"type": "text", "text": "<system-reminder>not a person</system-reminder>\n"}]});
        let first = json!({"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "go"}]});
        let asked = Asked::read(&json!({"messages": [first, call, result, call, result]}));
        assert_eq!(
            (asked.turn, asked.last_user.as_str(), asked.step),
            (1, "go", 2)
        );
        let call_item = &asked.items[3];
        assert_eq!(
            (call_item.role.as_str(), call_item.text.as_str()),
            ("assistant", r#"{"command":"true"}"#)
        );

        let again = json!({"role": "user", "content": "more"});
        let asked = Asked::read(&json!({"messages": [first, call, result, again]}));
        assert_eq!(
            (asked.turn, asked.last_user.as_str(), asked.step),
            (2, "more", 0)
        );
    }

    #[test]
    fn what_was_said_meanwhile_is_no_turn_of_its_own() {
        let said = |text: &str| json!({"role": "system", "content": format!("{MEANWHILE}{text}\n\nThis is how it is handed on.")});
        let user = |text: &str| json!({"role": "user", "content": text});
        let asked = Asked::read(&json!({"messages": [user("go"), said("one"), said("two")]}));
        assert_eq!(
            (asked.turn, asked.last_user.as_str()),
            (1, "go"),
            "{asked:?}"
        );
        assert_eq!(asked.steers, ["one", "two"]);
        let asked = Asked::read(&json!({"messages": [user("go"), said("one"), user("next")]}));
        assert!(asked.steers.is_empty());
    }
}
