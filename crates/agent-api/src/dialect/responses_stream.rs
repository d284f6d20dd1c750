//! Streams of OpenAI's Responses API. Pieces of items arrive first; then each whole item arrives again with `response.output_item.done`. The whole item
//! counts. The final event is `response.completed` or `response.incomplete`.

use serde_json::Value;

use super::draft::{Delta, Draft, DraftContent, DraftPart, PartState};
use super::model_response::{self, StopReason, array, number, text};
use crate::error::Error;
use crate::history::{AssistantText, Thinking, ThinkingProof};
use crate::response::ServerError;
use crate::sse::SseEvent;
use crate::usage::Usage;

#[derive(Clone, Debug, Default)]
pub(super) struct ResponsesStream {
    usage: Option<Usage>,
    refusal: Refusal,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Refusal {
    #[default]
    No,
    Yes,
}

/// The separator between the parts of a summary of thinking.
const BETWEEN: &str = "\n\n";

impl ResponsesStream {
    /// Reads an event; returns the stop reason with the final event.
    pub(super) fn event(
        &mut self,
        event: &SseEvent,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<Option<StopReason>, Error> {
        // Some servers of this dialect end the stream like a chat completion, after the final event.
        if event.data.trim() == "[DONE]" {
            return Ok(None);
        }
        let event = model_response::json(event)?;
        match text(&event, "type")? {
            "response.output_item.added" => {
                let index = number(&event, "output_index")?;
                if draft.has(index) {
                    return Err(Error::malformed("a second item with the same index"));
                }
                if let Some(content) = self.content(&event["item"])? {
                    draft.insert(index, DraftPart::open(content))?;
                }
            }
            "response.output_item.done" => {
                let index = number(&event, "output_index")?;
                self.done(index, &event["item"], draft, deltas)?;
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                let piece = text(&event, "delta")?;
                draft.push(number(&event, "output_index")?, piece)?;
                deltas.push(Delta::Text(piece.to_owned()));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let piece = text(&event, "delta")?;
                draft.push(number(&event, "output_index")?, piece)?;
                deltas.push(Delta::Thinking(piece.to_owned()));
            }
            "response.reasoning_summary_part.added"
                if event["summary_index"]
                    .as_u64()
                    .is_some_and(|index| index > 0) =>
            {
                draft.push(number(&event, "output_index")?, BETWEEN)?;
                deltas.push(Delta::Thinking(BETWEEN.to_owned()));
            }
            "response.function_call_arguments.delta" => {
                draft.push(number(&event, "output_index")?, text(&event, "delta")?)?;
            }
            "response.completed" => return self.end(&event["response"], draft, deltas).map(Some),
            "response.incomplete" => {
                let response = &event["response"];
                self.end(response, draft, deltas)?;
                return Ok(Some(
                    match response["incomplete_details"]["reason"].as_str() {
                        Some("max_output_tokens") => StopReason::MaxTokens,
                        Some("content_filter") => StopReason::Refused,
                        reason => model_response::other(reason.unwrap_or("incomplete")),
                    },
                ));
            }
            "response.failed" => {
                let error = ServerError::from_json(&event["response"]).unwrap_or_default();
                return Err(Error::from_stream(&error));
            }
            "error" => {
                let error = ServerError::from_json(&event).unwrap_or_default();
                return Err(Error::from_stream(&error));
            }
            // Progress, events that repeat a whole part, and events of a later version.
            _ => {}
        }
        Ok(None)
    }

    /// Returns the usage so far.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    fn done(
        &mut self,
        index: u64,
        item: &Value,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        let Some(content) = self.content(item)? else {
            return Ok(());
        };
        // A server may send no pieces, or not all of them.
        let rest =
            |now: &str, before: &str| now.strip_prefix(before).unwrap_or_default().to_owned();
        let before = draft.get(index).map(|part| &part.content);
        let delta = match (&content, before) {
            (DraftContent::Text(now), Some(DraftContent::Text(before))) => {
                Delta::Text(rest(&now.text, &before.text))
            }
            (DraftContent::Text(now), None) => Delta::Text(now.text.clone()),
            (DraftContent::Thinking(now), Some(DraftContent::Thinking(before))) => {
                Delta::Thinking(rest(&now.text, &before.text))
            }
            (DraftContent::Thinking(now), None) => Delta::Thinking(now.text.clone()),
            (DraftContent::Call { .. }, Some(DraftContent::Call { .. }) | None) => {
                Delta::Text(String::new())
            }
            _ => return Err(Error::malformed("an item changes its type")),
        };
        draft.insert(index, DraftPart::complete(content))?;
        let (Delta::Text(text) | Delta::Thinking(text)) = &delta;
        if !text.is_empty() {
            deltas.push(delta);
        }
        Ok(())
    }

    /// Reads the final response. It repeats the items, which matters only if one did not arrive before.
    fn end(
        &mut self,
        response: &Value,
        draft: &mut Draft,
        deltas: &mut Vec<Delta>,
    ) -> Result<StopReason, Error> {
        for (index, item) in (0_u64..).zip(array(response, "output")) {
            let part = draft.get(index);
            if part.is_none_or(|part| part.state == PartState::Open) {
                self.done(index, item, draft, deltas)?;
            }
        }
        draft.check_all_complete()?;
        let usage = &response["usage"];
        if usage.is_object() {
            let count = |value: &Value| value.as_u64().unwrap_or(0);
            self.usage = Some(Usage {
                input_tokens: count(&usage["input_tokens"]),
                cached_input_tokens: count(&usage["input_tokens_details"]["cached_tokens"]),
                cache_write_tokens: 0,
                output_tokens: count(&usage["output_tokens"]),
            });
        }
        Ok(match self.refusal {
            _ if draft.has_calls() => StopReason::ToolCalls,
            Refusal::Yes => StopReason::Refused,
            Refusal::No => StopReason::EndOfTurn,
        })
    }

    /// Reads an item, which may be whole or only begun; `None` for a type that this crate doesn't know.
    fn content(&mut self, item: &Value) -> Result<Option<DraftContent>, Error> {
        let optional = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        Ok(Some(match text(item, "type")? {
            "message" => {
                let mut whole = String::new();
                for part in array(item, "content") {
                    match text(part, "type")? {
                        "output_text" => whole.push_str(text(part, "text")?),
                        "refusal" => {
                            self.refusal = Refusal::Yes;
                            whole.push_str(text(part, "refusal")?);
                        }
                        _ => {}
                    }
                }
                DraftContent::Text(AssistantText {
                    text: whole,
                    phase: item["phase"].as_str().map(str::to_owned),
                })
            }
            "reasoning" => {
                let texts = |key: &str| -> Vec<String> {
                    let parts = array(item, key).iter();
                    parts
                        .filter_map(|part| Some(part["text"].as_str()?.to_owned()))
                        .collect()
                };
                let (summary, content) = (texts("summary"), texts("content"));
                let shown = if summary.is_empty() {
                    &content
                } else {
                    &summary
                };
                DraftContent::Thinking(Thinking {
                    text: shown.join(BETWEEN),
                    proof: match item["encrypted_content"].as_str() {
                        Some(encrypted) if !encrypted.is_empty() => ThinkingProof::Encrypted {
                            id: optional("id"),
                            summary,
                            content: encrypted.to_owned(),
                        },
                        _ => ThinkingProof::None,
                    },
                })
            }
            "function_call" => DraftContent::Call {
                id: text(item, "call_id")?.to_owned(),
                name: text(item, "name")?.to_owned(),
                arguments: optional("arguments"),
            },
            _ => return Ok(None),
        }))
    }
}
