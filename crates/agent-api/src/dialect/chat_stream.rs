//! Streams of OpenAI's Chat Completions API: chunks with pieces of the first choice, a `finish_reason`, the usage, and at the end `[DONE]`.

use serde_json::Value;

use super::draft::{Delta, Draft, DraftContent, DraftPart, PartState};
use super::model_response::{self, StopReason, array};
use crate::error::Error;
use crate::history::{AssistantText, Thinking, ThinkingProof};
use crate::response::ServerError;
use crate::sse::SseEvent;
use crate::usage::Usage;

#[derive(Clone, Debug, Default)]
pub(super) struct ChatStream {
    stop: Option<StopReason>,
    usage: Option<Usage>,
}

/// The keys of the parts in a draft: thinking and text come before the calls, which have the server's index.
const THINKING: u64 = 0;
const TEXT: u64 = 1;
const FIRST_CALL: u64 = 2;

impl ChatStream {
    /// Reads an event; returns the stop reason with the final event.
    pub(super) fn event(
        &mut self,
        event: &SseEvent,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<Option<StopReason>, Error> {
        if event.data.trim() == "[DONE]" {
            let stop = self.stop.take();
            let stop = stop.ok_or_else(|| Error::malformed("no finish reason"))?;
            // Some servers report a normal end in spite of calls.
            return Ok(Some(match stop {
                StopReason::EndOfTurn if draft.has_calls() => StopReason::ToolCalls,
                stop => stop,
            }));
        }
        let chunk = model_response::json(event)?;
        if !chunk["error"].is_null() || event.name == "error" {
            let error = ServerError::from_json(&chunk).unwrap_or_default();
            return Err(Error::from_stream(&error));
        }
        if !chunk.is_object() {
            return Err(Error::malformed("a chunk is no object"));
        }
        if chunk["usage"].is_object() {
            self.usage = Some(usage(&chunk["usage"]));
        }
        let choices = array(&chunk, "choices");
        let Some(choice) = choices
            .iter()
            .find(|it| it["index"].as_u64().unwrap_or(0) == 0)
        else {
            return Ok(None);
        };
        self.delta(&choice["delta"], draft, deltas)?;
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.stop = Some(stop_reason(reason));
        }
        Ok(None)
    }

    /// Returns the usage so far.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    fn delta(
        &mut self,
        delta: &Value,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        // The name of the field depends on the server.
        let thinking = match piece(delta, "reasoning_content")? {
            Some(thinking) => Some(thinking),
            None => piece(delta, "reasoning")?,
        };
        let refusal = piece(delta, "refusal")?;
        let calls = array(delta, "tool_calls");
        let has_piece = thinking.is_some() || refusal.is_some() || !calls.is_empty();
        let text = piece(delta, "content")?;
        if self.stop.is_some() && (has_piece || text.is_some()) {
            return Err(Error::malformed("a piece after the finish reason"));
        }
        if let Some(piece) = thinking {
            if !draft.has(THINKING) {
                let proof = ThinkingProof::None;
                let text = String::new();
                let content = DraftContent::Thinking(Thinking { text, proof });
                draft.insert(THINKING, DraftPart::open(content))?;
            }
            draft.push(THINKING, piece)?;
            deltas.push(Delta::Thinking(piece.to_owned()));
        }
        for piece in text.into_iter().chain(refusal) {
            if !draft.has(TEXT) {
                let content = DraftContent::Text(AssistantText::default());
                draft.insert(TEXT, DraftPart::open(content))?;
            }
            draft.push(TEXT, piece)?;
            deltas.push(Delta::Text(piece.to_owned()));
        }
        for call in calls {
            self.call(call, draft)?;
        }
        Ok(())
    }

    fn call(&mut self, call: &Value, draft: &mut Draft) -> Result<(), Error> {
        let id = piece(call, "id")?;
        let last = draft.last_key().filter(|key| *key >= FIRST_CALL);
        let key = match call["index"].as_u64() {
            Some(index) => index.saturating_add(FIRST_CALL),
            // Some servers have no index: an id begins a call then.
            None if id.is_some() => last.map_or(FIRST_CALL, |key| key.saturating_add(1)),
            None => {
                last.ok_or_else(|| Error::malformed("a piece of a call that was not started"))?
            }
        };
        if !draft.has(key) {
            let (id, name, arguments) = (String::new(), String::new(), String::new());
            let content = DraftContent::Call {
                id,
                name,
                arguments,
            };
            draft.insert(key, DraftPart::open(content))?;
        }
        let function = &call["function"];
        let new_name = piece(function, "name")?;
        draft.reserve(id.map_or(0, str::len) + new_name.map_or(0, str::len))?;
        if let Some(DraftPart {
            content: DraftContent::Call { id: own, name, .. },
            state: PartState::Open,
        }) = draft.get(key)
        {
            // Some servers repeat both with each piece.
            if own.is_empty() {
                own.push_str(id.unwrap_or_default());
            }
            if name.is_empty() {
                name.push_str(new_name.unwrap_or_default());
            }
        }
        match &function["arguments"] {
            Value::Null => Ok(()),
            Value::String(piece) => draft.push(key, piece),
            whole @ Value::Object(_) => draft.push(key, &whole.to_string()),
            _ => Err(Error::malformed("arguments are no text")),
        }
    }
}

/// Returns a piece of text that isn't empty.
fn piece<'a>(value: &'a Value, key: &str) -> Result<Option<&'a str>, Error> {
    match &value[key] {
        Value::Null => Ok(None),
        Value::String(piece) => Ok(Some(piece.as_str()).filter(|piece| !piece.is_empty())),
        _ => Err(Error::malformed(format!("{key} is no text"))),
    }
}

fn usage(usage: &Value) -> Usage {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    Usage {
        input_tokens: count(&usage["prompt_tokens"]),
        cached_input_tokens: count(&usage["prompt_tokens_details"]["cached_tokens"]),
        cache_write_tokens: 0,
        output_tokens: count(&usage["completion_tokens"]),
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::EndOfTurn,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::Refused,
        reason => model_response::other(reason),
    }
}
