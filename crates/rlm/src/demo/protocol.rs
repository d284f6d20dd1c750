//! The lines that the demo's agent reads and writes: the part of Claude Code's duplex `stream-json` that a scripted agent needs. No I/O.

use serde_json::{Value, json};

/// The texts that an interrupt leaves in the conversation, as the model of a real agent sees them.
const MARKER: &str = "[Request interrupted by user]";
const MARKER_IN_TOOL: &str = "[Request interrupted by user for tool use]";
const REJECTED: &str =
    "The user doesn't want to proceed with this tool use. The tool use was rejected.";
/// The version after the name of the imitated agent, so that this agent isn't mistaken for the real one.
const VERSION: &str = "(played by the demo)";
const MODEL: &str = "scripted";

/// A parsed line of standard input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Message(Message),
    Request {
        id: String,
        request: Request,
    },
    /// A line without an effect, such as a keep-alive.
    Other,
}

/// A message to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// With an id, the sender gets reports about the message.
    pub(super) uuid: Option<String>,
    pub(super) text: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Initialize,
    Interrupt { cancel_queued: bool },
    EndSession,
    SetPermissionMode(String),
    Unknown(String),
}

/// Parses a line.
///
/// # Errors
///
/// Returns a description of an invalid line, for standard error. The imitated agents exit after such a line.
pub(super) fn parse(line: &[u8]) -> Result<Incoming, String> {
    let value: Value =
        serde_json::from_slice(line).map_err(|e| format!("a line is not JSON: {e}"))?;
    match text(&value["type"]) {
        "user" => Ok(Incoming::Message(Message {
            uuid: value["uuid"].as_str().map(str::to_owned),
            text: content(&value["message"]["content"]),
        })),
        "control_request" => {
            let body = &value["request"];
            let request = match text(&body["subtype"]) {
                "initialize" => Request::Initialize,
                "interrupt" => Request::Interrupt {
                    cancel_queued: body["cancel_queued"] == true,
                },
                "end_session" => Request::EndSession,
                "set_permission_mode" => Request::SetPermissionMode(text(&body["mode"]).to_owned()),
                other => Request::Unknown(other.to_owned()),
            };
            let id = text(&value["request_id"]).to_owned();
            Ok(Incoming::Request { id, request })
        }
        "control_response" | "control_cancel_request" | "keep_alive" => Ok(Incoming::Other),
        other => Err(format!("a line has the unknown type `{other}`")),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the text of a message, which is a string or a list of blocks; blocks without text are ignored.
fn content(content: &Value) -> String {
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().map(|block| text(&block["text"])).collect();
    content
        .as_str()
        .map_or_else(|| texts.join("\n"), str::to_owned)
}

/// The place where an interrupt ended a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterruptPoint {
    Text,
    Tool,
}

/// The result of a turn.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    /// The last text, or the place of an interrupt.
    pub(super) end: Result<&'a str, InterruptPoint>,
    pub(super) index: u32,
    pub(super) took_ms: u64,
    /// The input and output words of this turn, which stand for tokens.
    pub(super) turn: (u64, u64),
    /// The same for all turns of this process.
    pub(super) total: (u64, u64),
}

pub(super) fn init(cwd: &str, mode: &str) -> Value {
    json!({
        "type": "system", "subtype": "init", "cwd": cwd, "model": MODEL, "permissionMode": mode,
        "tools": ["Bash", "Edit", "Write"], "mcp_servers": [], "slash_commands": [], "apiKeySource": "none",
        "claude_code_version": VERSION, "output_style": "default",
    })
}

pub(super) fn lifecycle(uuid: &str, state: &str) -> Value {
    json!({"type": "command_lifecycle", "command_uuid": uuid, "state": state})
}

