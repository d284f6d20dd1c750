//! Anthropic's Messages API: Claude Code.

use serde_json::{Value, json};

use super::protocol::Dialect;
use crate::model::reply::Reply;
use crate::model::request::{PromptRequest, Tool, array, text_of, without};

/// The prefix that the client adds to a message that arrives during a turn.
const MEANWHILE: &str = "The user sent a new message while you were working:\n";

pub(super) struct Messages;

impl Dialect for Messages {
    fn read(&self, _path: &str, body: &Value) -> PromptRequest {
        let mut asked = PromptRequest {
            model: text_of(&body["model"]),
            session: text_of(&body["metadata"]["user_id"]),
            stream: body["stream"].as_bool().unwrap_or(false),
            tools: array(&body["tools"])
                .iter()
                .map(|tool| Tool::new(&tool["name"], &tool["input_schema"]))
                .collect(),
            ..PromptRequest::default()
        };
        asked.system(&text_of(&body["system"]));
        for message in array(&body["messages"]) {
            let role = text_of(&message["role"]);
            asked.step += usize::from(role == "assistant");
            match &message["content"] {
                Value::String(text) => block(&mut asked, &role, "text", text),
                content => {
                    for part in array(content) {
                        let kind = text_of(&part["type"]);
                        let text = match kind.as_str() {
                            "tool_use" => part["input"].to_string(),
                            "tool_result" => text_of(&part["content"]),
                            _ => text_of(&part["text"]),
                        };
                        block(&mut asked, &role, &kind, &text);
                    }
                }
            }
        }
        asked
    }

    fn failure(&self, code: u16, _retry_after: Option<&str>) -> Value {
        let kind = match code {
            400 => "invalid_request_error",
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": format!("scripted {code}")}})
    }

    fn opening(&self, reply: &Reply) -> Vec<Value> {
        let block = match &reply.call {
            Some(call) => {
                json!({"type": "tool_use", "id": call_id(reply), "name": call.tool, "input": {}})
            }
            None => json!({"type": "text", "text": ""}),
        };
        vec![
            json!({"type": "message_start", "message": message(reply)}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
        ]
    }

    fn token(&self, _reply: &Reply, token: &str) -> Value {
        delta(&json!({"type": "text_delta", "text": token}))
    }

    fn closing(&self, reply: &Reply) -> Vec<Value> {
        let input = reply.call.as_ref().map(|call| call.input.to_string());
        let input =
            input.map(|input| delta(&json!({"type": "input_json_delta", "partial_json": input})));
        let end = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
        let usage = json!({"output_tokens": reply.tokens + 1});
        input
            .into_iter()
            .chain([
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": end, "usage": usage}),
                json!({"type": "message_stop"}),
            ])
            .collect()
    }

    fn whole(&self, reply: &Reply) -> Value {
        let mut message = message(reply);
        message["stop_reason"] = stop_reason(reply).into();
        message["usage"]["output_tokens"] = (reply.text.len() / 4 + 1).into();
        message["content"] = match &reply.call {
            Some(call) => {
                json!([{"type": "tool_use", "id": call_id(reply), "name": call.tool, "input": call.input}])
            }
            None => json!([{"type": "text", "text": reply.text}]),
        };
        message
    }
}

fn block(asked: &mut PromptRequest, role: &str, kind: &str, text: &str) {
    if role == "user" && kind == "text" {
        asked.said(&without(text, &["system-reminder"]));
    }
    if let Some((_, said)) = text.split_once(MEANWHILE) {
        let said = said.lines().next().unwrap_or_default();
        asked.steers.push(said.into());
    }
    asked.item(role, kind, text);
}

/// Returns the message before its first text.
fn message(reply: &Reply) -> Value {
    json!({
        "id": format!("msg_fake{:06}", reply.number), "type": "message", "role": "assistant", "model": reply.model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": reply.input_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1},
    })
}

/// Returns the id of the only tool call of a reply.
fn call_id(reply: &Reply) -> String {
    format!("toolu_fake{:06}", reply.number)
}

fn stop_reason(reply: &Reply) -> &'static str {
    match reply.call {
        Some(_) => "tool_use",
        None => "end_turn",
    }
}

fn delta(delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": delta})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(messages: &Value) -> PromptRequest {
        Messages.read("", &json!({"messages": messages}))
    }

    #[test]
    fn next_step_is_the_number_of_replies_since_the_last_user_message() {
        let call = json!({"role": "assistant", "content": [{"type": "text", "text": "so"}, {"type": "tool_use", "input": {"command": "true"}}]});
        let result = json!({"role": "user", "content": [
            {"type": "tool_result", "content": [{"type": "text", "text": "out"}]},
            {"type": "text", "text": "<system-reminder>not a person</system-reminder>\n"}]});
        let first = json!({"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "go"}]});
        let asked = read(&json!([first, call, result, call, result]));
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
        let asked = read(&json!([first, call, result, again]));
        assert_eq!(
            (asked.turn, asked.last_user.as_str(), asked.step),
            (2, "more", 0)
        );
    }

    #[test]
    fn steer_during_turn_starts_no_own_turn() {
        let said = |text: &str| json!({"role": "system", "content": format!("{MEANWHILE}{text}\n\nThis is how it is handed on.")});
        let user = |text: &str| json!({"role": "user", "content": text});
        let asked = read(&json!([user("go"), said("one"), said("two")]));
        assert_eq!(
            (asked.turn, asked.last_user.as_str()),
            (1, "go"),
            "{asked:?}"
        );
        assert_eq!(asked.steers, ["one", "two"]);
        let asked = read(&json!([user("go"), said("one"), user("next")]));
        assert!(asked.steers.is_empty());
    }
}
