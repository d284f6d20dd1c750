//! The lines that the agent writes, in the format of the real CLI (2.1.329).

use std::io::{self, Write};

use serde_json::{Value, json};
use uuid::Uuid;

/// The cost of one model call in millionths of a dollar, and its input in tokens.
pub(super) const CALL: (u64, u64) = (10_000, 100);

pub(super) fn dollars(micros: u64) -> Value {
    Value::from(micros as f64 / 1e6)
}

/// The writer, and the data of most lines.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) session: String,
    pub(super) model: String,
    /// Whether to write stream events.
    pub(super) partial: bool,
    /// The number of model calls so far, which is the number of the current message.
    pub(super) calls: u64,
    /// The number of the model's words so far.
    pub(super) words: usize,
    /// The messages of the running turn.
    pub(super) taken: Vec<String>,
}

impl Wire {
    /// Writes one line. A closed reader does not stop the agent.
    pub(super) fn line(&self, value: &Value) {
        let mut stdout = io::stdout().lock();
        let _gone = stdout
            .write_all(format!("{value}\n").as_bytes())
            .and_then(|()| stdout.flush());
    }

    /// Writes one line with its own id and the session id.
    pub(super) fn line_of_session(&self, mut value: Value) {
        let fields = value.as_object_mut().expect("every line is an object");
        fields
            .entry("session_id")
            .or_insert_with(|| self.session.as_str().into());
        fields
            .entry("uuid")
            .or_insert_with(|| Uuid::new_v4().to_string().into());
        self.line(&value);
    }

    pub(super) fn lifecycle(&self, id: &str, state: &str) {
        if !id.is_empty() {
            self.line_of_session(
                json!({"type": "command_lifecycle", "command_uuid": id, "state": state}),
            );
        }
    }

    pub(super) fn init(&self, mode: &str) {
        self.line_of_session(json!({
            "type": "system", "subtype": "init", "cwd": std::env::current_dir().unwrap_or_default(), "tools": ["Bash", "Edit", "Read", "Write"],
            "mcp_servers": [], "model": self.model, "permissionMode": mode, "slash_commands": ["compact"], "apiKeySource": "ANTHROPIC_API_KEY",
            "claude_code_version": "2.1.329", "output_style": "default", "agents": [], "skills": [], "plugins": [],
            "capabilities": ["interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1", "get_usage_detached_v1"], "user_message_uuids": self.taken,
        }));
    }

    pub(super) fn requesting(&self) {
        self.line_of_session(json!({"type": "system", "subtype": "status", "status": "requesting", "user_message_uuids": self.taken}));
    }

    /// Reports that the turn took a message.
    pub(super) fn replay(&self, id: &str, text: &str) {
        self.line_of_session(json!({
            "type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}, "parent_tool_use_id": null, "uuid": id, "isReplay": true,
        }));
    }

    /// Writes a text that the CLI itself adds to the conversation.
    pub(super) fn user(&self, block: &Value) {
        self.line_of_session(json!({"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": null}));
    }

    fn event(&self, event: &Value) {
        if self.partial {
            self.line_of_session(json!({"type": "stream_event", "event": event, "parent_tool_use_id": null, "api_message_id": self.message_id()}));
        }
    }

    fn message_id(&self) -> String {
        format!("msg_fake{:06}", self.calls)
    }

    fn message(&self, content: &Value) -> Value {
        json!({
            "id": self.message_id(), "type": "message", "role": "assistant", "model": self.model, "content": content, "stop_reason": null,
            "stop_sequence": null, "usage": {"input_tokens": CALL.1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1},
        })
    }

    /// Begins the next message of the model with its only block.
    pub(super) fn begin(&mut self, block: &Value) {
        self.calls += 1;
        self.event(&json!({"type": "message_start", "message": self.message(&json!([]))}));
        self.event(&json!({"type": "content_block_start", "index": 0, "content_block": block}));
    }

    pub(super) fn delta(&self, delta: &Value) {
        self.event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    }

    /// Writes the message's block as a whole.
    pub(super) fn assistant(&self, block: &Value, more: &Value) {
        let mut line = json!({
            "type": "assistant", "message": self.message(&json!([block])), "parent_tool_use_id": null, "user_message_uuids": self.taken,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            line[name] = value.clone();
        }
        self.line_of_session(line);
    }

    pub(super) fn end(&self, stop_reason: Option<&str>, words: usize) {
        self.event(&json!({"type": "content_block_stop", "index": 0}));
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
        self.event(
            &json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": words}}),
        );
        self.event(&json!({"type": "message_stop"}));
    }

    pub(super) fn succeed(&self, request: &str, response: &Value) {
        let mut body = json!({"subtype": "success", "request_id": request});
        if !response.is_null() {
            body["response"] = response.clone();
        }
        self.line(&json!({"type": "control_response", "response": body}));
    }

    pub(super) fn fail(&self, request: &str, error: &str, code: &str) {
        self.line(&json!({"type": "control_response", "response": {"subtype": "error", "request_id": request, "error": error, "error_code": code}}));
    }
}

/// Returns the input of a tool for the summary in the script.
pub(super) fn tool_input(name: &str, summary: &str) -> Value {
    match name {
        "Bash" => json!({"command": summary, "description": "Run a command"}),
        "Read" | "Edit" | "Write" => json!({"file_path": summary}),
        _ => json!({"query": summary}),
    }
}
