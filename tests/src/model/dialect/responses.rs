//! OpenAI's Responses API: Codex.

use serde_json::{Value, json};

use super::protocol::Dialect;
use crate::model::reply::{Call, Reply};
use crate::model::request::{PromptRequest, Tool, array, text_of, without};
use crate::model::script;

/// The prefixes of notes that the client sends in the user's name.
const NOTES: [&str; 4] = [
    "environment_context",
    "user_instructions",
    "INSTRUCTIONS",
    "turn_aborted",
];

/// The separator between the name of a namespace and the name of a tool in it.
const BETWEEN: &str = "__";

pub(super) struct Responses;

impl Dialect for Responses {
    fn read(&self, _path: &str, body: &Value) -> PromptRequest {
        let mut asked = PromptRequest {
            model: text_of(&body["model"]),
            session: text_of(&body["prompt_cache_key"]),
            stream: body["stream"].as_bool().unwrap_or(false),
            tools: array(&body["tools"]).iter().flat_map(tools).collect(),
            ..PromptRequest::default()
        };
        asked.system(&text_of(&body["instructions"]));
        let mut before = PrecedingItem::Nothing;
        for item in array(&body["input"]) {
            let kind = item["type"].as_str().unwrap_or("message");
            let role = item["role"].as_str();
            before = match (kind, role) {
                ("message", Some("assistant")) => {
                    asked.step += usize::from(before != PrecedingItem::Reply);
                    asked.item("assistant", "text", &text_of(&item["content"]));
                    PrecedingItem::Reply
                }
                ("message", role) => {
                    let role = role.unwrap_or("user");
                    let text = text_of(&item["content"]);
                    if role == "user" {
                        said(&mut asked, &text, &before);
                    }
                    asked.item(role, "text", &text);
                    // A note of the client does not change whether the next user text is a steer.
                    if role == "user" {
                        PrecedingItem::Nothing
                    } else {
                        before
                    }
                }
                (kind, _) if kind.ends_with("_output") => {
                    let result = text_of(&item["output"]);
                    let whole = !result.contains("aborted by user");
                    asked.item("user", "tool_result", &result);
                    if whole {
                        PrecedingItem::Result
                    } else {
                        PrecedingItem::Nothing
                    }
                }
                (kind, _) if kind.ends_with("_call") => {
                    asked.step += usize::from(before != PrecedingItem::Reply);
                    let inputs = ["arguments", "input", "action"].map(|name| &item[name]);
                    let input = inputs.into_iter().find(|input| !input.is_null());
                    let input = input.map(|input| match input {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    });
                    asked.item("assistant", "tool_use", &input.unwrap_or_default());
                    PrecedingItem::Reply
                }
                _ => before,
            };
        }
        asked
    }

    fn failure(&self, code: u16, _retry_after: Option<&str>) -> Value {
        let kind = match code {
            400 => "invalid_request_error",
            401 => "authentication_error",
            429 => "rate_limit_exceeded",
            _ => "server_error",
        };
        json!({"error": {"type": kind, "message": format!("scripted {code}"), "code": null}})
    }

    fn opening(&self, reply: &Reply) -> Vec<Value> {
        let created =
            json!({"type": "response.created", "response": response(reply, "in_progress")});
        let added = reply.call.is_none().then(|| {
            json!({"type": "response.output_item.added", "output_index": 0, "item": item(reply, "in_progress")})
        });
        [created].into_iter().chain(added).collect()
    }

    fn token(&self, reply: &Reply, token: &str) -> Value {
        json!({
            "type": "response.output_text.delta", "item_id": format!("msg_fake{:06}", reply.number),
            "output_index": 0, "content_index": 0, "delta": token,
        })
    }

    fn closing(&self, reply: &Reply) -> Vec<Value> {
        let item = item(reply, "completed");
        vec![
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": self.whole(reply)}),
        ]
    }

    fn whole(&self, reply: &Reply) -> Value {
        let output = reply.tokens + 1;
        let mut response = response(reply, "completed");
        response["output"] = json!([item(reply, "completed")]);
        response["usage"] = json!({
            "input_tokens": reply.input_tokens, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.input_tokens + output,
        });
        response
    }
}

