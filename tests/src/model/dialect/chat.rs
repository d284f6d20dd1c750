//! OpenAI's chat completions: OpenCode, and other clients of "compatible" services.

use serde_json::{Value, json};

use super::protocol::Dialect;
use crate::model::reply::Reply;
use crate::model::request::{PromptRequest, Tool, array, text_of, without};

pub(super) struct Chat;

impl Dialect for Chat {
    fn read(&self, _path: &str, body: &Value) -> PromptRequest {
        let mut asked = PromptRequest {
            model: text_of(&body["model"]),
            stream: body["stream"].as_bool().unwrap_or(false),
            tools: { array(&body["tools"]).iter() }
                .map(|tool| &tool["function"])
                .map(|tool| Tool::new(&tool["name"], &tool["parameters"]))
                .collect(),
            ..PromptRequest::default()
        };
        for message in array(&body["messages"]) {
            let (role, text) = (text_of(&message["role"]), text_of(&message["content"]));
            match role.as_str() {
                "system" => asked.system(&text),
                "tool" => {
                    asked.item("user", "tool_result", &text);
                    continue;
                }
                "assistant" => asked.step += 1,
                _ => asked.said(&without(&text, &["system-reminder"])),
            }
            if !text.is_empty() {
                asked.item(&role, "text", &text);
            }
            for call in array(&message["tool_calls"]) {
                asked.item(&role, "tool_use", &text_of(&call["function"]["arguments"]));
            }
        }
        asked
    }

    fn failure(&self, code: u16, _retry_after: Option<&str>) -> Value {
        // Only the text tells the errors apart.
        let (kind, words) = match code {
            400 => ("invalid_request_error", "scripted 400"),
            401 => (
                "invalid_request_error",
                "Incorrect API key provided: scripted 401",
            ),
            429 => ("rate_limit_error", "Rate limit reached: scripted 429"),
            _ => ("server_error", "scripted failure"),
        };
        json!({"error": {"type": kind, "message": words, "code": null}})
    }

    fn opening(&self, reply: &Reply) -> Vec<Value> {
        vec![chunk(
            reply,
            &json!({"role": "assistant", "content": ""}),
            None,
        )]
    }

    fn token(&self, reply: &Reply, token: &str) -> Value {
        chunk(reply, &json!({"content": token}), None)
    }

    fn closing(&self, reply: &Reply) -> Vec<Value> {
        let call = calls(reply).map(|calls| chunk(reply, &json!({"tool_calls": calls}), None));
        let mut last = chunk(reply, &json!({}), Some(finish(reply)));
        last["usage"] = usage(reply);
        call.into_iter().chain([last, "[DONE]".into()]).collect()
    }

    fn whole(&self, reply: &Reply) -> Value {
        let mut message = json!({"role": "assistant", "content": reply.text});
        if let Some(calls) = calls(reply) {
            message["tool_calls"] = calls;
        }
        let mut whole = head(reply, "chat.completion");
        whole["choices"] =
            json!([{"index": 0, "message": message, "finish_reason": finish(reply)}]);
        whole["usage"] = usage(reply);
        whole
    }
}

fn head(reply: &Reply, object: &str) -> Value {
    let id = format!("chatcmpl-fake{:06}", reply.number);
    json!({"id": id, "object": object, "created": 1_767_225_600, "model": reply.model})
}

fn chunk(reply: &Reply, delta: &Value, finish: Option<&str>) -> Value {
    let mut chunk = head(reply, "chat.completion.chunk");
    chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    chunk
}

fn calls(reply: &Reply) -> Option<Value> {
    let call = reply.call.as_ref()?;
    let function = json!({"name": call.tool, "arguments": call.input.to_string()});
    let id = format!("call_fake{:06}", reply.number);
    Some(json!([{"index": 0, "id": id, "type": "function", "function": function}]))
}

fn finish(reply: &Reply) -> &'static str {
    match reply.call {
        Some(_) => "tool_calls",
        None => "stop",
    }
}

fn usage(reply: &Reply) -> Value {
    let output = reply.tokens + 1;
    json!({"prompt_tokens": reply.input_tokens, "completion_tokens": output, "total_tokens": reply.input_tokens + output})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_and_its_result_lead_to_the_next_step() {
        let call = json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "bash", "arguments": "{\"command\":\"true\"}"}}]});
        let result = json!({"role": "tool", "content": "out"});
        let user =
            |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
        let asked = Chat.read("", &json!({"messages": [user("go"), call, result]}));
        assert_eq!(
            (asked.turn, asked.last_user.as_str(), asked.step),
            (1, "go", 1)
        );
        let kinds: Vec<_> = asked.items.iter().map(|item| item.kind.as_str()).collect();
        assert_eq!(kinds, ["text", "tool_use", "tool_result"]);
        let asked = Chat.read(
            "",
            &json!({"messages": [user("go"), call, result, user("on")]}),
        );
        assert_eq!(
            (asked.turn, asked.last_user.as_str(), asked.step),
            (2, "on", 0)
        );
    }
}