/// Returns the line that confirms a message.
pub(super) fn replay(message: &Message) -> Value {
    let mut value = user(json!([{"type": "text", "text": message.text}]));
    value["isReplay"] = true.into();
    if let Some(uuid) = &message.uuid {
        value["uuid"] = uuid.as_str().into();
    }
    value
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn tool_block(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// Returns the lines that begin a message with one block; `empty` is the block without content.
pub(super) fn open(id: &str, empty: Value) -> [Value; 2] {
    [
        event(json!({"type": "message_start", "message": message(id, json!([]))})),
        event(json!({"type": "content_block_start", "index": 0, "content_block": empty})),
    ]
}

pub(super) fn delta(text: &str) -> Value {
    event(
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
    )
}

pub(super) fn input_delta(input: &Value) -> Value {
    event(json!({
        "type": "content_block_delta", "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": input.to_string()},
    }))
}

/// Returns the line with the whole block; it comes before [`close`].
pub(super) fn assistant(id: &str, block: Value, aborted: bool) -> Value {
    let mut value = json!({
        "type": "assistant", "message": message(id, json!([block])), "parent_tool_use_id": null,
    });
    if aborted {
        value["aborted"] = true.into();
    }
    value
}

/// Returns the lines that end a message; an aborted message has no reason.
pub(super) fn close(reason: Option<&str>) -> [Value; 3] {
    [
        event(json!({"type": "content_block_stop", "index": 0})),
        event(json!({
            "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": 0},
        })),
        event(json!({"type": "message_stop"})),
    ]
}

pub(super) fn tool_result(id: &str, output: &str, failed: bool) -> Value {
    user(json!([{"type": "tool_result", "tool_use_id": id, "content": output, "is_error": failed}]))
}

pub(super) fn tool_rejected(id: &str) -> Value {
    let mut value = tool_result(id, REJECTED, true);
    value["tool_result_meta"] = json!([{"id": id, "non_execution_kind": "user-rejected"}]);
    value
}

pub(super) fn marker(place: InterruptPoint) -> Value {
    let text = match place {
        InterruptPoint::Text => MARKER,
        InterruptPoint::Tool => MARKER_IN_TOOL,
    };
    user(json!([{"type": "text", "text": text}]))
}

pub(super) fn result(summary: &Summary<'_>) -> Value {
    let mut value = json!({
        "type": "result", "is_error": summary.end.is_err(), "num_turns": 1, "duration_ms": summary.took_ms,
        "duration_api_ms": 0, "result_index": summary.index, "permission_denials": [], "total_cost_usd": 0.0,
        "usage": {
            "input_tokens": summary.turn.0, "output_tokens": summary.turn.1,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        },
        "modelUsage": {MODEL: {
            "inputTokens": summary.total.0, "outputTokens": summary.total.1,
            "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0, "costUSD": 0.0,
        }},
    });
    let (subtype, stop, terminal) = match summary.end {
        Ok(last) => {
            value["result"] = last.into();
            ("success", Some("end_turn"), "completed")
        }
        Err(place) => {
            value["errors"] = json!([]);
            let terminal = match place {
                InterruptPoint::Text => "aborted_streaming",
                InterruptPoint::Tool => "aborted_tools",
            };
            ("error_during_execution", None, terminal)
        }
    };
    value["subtype"] = subtype.into();
    value["stop_reason"] = stop.into();
    value["terminal_reason"] = terminal.into();
    value
}

pub(super) fn permission_mode(mode: &str) -> Value {
    json!({"type": "system", "subtype": "status", "status": null, "permissionMode": mode})
}

pub(super) fn initialized(pid: u32) -> Value {
    json!({
        "commands": [], "agents": [], "models": [], "account": {}, "output_style": "default", "pid": pid,
        "claude_code_version": VERSION, "session_state": "idle",
        "capabilities": ["interrupt_receipt_v1", "interrupt_cancel_queued_v1"],
    })
}

pub(super) fn receipt(queued: &[String], cancelled: Option<&[String]>) -> Value {
    let mut value = json!({"still_queued": queued});
    if let Some(cancelled) = cancelled {
        value["cancelled"] = json!(cancelled);
    }
    value
}

pub(super) fn success(id: &str, response: Value) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": id, "response": response},
    })
}

pub(super) fn unsupported(id: &str, subtype: &str) -> Value {
    json!({
        "type": "control_response",
        "response": {
            "subtype": "error", "request_id": id, "error": format!("unsupported request: {subtype}"),
            "error_code": "unsupported_request",
        },
    })
}

fn event(event: Value) -> Value {
    json!({"type": "stream_event", "event": event, "parent_tool_use_id": null})
}

fn user(content: Value) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": null})
}

fn message(id: &str, content: Value) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "model": MODEL, "content": content,
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0},
    })
}