/// The kind of the item before an item of the conversation.
#[derive(PartialEq)]
enum PrecedingItem {
    Reply,
    /// The result of a call that ended normally.
    Result,
    Nothing,
}

/// Adds a text of the user. The protocol does not distinguish a steer from a text that begins a turn. A text is a steer if the model still had to
/// answer a result, unless the text has its own directives.
fn said(asked: &mut PromptRequest, text: &str, before: &PrecedingItem) {
    let text = without(text, &NOTES);
    if *before == PrecedingItem::Result && script::parse(&text).is_empty() && !text.is_empty() {
        asked.steers.push(text);
    } else {
        asked.said(&text);
    }
}

/// Returns a tool, or the tools of a namespace with its name as a prefix.
fn tools(tool: &Value) -> Vec<Tool> {
    if tool["type"] == "namespace" {
        let named = |inner: &Value| {
            let name = [&tool["name"], &inner["name"]].map(text_of).join(BETWEEN);
            Tool::new(&name.into(), &inner["parameters"])
        };
        return array(&tool["tools"]).iter().map(named).collect();
    }
    // A built-in tool of the service has only a type.
    let name = [&tool["name"], &tool["type"]];
    let name = name.into_iter().find(|name| !name.is_null());
    vec![Tool::new(name.unwrap_or(&Value::Null), &tool["parameters"])]
}

fn response(reply: &Reply, status: &str) -> Value {
    json!({
        "id": format!("resp_fake{:06}", reply.number), "object": "response", "created_at": 1_767_225_600, "model": reply.model,
        "status": status, "output": [],
    })
}

/// Returns the only item of a reply's output.
fn item(reply: &Reply, status: &str) -> Value {
    let number = reply.number;
    match &reply.call {
        Some(Call { tool, input }) => {
            let mut call = json!({
                "id": format!("fc_fake{number:06}"), "type": "function_call", "call_id": format!("call_fake{number:06}"),
                "name": tool, "arguments": input.to_string(), "status": status,
            });
            if let Some((namespace, name)) = tool.rsplit_once(BETWEEN) {
                call["namespace"] = namespace.into();
                call["name"] = name.into();
            }
            call
        }
        None => {
            let part = json!({"type": "output_text", "text": reply.text, "annotations": []});
            let content = if status == "completed" {
                vec![part]
            } else {
                Vec::new()
            };
            json!({"id": format!("msg_fake{number:06}"), "type": "message", "role": "assistant", "status": status, "content": content})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[&Value]) -> (usize, String, usize, Vec<String>) {
        let asked = Responses.read("", &json!({"input": input}));
        (asked.turn, asked.last_user, asked.step, asked.steers)
    }

    #[test]
    fn text_after_a_tool_result_is_a_steer_unless_it_is_a_directive() {
        let user = |text: &str| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let output =
            |text: &str| json!({"type": "function_call_output", "call_id": "c", "output": text});
        let notes = user("<environment_context>x</environment_context>");
        let go = user("go [[sh date]]");
        let call = json!({"type": "function_call", "name": "exec_command", "arguments": "{}"});
        let developer = json!({"type": "message", "role": "developer", "content": []});
        let result = output("out");

        let said = "go [[sh date]]".to_owned();
        let tabs = user("use tabs");
        let asked = read(&[&notes, &go, &call, &result, &developer, &tabs]);
        assert_eq!(asked, (1, said, 1, vec!["use tabs".into()]));

        let turn = user("turn [[text so]]");
        let asked = read(&[&go, &call, &result, &turn]);
        assert_eq!(asked, (2, "turn [[text so]]".into(), 0, vec![]));

        // The call was interrupted, and with it the turn.
        let cut = output("Wall time: 2.1 seconds\naborted by user");
        let asked = read(&[
            &go,
            &call,
            &cut,
            &user("<turn_aborted>x</turn_aborted>"),
            &tabs,
        ]);
        assert_eq!(asked, (2, "use tabs".into(), 0, vec![]));
    }
}
