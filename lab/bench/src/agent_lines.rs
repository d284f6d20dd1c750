//! The pinned input of the driver benches: turns in the format of Claude Code's stream of JSON lines.

use serde_json::{Value, json};

use crate::harness::Random;
use crate::transcript::Transcript;

/// The session id in all lines.
const SESSION: &str = "c92624b4-974a-4d7a-bef6-3db010641736";
/// Length in bytes of the long answer in every third turn. It appears twice: as a message and in the turn's result.
const LONG: usize = 1_500_000;
/// Length in bytes of a turn, about as long as the turns of real agents in a loop.
const TURN: usize = 8_000_000;

/// Whole turns, one after the other. The agent begins each turn itself, except the first.
#[derive(Debug)]
pub(crate) struct AgentLines {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: usize,
    pub(crate) turns: usize,
}

impl AgentLines {
    /// Makes about `bytes` bytes of lines, the same ones every time.
    pub(crate) fn pinned(bytes: usize) -> Self {
        let mut writer = Writer {
            found: Self {
                bytes: Vec::with_capacity(bytes + bytes / 8),
                lines: 0,
                turns: 0,
            },
            transcript: Transcript::pinned(),
            random: Random::seeded(20_260_102),
            ids: 0,
        };
        while writer.found.bytes.len() < bytes {
            let left = bytes - writer.found.bytes.len();
            writer.turn(left.min(TURN), LONG.min(bytes / 8));
        }
        writer.found
    }
}

struct Writer {
    found: AgentLines,
    transcript: Transcript,
    random: Random,
    ids: u64,
}

impl Writer {
    fn turn(&mut self, bytes: usize, long: usize) {
        let end = self.found.bytes.len() + bytes;
        let is_long = self.found.turns.is_multiple_of(3);
        self.found.turns += 1;
        let tools: Vec<String> = (0..24).map(|number| format!("Tool{number}")).collect();
        let commands: Vec<String> = (0..60).map(|number| format!("command-{number}")).collect();
        self.line(json!({
            "type": "system", "subtype": "init", "cwd": "/home/user/project", "tools": tools, "mcp_servers": [],
            "model": "claude-opus-5-5", "permissionMode": "acceptEdits", "slash_commands": commands,
            "apiKeySource": "none", "claude_code_version": "2.1.329", "output_style": "default",
        }));
        let mut answer = if is_long {
            self.transcript.prose(long)
        } else {
            String::new()
        };
        if is_long {
            self.said(&answer);
        }
        // The result repeats the answer, so its bytes count too.
        while self.found.bytes.len() + answer.len() < end {
            self.line(json!({"type": "system", "subtype": "status", "status": "requesting"}));
            self.streamed(json!({"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": [],
                "stop_reason": null, "usage": {"input_tokens": 12367, "output_tokens": 1},
            }}));
            let length = 600 + self.random.below(1200) as usize;
            let text = self.transcript.prose(length);
            self.deltas(&text);
            self.said(&text);
            self.streamed(json!({"type": "content_block_stop", "index": 0}));
            self.tool();
            self.streamed(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 90}}));
            self.streamed(json!({"type": "message_stop"}));
            if !is_long {
                answer = text;
            }
        }
        self.line(json!({
            "type": "result", "subtype": "success", "is_error": false, "terminal_reason": "completed", "stop_reason": "end_turn",
            "duration_ms": 90_000, "duration_api_ms": 80_000, "num_turns": 70, "result": answer, "total_cost_usd": 0.099,
            "usage": {"input_tokens": 24_858, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 300},
            "modelUsage": {"claude-opus-5-5": {"inputTokens": 24_858, "outputTokens": 300, "cacheReadInputTokens": 0,
                "cacheCreationInputTokens": 0, "costUSD": 0.099}},
        }));
    }

    /// Streams a text in pieces of a few words.
    fn deltas(&mut self, text: &str) {
        self.streamed(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}));
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(8 + self.random.below(64) as usize));
            self.streamed(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}));
            rest = after;
        }
    }

    fn said(&mut self, text: &str) {
        self.assistant(json!({"type": "text", "text": text}));
    }

    /// Calls a tool and adds its result: mostly a screenful, sometimes a whole file.
    fn tool(&mut self) {
        let call = format!("toolu_{:024}", self.ids);
        let input = json!({"command": self.transcript.code(80), "description": "Run a command"});
        self.streamed(json!({"type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": call, "name": "Bash", "input": {}}}));
        self.streamed(json!({"type": "content_block_delta", "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": input.to_string()}}));
        self.assistant(json!({"type": "tool_use", "id": call, "name": "Bash", "input": input}));
        self.streamed(json!({"type": "content_block_stop", "index": 1}));
        let length = match self.random.below(10) {
            0 => 20_000,
            _ => 200 + self.random.below(2000) as usize,
        };
        let output = self.transcript.code(length);
        self.line(json!({
            "type": "user", "message": {"role": "user", "content": [
                {"tool_use_id": call, "type": "tool_result", "content": output, "is_error": false},
            ]},
            "timestamp": "2026-11-21T02:04:49.522Z",
            "tool_use_result": {"stdout": output, "stderr": "", "interrupted": false, "isImage": false},
            "tool_result_meta": [{"id": call, "permission_decision": {"decision": "accept", "source": "config"}}],
        }));
    }

    fn assistant(&mut self, block: Value) {
        self.line(json!({"type": "assistant", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": [block],
            "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 12_367, "output_tokens": 1},
        }}));
    }

    fn streamed(&mut self, event: Value) {
        self.line(json!({"type": "stream_event", "event": event, "api_message_id": "msg_1"}));
    }

    /// Adds the fields that every line has.
    fn line(&mut self, mut value: Value) {
        self.ids += 1;
        value["session_id"] = SESSION.into();
        value["parent_tool_use_id"] = Value::Null;
        value["uuid"] = format!("27bc1e72-1ea2-4e79-822e-{:012x}", self.ids).into();
        self.found
            .bytes
            .extend_from_slice(value.to_string().as_bytes());
        self.found.bytes.push(b'\n');
        self.found.lines += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_lines_are_deterministic_and_have_the_requested_size() {
        let lines = AgentLines::pinned(1_000_000);
        assert_eq!(lines.bytes, AgentLines::pinned(1_000_000).bytes);
        assert!((1_000_000..1_100_000).contains(&lines.bytes.len()));
        let parsed: Vec<Value> = lines
            .bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(parsed.len(), lines.lines);
        let ends = parsed.iter().filter(|line| line["type"] == "result");
        assert_eq!(ends.count(), lines.turns);
        let longest = lines
            .bytes
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::len)
            .max();
        assert!(longest.unwrap() > 125_000);
    }
}
