//! Google's generateContent: the Gemini CLI.

use serde_json::{Value, json};

use super::protocol::Dialect;
use crate::model::reply::Reply;
use crate::model::request::{PromptRequest, Tool, array, text_of, without};

/// The elements of notes that the client sends in the user's name.
const NOTES: [&str; 2] = ["session_context", "system-reminder"];

pub(super) struct Gemini;

/// Whether this path asks for a reply of the model. The path names the model and then the method.
pub(super) fn is_asked_at(path: &str) -> bool {
    path.ends_with(STREAMED) || path.ends_with(":generateContent")
}

const STREAMED: &str = ":streamGenerateContent";

impl Dialect for Gemini {
    fn read(&self, path: &str, body: &Value) -> PromptRequest {
        let model = path.rsplit('/').next().unwrap_or_default();
        let mut asked = PromptRequest {
            model: model.split(':').next().unwrap_or_default().into(),
            stream: path.ends_with(STREAMED),
            tools: { array(&body["tools"]).iter() }
                .flat_map(|tools| array(&tools["functionDeclarations"]))
                .map(tool)
                .collect(),
            ..PromptRequest::default()
        };
        asked.system(&text_of(&body["systemInstruction"]["parts"]));
        for content in array(&body["contents"]) {
            let role = match content["role"] == "model" {
                true => "assistant",
                false => "user",
            };
            asked.step += usize::from(role == "assistant");
            for part in array(&content["parts"]) {
                if let Some(call) = part.get("functionCall") {
                    asked.item(role, "tool_use", &call["args"].to_string());
                } else if let Some(result) = part.get("functionResponse") {
                    asked.item(role, "tool_result", &result["response"].to_string());
                } else {
                    let text = text_of(&part["text"]);
                    if role == "user" {
                        asked.said(&without(&text, &NOTES));
                    }
                    asked.item(role, "text", &text);
                }
            }
        }
        asked
    }

    fn failure(&self, code: u16, retry_after: Option<&str>) -> Value {
        let status = match code {
            400 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            429 => "RESOURCE_EXHAUSTED",
            503 | 529 => "UNAVAILABLE",
            _ => "INTERNAL",
        };
        let mut error =
            json!({"code": code, "message": format!("scripted {code}"), "status": status});
        // The client ignores the header.
        if let Some(seconds) = retry_after {
            let kind = "type.googleapis.com/google.rpc.RetryInfo";
            error["details"] = json!([{"@type": kind, "retryDelay": format!("{seconds}s")}]);
        }
        json!({"error": error})
    }

    fn opening(&self, _reply: &Reply) -> Vec<Value> {
        Vec::new()
    }

    fn token(&self, reply: &Reply, token: &str) -> Value {
        chunk(reply, &json!({"text": token}))
    }

    fn closing(&self, reply: &Reply) -> Vec<Value> {
        vec![end(reply, "")]
    }

    fn whole(&self, reply: &Reply) -> Value {
        end(reply, &reply.text)
    }
}

fn tool(declared: &Value) -> Tool {
    let schemas = ["parametersJsonSchema", "parameters"].map(|name| &declared[name]);
    let schema = schemas.into_iter().find(|schema| !schema.is_null());
    Tool::new(&declared["name"], schema.unwrap_or(&Value::Null))
}

fn chunk(reply: &Reply, part: &Value) -> Value {
    let content = json!({"role": "model", "parts": [part]});
    let output = reply.tokens + 1;
    json!({
        "candidates": [{"content": content, "index": 0}], "modelVersion": reply.model, "responseId": format!("fake{:06}", reply.number),
        "usageMetadata": {
            "promptTokenCount": reply.input_tokens, "candidatesTokenCount": output, "totalTokenCount": reply.input_tokens + output,
        },
    })
}

/// Returns the last event of a reply: its tool call, or the rest of its text.
fn end(reply: &Reply, text: &str) -> Value {
    let part = match &reply.call {
        Some(call) => {
            let id = format!("call_fake{:06}", reply.number);
            json!({"functionCall": {"id": id, "name": call.tool, "args": call.input}})
        }
        None => json!({"text": text}),
    };
    let mut end = chunk(reply, &part);
    end["candidates"][0]["finishReason"] = "STOP".into();
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_and_its_result_lead_to_the_next_step() {
        let user = |text: &str| json!({"role": "user", "parts": [{"text": text}]});
        let context = user("<session_context>\nToday.\n</session_context>");
        let call = json!({"role": "model", "parts": [{"functionCall": {"name": "run_shell_command", "args": {"command": "true"}}}]});
        let result = json!({"role": "user", "parts": [{"functionResponse": {"response": {"output": "out"}}}]});
        let path = "/v1beta/models/gemini-2.5-pro:streamGenerateContent";
        let asked = Gemini.read(
            path,
            &json!({"contents": [context, user("go"), call, result]}),
        );
        assert_eq!(
            (asked.model.as_str(), asked.stream),
            ("gemini-2.5-pro", true)
        );
        assert_eq!(
            (asked.turn, asked.last_user.as_str(), asked.step),
            (1, "go", 1)
        );
        let kinds: Vec<_> = asked.items.iter().map(|item| item.kind.as_str()).collect();
        assert_eq!(kinds, ["text", "text", "tool_use", "tool_result"]);
    }
}
