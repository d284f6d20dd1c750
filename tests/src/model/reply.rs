//! Builds replies in the shape of the Messages API; what to send and when, but no sending.

use std::time::Duration;

use serde_json::{Value, json};

use super::request::Asked;
use super::script::Step;

/// The shell tools by the names that clients give them.
const SHELLS: [&str; 3] = ["Bash", "bash", "shell"];
const TOKEN: usize = 12;

/// One piece of the text of a reply.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Token(String),
    Pause(Duration),
    BreakOff,
}

/// The text of a reply, piece by piece.
pub(super) fn pieces(step: &Step, asked: &Asked) -> Box<dyn Iterator<Item = Piece>> {
    let tokens = |count: usize| (0..count).map(|number| Piece::Token(format!("tok{number} ")));
    match step {
        Step::Text(text) => {
            let letters: Vec<char> = text.chars().collect();
            Box::new(
                letters
                    .chunks(TOKEN)
                    .map(|part| Piece::Token(part.iter().collect()))
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        }
        Step::Big(size) => {
            let block: String = (0..).map(|n| format!("{n} ")).take(1000).collect();
            let whole = size / block.len();
            let rest = block[..size % block.len()].to_owned();
            let pieces = std::iter::repeat_n(block, whole).chain([rest]);
            Box::new(pieces.map(Piece::Token))
        }
        Step::Steered => {
            let text = format!("steered: {}", asked.steers.join(" | "));
            Box::new([Piece::Token(text)].into_iter())
        }
        Step::Slow { pause, time } => {
            let count =
                usize::try_from(time.as_millis() / pause.as_millis().max(1)).unwrap_or(usize::MAX);
            let pause = *pause;
            Box::new(tokens(count).flat_map(move |token| [token, Piece::Pause(pause)]))
        }
        Step::Hang(time) => Box::new([Piece::Pause(*time)].into_iter()),
        Step::Stall {
            tokens: count,
            time,
        } => Box::new(tokens(*count).chain([Piece::Pause(*time)])),
        Step::Drop { tokens: count, .. } => Box::new(tokens(*count).chain([Piece::BreakOff])),
        Step::Shell(_) | Step::Tool { .. } | Step::Status { .. } => Box::new(std::iter::empty()),
    }
}

/// The tool call of a reply: the tool's name and its input.
pub(super) fn call(step: &Step, asked: &Asked) -> Option<(String, Value)> {
    match step {
        Step::Shell(command) => {
            let name = SHELLS
                .into_iter()
                .find(|shell| asked.tools.iter().any(|tool| tool == shell))
                .unwrap_or(SHELLS[0]);
            Some((
                name.into(),
                json!({"command": command, "description": "Run a command"}),
            ))
        }
        Step::Tool { name, input } => Some((name.clone(), input.clone())),
        _ => None,
    }
}

/// The message before anything was said.
pub(super) fn message(number: u64, model: &str, input_tokens: usize) -> Value {
    json!({
        "id": format!("msg_fake{number:06}"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": input_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1},
    })
}

/// The id of the only tool call in reply `number`.
pub(super) fn call_id(number: u64) -> String {
    format!("toolu_fake{number:06}")
}

/// Why the model stopped.
pub(super) fn stop_reason(calls: bool) -> &'static str {
    if calls { "tool_use" } else { "end_turn" }
}

/// The body of a failure.
pub(super) fn error(code: u16) -> Value {
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
