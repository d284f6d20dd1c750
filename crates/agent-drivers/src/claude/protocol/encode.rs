//! Lines to the agent: one JSON object per line.

use crate::dialogue::line as terminated;
use crate::parts::{CheckedPart, base64};
use agent_duplex::{Message, Permissions};
use serde_json::{Value, json};
use uuid::Uuid;

/// Makes control requests. Their ids are unique across processes, and match an answer to its request.
#[derive(Debug)]
pub(super) struct Requests {
    prefix: String,
    last: u64,
}

impl Requests {
    pub(super) fn new() -> Self {
        let prefix = Uuid::new_v4().simple().to_string();
        Requests { prefix, last: 0 }
    }

    pub(super) fn line(&mut self, request: Value) -> (String, Vec<u8>) {
        self.last += 1;
        let id = format!("{}-{}", self.prefix, self.last);
        let bytes = line(json!({"type": "control_request", "request_id": id, "request": request}));
        (id, bytes)
    }
}

pub(super) fn user(message: &Message, parts: &[CheckedPart]) -> Vec<u8> {
    let content = match parts {
        [] => Value::from(&*message.text).to_string(),
        parts => blocks(&message.text, parts),
    };
    let id = message.id;
    terminated(format!(
        r#"{{"type":"user","message":{{"role":"user","content":{content}}},"parent_tool_use_id":null,"session_id":"","uuid":"{id}"}}"#
    ))
}

/// Returns the content blocks of the service's own API, as text: an image as JSON value would be copied several times.
fn blocks(text: &str, parts: &[CheckedPart]) -> String {
    // The service refuses an empty text.
    let text_block = |text: &str| match text {
        "" => None,
        text => Some(json!({"type": "text", "text": text}).to_string()),
    };
    let blocks = parts.iter().filter_map(|part| match part {
        CheckedPart::Text(text) => text_block(text),
        CheckedPart::Image(image) => {
            let (media_type, data) = (image.media_type, base64(&image.bytes));
            Some(format!(
                r#"{{"type":"image","source":{{"type":"base64","media_type":"{media_type}","data":"{data}"}}}}"#
            ))
        }
        // The driver declares no files.
        CheckedPart::File(_) => None,
    });
    let blocks: Vec<String> = text_block(text).into_iter().chain(blocks).collect();
    format!("[{}]", blocks.join(","))
}

/// Allows a call. Some versions require the call's input in the answer, so it is repeated unchanged.
pub(super) fn allow(ask: &str, input: &str) -> Vec<u8> {
    let ask = Value::from(ask);
    terminated(format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":{ask},"response":{{"behavior":"allow","updatedInput":{input}}}}}}}"#
    ))
}

pub(super) fn deny(ask: &str, message: &str) -> Vec<u8> {
    let answer = json!({"behavior": "deny", "message": message});
    let response = json!({"subtype": "success", "request_id": ask, "response": answer});
    line(json!({"type": "control_response", "response": response}))
}

/// Refuses a request that the driver doesn't support; without an answer the agent would wait forever.
pub(super) fn refuse(request: &str, subtype: &str) -> Vec<u8> {
    let error = format!("unsupported control request: {subtype}");
    let response = json!({"subtype": "error", "request_id": request, "error": error});
    line(json!({"type": "control_response", "response": response}))
}

/// Returns the agent's name of a permission mode. The reader of the events answers all permission requests.
pub(in crate::claude) fn mode(permissions: Permissions) -> &'static str {
    match permissions {
        Permissions::Ask | Permissions::Deny => "default",
        Permissions::Edits => "acceptEdits",
        Permissions::All => "bypassPermissions",
    }
}

fn line(value: Value) -> Vec<u8> {
    terminated(value.to_string())
}
