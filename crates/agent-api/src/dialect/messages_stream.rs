//! Streams of Anthropic's Messages API: `message_start`, then for each block `content_block_start`, deltas and `content_block_stop`, then
//! `message_delta` and `message_stop`.

use serde_json::Value;

use super::draft::{Delta, Draft, DraftContent, DraftPart, PartState};
use super::model_response::{self, StopReason, number, text};
use crate::error::Error;
use crate::history::{AssistantText, Thinking, ThinkingProof};
use crate::response::ServerError;
use crate::sse::SseEvent;
use crate::usage::Usage;

#[derive(Clone, Debug, Default)]
pub(super) struct MessagesStream {
    is_started: bool,
    usage: Counts,
    stop: Option<StopReason>,
    /// The blocks of a type that this crate doesn't know.
    ignored: Vec<u64>,
}

/// The server's numbers. It reports input that was read from or written to a cache separately.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    fresh: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
}

/// The largest number of blocks that are ignored.
const MAX_IGNORED: usize = 1_000;

impl MessagesStream {
    /// Reads an event; returns the stop reason with the final event.
    pub(super) fn event(
        &mut self,
        event: &SseEvent,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<Option<StopReason>, Error> {
        let event = model_response::json(event)?;
        match text(&event, "type")? {
            "message_start" if self.is_started => {
                return Err(Error::malformed("a second message_start"));
            }
            "message_start" => {
                self.is_started = true;
                self.usage.read(&event["message"]["usage"]);
            }
            "error" => {
                let error = ServerError::from_json(&event).unwrap_or_default();
                return Err(Error::from_stream(&error));
            }
            kind @ ("content_block_start"
            | "content_block_delta"
            | "content_block_stop"
            | "message_delta"
            | "message_stop")
                if !self.is_started =>
            {
                return Err(Error::malformed(format!("{kind} before message_start")));
            }
            "content_block_start" => self.start(&event, draft, deltas)?,
            "content_block_delta" => self.delta(&event, draft, deltas)?,
            "content_block_stop" => {
                let index = number(&event, "index")?;
                if let Some(part) = draft.get(index) {
                    part.state = PartState::Complete;
                } else if !self.ignored.contains(&index) {
                    return Err(Error::malformed("the end of a block that was not started"));
                }
            }
            "message_delta" => {
                self.usage.read(&event["usage"]);
                if let Some(reason) = event["delta"]["stop_reason"].as_str() {
                    self.stop = Some(stop_reason(reason));
                }
            }
            "message_stop" => {
                draft.check_all_complete()?;
                let stop = self.stop.take();
                let stop = stop.ok_or_else(|| Error::malformed("no stop reason"))?;
                return Ok(Some(stop));
            }
            // `ping`, and events of a later version.
            _ => {}
        }
        Ok(None)
    }

    /// Returns the usage so far.
    pub(super) fn usage(&self) -> Option<Usage> {
        let Counts {
            fresh,
            cache_read,
            cache_write,
            output,
        } = self.usage;
        self.is_started.then_some(Usage {
            input_tokens: fresh.saturating_add(cache_read).saturating_add(cache_write),
            cached_input_tokens: cache_read,
            cache_write_tokens: cache_write,
            output_tokens: output,
        })
    }

    fn start(
        &mut self,
        event: &Value,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        let (index, block) = (number(event, "index")?, &event["content_block"]);
        if draft.has(index) || self.ignored.contains(&index) {
            return Err(Error::malformed("a second block with the same index"));
        }
        let content = match text(block, "type")? {
            "text" => {
                let text = block["text"].as_str().unwrap_or_default().to_owned();
                if !text.is_empty() {
                    deltas.push(Delta::Text(text.clone()));
                }
                DraftContent::Text(AssistantText { text, phase: None })
            }
            "thinking" => {
                let text = block["thinking"].as_str().unwrap_or_default().to_owned();
                if !text.is_empty() {
                    deltas.push(Delta::Thinking(text.clone()));
                }
                let proof = match block["signature"].as_str().unwrap_or_default() {
                    "" => ThinkingProof::None,
                    signature => ThinkingProof::Signature(signature.to_owned()),
                };
                DraftContent::Thinking(Thinking { text, proof })
            }
            "redacted_thinking" => DraftContent::Thinking(Thinking {
                text: String::new(),
                proof: ThinkingProof::Redacted(text(block, "data")?.to_owned()),
            }),
            "tool_use" => DraftContent::Call {
                id: text(block, "id")?.to_owned(),
                name: text(block, "name")?.to_owned(),
                // Some servers send the whole input here, and no deltas.
                arguments: match &block["input"] {
                    Value::Object(input) if input.is_empty() => String::new(),
                    Value::Null => String::new(),
                    input => input.to_string(),
                },
            },
            _ if self.ignored.len() == MAX_IGNORED => {
                return Err(Error::malformed("too many blocks of unknown types"));
            }
            _ => {
                self.ignored.push(index);
                return Ok(());
            }
        };
        draft.insert(index, DraftPart::open(content))
    }

    fn delta(
        &mut self,
        event: &Value,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        let (index, delta) = (number(event, "index")?, &event["delta"]);
        if self.ignored.contains(&index) {
            return Ok(());
        }
        match text(delta, "type")? {
            "text_delta" => {
                let piece = text(delta, "text")?;
                draft.push(index, piece)?;
                deltas.push(Delta::Text(piece.to_owned()));
            }
            "thinking_delta" => {
                let piece = text(delta, "thinking")?;
                draft.push(index, piece)?;
                deltas.push(Delta::Thinking(piece.to_owned()));
            }
            "input_json_delta" => draft.push(index, text(delta, "partial_json")?)?,
            "signature_delta" => {
                let piece = text(delta, "signature")?;
                draft.reserve(piece.len())?;
                let Some(DraftPart {
                    content: DraftContent::Thinking(thinking),
                    state: PartState::Open,
                }) = draft.get(index)
                else {
                    return Err(Error::malformed("a signature outside of thinking"));
                };
                match &mut thinking.proof {
                    ThinkingProof::Signature(signature) => signature.push_str(piece),
                    proof if !piece.is_empty() => {
                        *proof = ThinkingProof::Signature(piece.to_owned());
                    }
                    _ => {}
                }
            }
            // Citations, and deltas of a later version.
            _ => {}
        }
        Ok(())
    }
}

impl Counts {
    /// Takes the numbers that are there: later events have totals, but not of everything.
    fn read(&mut self, usage: &Value) {
        let fields = [
            ("input_tokens", &mut self.fresh),
            ("cache_read_input_tokens", &mut self.cache_read),
            ("cache_creation_input_tokens", &mut self.cache_write),
            ("output_tokens", &mut self.output),
        ];
        for (key, count) in fields {
            if let Some(number) = usage[key].as_u64() {
                *count = number;
            }
        }
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::EndOfTurn,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::Refused,
        "model_context_window_exceeded" => StopReason::ContextFull,
        reason => model_response::other(reason),
    }
}
